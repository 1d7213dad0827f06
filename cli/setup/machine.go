// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// Where things are on this machine. Tests of this package have them elsewhere.
type places struct {
	state string // /var/lib/doorward
	own   string // /var/lib/private/doorward, where systemd puts the state of users that it makes anew; state has links into it
	etc   string // /etc/doorward
	creds string // /etc/credstore.encrypted
	hosts string // /etc, of which a cell's tree gets some files
	share string // /usr/share/doorward, the package's own files

	cgroups  string   // /sys/fs/cgroup
	proc     string   // /proc
	runtimes string   // /run/user
	walls    []string // mounts that hold the walls around cells: /run/netns/doorward--canary, /run/doorward/bpf
}

var installed = places{state: "/var/lib/doorward", own: "/var/lib/private/doorward", etc: "/etc/doorward",
	creds: "/etc/credstore.encrypted", hosts: "/etc",
	share:   "/usr/share/doorward",
	cgroups: "/sys/fs/cgroup", proc: "/proc", runtimes: "/run/user",
	walls: []string{"/run/netns/doorward--canary", strings.TrimSuffix(wire.BPFDir, "/")}}

func (p places) journal() string         { return filepath.Join(p.state, "setup.json") }
func (p places) tree(cell string) string { return filepath.Join(p.state, "cells", cell) }
func (p places) cell(cell string) string { return filepath.Join(p.etc, "cells", cell+".toml") }
func (p places) policy() string          { return filepath.Join(p.etc, "policy", "policy.toml") }
func (p places) aside() string           { return filepath.Join(p.state, "setup") } // what root alone is to reach
func (p places) key(name string) string  { return filepath.Join(p.creds, "doorward."+name) }
func (p places) stores() (dirs []string) { return []string{p.state + "/authd", p.state + "/sentinel"} }

// kept is all that daemons keep: their stores, and of each cell's way out its names and its CA.
func (p places) kept() (dirs []string) { return append(p.stores(), p.state+"/egress-cell", p.own) }

// runner runs a program of the system with input on its stdin and returns what it said.
type runner func(ctx context.Context, input []byte, name string, args ...string) (string, error)

// Path is where programs of the system are: the PATH of who calls may lead to programs of theirs, which would run as root.
const Path = "/usr/sbin:/usr/bin:/sbin:/bin"

// runFor bounds one program: mmdebstrap fetches a system.
const runFor = 30 * time.Minute

func run(ctx context.Context, input []byte, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runFor)
	defer cancel()
	file := name
	for _, dir := range strings.Split(Path, ":") {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			file = filepath.Join(dir, name)
			break
		}
	}
	if file == name {
		return "", wire.Refuse(wire.CodeUnavailable, name+" is not installed", "install it, then the same command again")
	}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = []string{"PATH=" + Path, "LANG=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	cmd.Stdin = bytes.NewReader(input)
	b, err := cmd.CombinedOutput()
	if err == nil {
		return string(b), nil
	}
	said := strings.Join(strings.Fields(string(b)), " ")
	if len(said) > 400 {
		said = said[:400]
	}
	what := strings.Join(append([]string{name}, args...), " ")
	return string(b), wire.Refuse(wire.CodeUnavailable, what+": "+err.Error()+": "+said,
		"put it right, then the same command again: it goes on from there")
}

// person is whose agent and accounts it is.
type person struct {
	name     string
	uid, gid int
	home     string
}

func lookUp(name string) (person, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return person{}, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("there is no user %.64q on this machine", name),
			"name the user whose agent it is")
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	home, err3 := filepath.EvalSymlinks(u.HomeDir)
	st, err4 := os.Stat(home)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return person{}, wire.Refuse(wire.CodeBadArgument, "the home of "+name+": "+err.Error(), "make it first")
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != uid || home == "/" || strings.ContainsAny(home, ":\\\n") {
		return person{}, wire.Refuse(wire.CodeBadArgument, "the home of "+name+", "+home+", is not theirs alone",
			"name a person with a home of their own")
	}
	if uid == 0 {
		return person{}, wire.Refuse(wire.CodeBadArgument, "root is no person: what it starts is held by nothing",
			"name the user whose agent it is")
	}
	return person{name, uid, gid, home}, nil
}

func (p person) owner() owner { return owner{p.uid, p.gid} }

// inCell is who the person is in the cell: the same name, and the same home, so that paths in settings stay true.
func (p person) inCell() owner {
	if p.uid >= 1000 && p.uid < 60000 && p.gid >= 100 && p.gid < 60000 {
		return owner{p.uid, p.gid}
	}
	return owner{1000, 1000}
}

// isMember says whether a user is in a group of this machine's.
func isMember(hosts, name, group string) bool {
	f, err := os.Open(filepath.Join(hosts, "group"))
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.Split(lines.Text(), ":")
		if len(part) != 4 || part[0] != group {
			continue
		}
		for _, m := range strings.Split(part[3], ",") {
			if m == name {
				return true
			}
		}
	}
	return false
}

// shift is the id on this machine that the cell's root has: nspawn gives the tree to its users at the first start.
func shift(tree string) (int, error) {
	st, err := os.Lstat(tree)
	if err != nil {
		return 0, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("no owner of " + tree)
	}
	return int(sys.Uid) &^ 0xffff, nil
}
