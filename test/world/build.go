// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Root is the top folder of the module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find the module: no go.mod above the working directory")
}

// Build brings build/ up to date by `make build`, once in the life of this process, and returns it. Several processes
// may ask at once. DOORWARD_PREFIX, as it is when Build is called, names an installation to take instead.
var Build = func() (string, error) {
	if prefix := os.Getenv("DOORWARD_PREFIX"); prefix != "" {
		return filepath.Abs(prefix)
	}
	return build()
}

var build = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	prefix := filepath.Join(root, "build")
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(prefix, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("build: wait for another build: %w", err)
	}
	cmd := exec.Command("make", "-s", "build")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return prefix, nil
})

// BuildTest builds a test program of this module, such as a taken-over worker, into the directory to and returns its
// path. Where DOORWARD_PROGRAMS names a directory of them, built, it is taken from there.
func BuildTest(pkg, to string) (string, error) {
	if built := os.Getenv("DOORWARD_PROGRAMS"); built != "" {
		b, err := os.ReadFile(filepath.Join(built, filepath.Base(pkg)))
		if err != nil {
			return "", err
		}
		out := filepath.Join(to, filepath.Base(pkg))
		return out, os.WriteFile(out, b, 0o755)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(to, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}
