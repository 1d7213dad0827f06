// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// keyFiles are what the daemons' keys are made from. The sealed ones are worth nothing without the machine's own, and that
// one is worth all of them.
var keyFiles = []string{"/etc/credstore.encrypted/doorward.store-key", "/etc/credstore.encrypted/doorward.checkpoint-key",
	"/var/lib/systemd/credential.secret"}

// Keys says whether anybody but root may read or write those files. systemd loads them whatever their mode is.
func (m *Machine) Keys() []Finding {
	out := make([]Finding, 0, len(keyFiles))
	for _, path := range keyFiles {
		out = append(out, keyFile(path))
	}
	return out
}

func keyFile(path string) Finding {
	const check = "key"
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return rootOnly(check, "%s: only root may look at it", path)
	case errors.Is(err, fs.ErrNotExist): // a daemon whose key is missing says so; with a TPM the machine has no file
		return Ok(check, "%s is not there, so nobody reads it", path)
	case err != nil:
		return Not(check, "%s: %v", path, err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return Not(check, "%s: %v", filepath.Dir(path), err)
	}
	st := info.Sys().(*syscall.Stat_t)
	// systemd-creds makes files that all may read, in a directory that root alone may enter.
	open := info.Mode().Perm()&0o077 != 0 && dir.Mode().Perm()&0o077 != 0
	if !info.Mode().IsRegular() || st.Uid != 0 || open {
		return Bad(check, "chown root:root "+path+"; chmod 600 "+path,
			"%s is %s, of user %d, and has to be a file that root alone may read", path, info.Mode().String(), int64(st.Uid))
	}
	return Ok(check, "%s is root's alone", path)
}
