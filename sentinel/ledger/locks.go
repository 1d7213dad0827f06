// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"strconv"
)

// lockHolder finds in the text of /proc/locks (proc_locks(5)) the process other than self that holds a write lock on a
// byte of a file; 0 if none is listed. The kernel writes the text, so what cannot be read is skipped.
func lockHolder(locks []byte, ino uint64, at int64, self int) int {
	for line := range bytes.Lines(locks) {
		f := bytes.Fields(line) // 1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120
		if len(f) != 8 || string(f[3]) != "WRITE" {
			continue
		}
		pid, err1 := strconv.Atoi(string(f[4]))
		i := bytes.LastIndexByte(f[5], ':')
		node, err2 := strconv.ParseUint(string(f[5][i+1:]), 10, 64)
		start, err3 := strconv.ParseInt(string(f[6]), 10, 64)
		end, err4 := strconv.ParseInt(string(f[7]), 10, 64)
		if string(f[7]) == "EOF" {
			end, err4 = 1<<62, nil
		}
		if err1 == nil && err2 == nil && err3 == nil && err4 == nil && node == ino && start <= at && at <= end && pid != self {
			return pid
		}
	}
	return 0
}
