// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/doorward/doorward/sentinel/egress/guard"
	"golang.org/x/sys/unix"
)

// The table's file has a first line that says what it is and of which network, and then one line for each name in order: the
// CRC-32 (IEEE) of the name in eight hex digits, a blank, the name. It is never synced: who still knows an address after a
// loss of power began after it.
const (
	namesVersion = "doorward names 1 "
	namesHead    = len(namesVersion) + 16 + 1 // bytes of the first line
	// maxNamesFile bounds the file in bytes.
	maxNamesFile = namesHead + maxNameBytes + 10*maxNames
)

// namesHeadOf is the first line; network is the cookie of the cell's network namespace, in 16 hex digits.
func namesHeadOf(network uint64) string { return fmt.Sprintf("%s%016x\n", namesVersion, network) }

// errNamesFile is wrapped by every refusal of a file's content.
var errNamesFile = errors.New("not a table of names that this version wrote")

// namesFile is the open file. One at a time has it.
type namesFile struct {
	f    *os.File
	size int64
	torn bool // a line could not be written whole and not be taken back
}

// openNamesFile opens the file of dir, and drops what it has of another network.
func openNamesFile(dir string, network uint64) (*namesFile, []string, error) {
	bad := func(err error) (*namesFile, []string, error) {
		return nil, nil, fmt.Errorf("open the table of the cell's names: %w", err)
	}
	if dir == "" {
		return bad(errors.New("no STATE_DIRECTORY; the unit needs StateDirectory="))
	}
	f, err := os.OpenFile(filepath.Join(dir, "names"), os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return bad(err)
	}
	fail := func(err error) (*namesFile, []string, error) {
		_ = f.Close()
		return bad(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fail(fmt.Errorf("lock it: another egress has it: %w", err))
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(maxNamesFile)+1))
	if err != nil {
		return fail(err)
	}
	of, list, good, err := parseNames(b)
	if err != nil {
		return fail(fmt.Errorf("%w; move %s away to begin a new one", err, f.Name()))
	}
	if of != network {
		list, good = nil, 0
	}
	if good < len(b) { // a torn tail
		if err := f.Truncate(int64(good)); err != nil {
			return fail(err)
		}
	}
	n := &namesFile{f: f, size: int64(good)}
	if good == 0 {
		if err := n.write(namesHeadOf(network)); err != nil {
			return fail(err)
		}
	}
	return n, list, nil
}

// parseNames reads a whole file. good is how many of its bytes are kept: behind them nothing stands but what one write
// that was cut off could have left. A wrong line before a right one is an error.
func parseNames(b []byte) (network uint64, list []string, good int, err error) {
	bad := func(line int, why string) (uint64, []string, int, error) {
		return 0, nil, 0, fmt.Errorf("line %d: %s: %w", line, why, errNamesFile)
	}
	if len(b) > maxNamesFile {
		return bad(1, "longer than the bounds allow")
	}
	if len(b) < namesHead && (len(b) <= len(namesVersion) && strings.HasPrefix(namesVersion, string(b)) ||
		bytes.HasPrefix(b, []byte(namesVersion))) {
		return 0, nil, 0, nil // its first write was cut off
	}
	rest, ok := bytes.CutPrefix(b, []byte(namesVersion))
	if !ok {
		return bad(1, "another version")
	}
	if network, err = strconv.ParseUint(string(rest[:16]), 16, 64); err != nil || namesHeadOf(network) != string(b[:namesHead]) {
		return bad(1, "no network")
	}
	good, rest = namesHead, b[namesHead:]
	seen, total, torn := map[string]bool{}, 0, false
	for no := 2; len(rest) > 0; no++ {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		name, ok := parseNameLine(line)
		if !whole || !ok {
			torn = true
			continue
		}
		switch total += len(name); {
		case torn:
			return bad(no, "stands behind a wrong one")
		case seen[name]:
			return bad(no, "a name that stands there before")
		case len(list) >= maxNames || total > maxNameBytes:
			return bad(no, "more than the bounds allow")
		}
		seen[name] = true
		list = append(list, name)
		good += len(line) + 1
	}
	return network, list, good, nil
}

func parseNameLine(line []byte) (string, bool) {
	sum, name, ok := bytes.Cut(line, []byte(" "))
	if !ok || string(sum) != nameSum(string(name)) {
		return "", false
	}
	h, err := guard.ParseHost(string(name))
	return h.String(), err == nil && !h.Addr().IsValid() && h.String() == string(name)
}

func nameSum(name string) string {
	s := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))), 16)
	return "00000000"[len(s):] + s
}

// add appends a name.
func (n *namesFile) add(name string) error { return n.write(nameSum(name) + " " + name + "\n") }

func (n *namesFile) write(line string) error {
	if n.torn {
		return errors.New("write the table of the cell's names: it failed before; restart the daemon")
	}
	if _, err := n.f.WriteString(line); err != nil {
		if n.f.Truncate(n.size) != nil {
			n.torn = true
		}
		return fmt.Errorf("write the table of the cell's names: %w", err)
	}
	n.size += int64(len(line))
	return nil
}

func (n *namesFile) close() error { return n.f.Close() }
