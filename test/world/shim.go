// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/doorward/doorward/cells/trust"
	"golang.org/x/sys/unix"
)

// shim is this program in the place of what systemd and nspawn do between fork and exec. It returns where the program
// was started as itself.
func shim() {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "world-") {
		return
	}
	var s spec
	err := json.Unmarshal([]byte(os.Getenv(specEnv)), &s)
	if err == nil {
		_ = os.Unsetenv(specEnv)
		switch os.Args[1] {
		case "world-daemon":
			err = daemonShim(s)
		case "world-supervisor":
			err = supervisor(s)
		case "world-spawner":
			err = spawner(s)
		default:
			err = errNoShim
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(125)
	}
	os.Exit(0)
}

// daemonShim is started as root in a mount namespace of its own; it becomes the daemon.
func daemonShim(s spec) error {
	if s.Hosts != "" {
		if err := unix.Mount(s.Hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the hosts: %w", err)
		}
	}
	if err := onlyBinds(s.Binds, s.Binds); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(s.Groups), syscall.Setresgid(s.UID, s.UID, s.UID),
		syscall.Setresuid(s.UID, s.UID, s.UID)); err != nil {
		return fmt.Errorf("become uid %d: %w", s.UID, err)
	}
	env := append(s.Env, "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	err := syscall.Exec(s.Binary, append([]string{s.Binary}, s.Args...), env)
	return fmt.Errorf("execute %s: %w", s.Binary, err)
}

// onlyBinds puts an empty /run over the old one, with the directories from bound to the places to.
func onlyBinds(from, to []string) error {
	fds := make([]int, len(from))
	for i, dir := range from {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount an empty /run: %w", err)
	}
	for i, dir := range to {
		if err := os.MkdirAll(filepath.Clean(dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fds[i]), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	return nil
}

// spec is what a shim reads from its environment.
type spec struct {
	Binary string   `json:",omitempty"`
	Args   []string `json:",omitempty"`
	Env    []string `json:",omitempty"`
	UID    int      `json:",omitempty"`
	Groups []int    `json:",omitempty"`
	Binds  []string `json:",omitempty"` // directories below /run that stay
	Base   int      `json:",omitempty"` // first host uid of a cell's users
	Cgroup string   `json:",omitempty"`
	Netns  string   `json:",omitempty"` // of a cell that has one of its own, by name
	Resolv string   `json:",omitempty"` // such a cell's resolv.conf
	// Trust is what it sees read-only besides: its roots.
	Trust []trust.Bind `json:",omitempty"`
	Hosts string       `json:",omitempty"` // a daemon's /etc/hosts, where it is not the machine's
}

const specEnv = "DOORWARD_WORLD_SPEC"

func (s spec) env() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return specEnv + "=" + string(b)
}
