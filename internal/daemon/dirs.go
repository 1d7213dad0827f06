// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/secret"
	"golang.org/x/sys/unix"
)

// Dirs are the directories that the service manager made for the daemon, systemd.exec(5). Each is an absolute path, or
// empty where the unit has none.
type Dirs struct {
	State       string // STATE_DIRECTORY: written by this daemon alone
	Config      string // CONFIGURATION_DIRECTORY: written by root
	Credentials string // CREDENTIALS_DIRECTORY: decrypted for this daemon alone
}

func dirs(env map[string]string) (Dirs, error) {
	var d Dirs
	for _, v := range []struct {
		name string
		to   *string
	}{{"STATE_DIRECTORY", &d.State}, {"CONFIGURATION_DIRECTORY", &d.Config}, {"CREDENTIALS_DIRECTORY", &d.Credentials}} {
		path := env[v.name]
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) || strings.Contains(path, ":") {
			return Dirs{}, fmt.Errorf("read %s=%q: want one absolute path", v.name, path)
		}
		*v.to = filepath.Clean(path)
	}
	return d, nil
}

// maxCredential bounds a credential in bytes; systemd's own bound is 1 MB.
const maxCredential = 64 << 10

// Credential reads the credential of that name, which the unit declares. Where there is none the error wraps
// os.ErrNotExist.
func (d Dirs) Credential(name string) (secret.Bytes, error) {
	if d.Credentials == "" {
		return secret.Bytes{}, fmt.Errorf("read credential %s: no CREDENTIALS_DIRECTORY: %w", name, os.ErrNotExist)
	}
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return secret.Bytes{}, fmt.Errorf("read credential %q: not a name", name)
	}
	f, err := os.OpenFile(filepath.Join(d.Credentials, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return secret.Bytes{}, fmt.Errorf("read credential %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return secret.Bytes{}, fmt.Errorf("read credential %s: %w", name, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 {
		return secret.Bytes{}, fmt.Errorf("read credential %s: mode %v: others may read it", name, info.Mode())
	}
	if info.Size() > maxCredential {
		return secret.Bytes{}, fmt.Errorf("read credential %s: %d bytes, at most %d", name, info.Size(), maxCredential)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil && !errors.Is(err, io.EOF) {
		return secret.Bytes{}, fmt.Errorf("read credential %s: %w", name, err)
	}
	return secret.New(b), nil
}
