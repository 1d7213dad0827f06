// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// A cell is not armed, so nothing is started in it, when its user is in one of these groups of its own tree, or the
// tree's root group without being root. Within the cell's namespaces they give little; they are what is left of a tree
// that was copied from a machine where they give all, and what somebody counts on whom a later wall fails. Groups that
// only let their members read the tree's own logs (adm, systemd-journal) are no reason.
var forbidden = []string{
	"sudo", "wheel", "admin", // become root
	"docker", "podman", "lxd", "incus", "incus-admin", "libvirt", // start what runs as root
	"disk", "shadow", "kmem", // read and write past every mode
	"doorward", // decide
}

// armed says why nothing is to be started in a cell with that tree. A tree that is not there is nspawn's to report: the
// daemon does not see all folders of this machine.
func (c *config) armed(cell string) error {
	if err := peer.Supported(); err != nil {
		return wire.Refuse(wire.CodeNotConfigured, "cell "+cell+" is not started: "+err.Error(), "doorward doctor")
	}
	tree, err := os.OpenFile(c.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return wire.Refuse(wire.CodeNotConfigured, "cell "+cell+" is not started: its tree cannot be looked at: "+err.Error(),
			"doorward doctor, as root")
	}
	defer tree.Close()
	return c.mayRun(cell, tree)
}

// mayRun holds the cell's user to the groups of a tree.
func (c *config) mayRun(cell string, tree *os.File) error {
	group, err := badGroup(tree, c.User)
	if err != nil {
		return wire.Refuse(wire.CodeNotConfigured, "cell "+cell+" is not started: the groups of its user "+c.User+" are not known: "+
			err.Error(), "mend etc/passwd and etc/group in "+c.Root)
	}
	if group != "" {
		return wire.Refuse(wire.CodeNotAllowed, "cell "+cell+" is not started: its user "+c.User+" is in the group "+group+
			" of its tree", "take it out: chroot "+c.Root+" gpasswd -d "+c.User+" "+group+"; or name another user in /etc/doorward/cells/"+
			cell+".toml")
	}
	return nil
}

// badGroup is a forbidden group that a user of the tree is in, or "". The files are the cell's to write, and say who is
// who in there only; a tree that takes its users from elsewhere (LDAP, systemd-homed) is not seen through.
func badGroup(tree *os.File, name string) (string, error) {
	user, found := account{name: "root"}, name == "root"
	if passwd, err := readIn(tree, "etc/passwd"); err == nil {
		if a, ok := inPasswd(passwd, name); ok {
			user, found = a, true
		} else if strings.Contains("\n"+passwd, "\n"+name+":") { // others may read what is passed over here
			return "", errors.New("its line of etc/passwd is none")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	groups, err := readIn(tree, "etc/group")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	in := []int64{}
	if found {
		in = append(in, user.gid)
		if user.gid == 0 && user.uid != 0 {
			return "root", nil
		}
	}
	bad := map[int64]string{} // by number, since a group may have several names
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) < 3 {
			continue
		}
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		if slices.Contains(forbidden, f[0]) {
			bad[int64(gid)] = f[0]
		}
		if len(f) > 3 && slices.Contains(strings.Split(f[3], ","), name) {
			in = append(in, int64(gid))
			if gid == 0 && user.uid != 0 {
				return "root", nil
			}
		}
	}
	for _, gid := range in {
		if g := bad[gid]; g != "" {
			return g, nil
		}
	}
	return "", nil
}

// readIn reads a regular file of a tree.
func readIn(tree *os.File, path string) (string, error) {
	f, err := openIn(tree, path, unix.O_RDONLY, func(st *unix.Stat_t, _ *unix.Statfs_t) bool {
		return st.Mode&unix.S_IFMT == unix.S_IFREG
	})
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPasswd+1))
	if err == nil && len(b) > maxPasswd { // what is behind it would not be seen
		return "", fmt.Errorf("read %s of the cell: it has more than %d bytes", path, maxPasswd)
	}
	return string(b), err
}

// fromSystemd are the variables that systemd sets for every unit like a cell's, and the machine's language. They are
// let go by; nspawn gets none but passed.
var fromSystemd = []string{"PATH", "LANG", "LANGUAGE", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID",
	"MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "USER", "LOGNAME", "HOME", "SHELL", "LISTEN_PIDFDID", "TRIGGER_UNIT"}

// environment is what nspawn is started with: a fixed list, and the one variable by which it says that the cell is up.
// nspawn does what SYSTEMD_NSPAWN_… and other variables tell it (systemd's docs/ENVIRONMENT.md), and passes descriptors
// of LISTEN_FDS on into the cell, a network's socket among them. So a variable that systemd does not set by itself, from
// a drop-in or the manager's own environment, is a reason to start nothing; foreign names it.
func environment(environ []string) (env []string, foreign string) {
	env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "NOTIFY_SOCKET":
			env = append(env, kv)
		case !slices.Contains(fromSystemd, name) && !strings.HasPrefix(name, "LC_"):
			foreign = name
		}
	}
	return env, foreign
}

// refusedEnv says that a variable keeps a cell from starting. Its value is not said.
func refusedEnv(cell, name string) error {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || len(name) > 64 {
		name = strconv.QuoteToASCII(name[:min(len(name), 64)])
	}
	return wire.Refuse(wire.CodeNotAllowed, "cell "+cell+" is not started: "+name+" is in the environment of its unit",
		"take it away: systemctl cat "+unitName(cell)+" shows drop-ins, systemctl show-environment the manager's; "+
			"or UnsetEnvironment="+name+" in a drop-in")
}
