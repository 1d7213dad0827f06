// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/doorward/doorward/internal/wire"
)

// Sockets holds every socket to the table: that it is up, its owner, its group, its mode. As root it also looks for what
// is there and not in the table.
func (m *Machine) Sockets() []Finding {
	const check = "socket"
	if m.err != nil {
		return []Finding{Not(check, "sockets: %s", Detail(words(m.err)))}
	}
	if m.idle() {
		return []Finding{Not(check, "sockets: nothing is started")}
	}
	var out []Finding
	known := map[string]bool{}
	for _, s := range m.sockets() {
		known[s.path] = true
		if s.vendor != "" && !m.used(s.vendor) || s.to == "approvals" && !m.page {
			continue
		}
		out = append(append(out, m.changed(s.unit)...), m.socket(s)) // a drop-in may have it listen elsewhere too
	}
	if m.page {
		for _, unit := range pagePorts {
			out = append(out, m.port(unit))
		}
	}
	if os.Geteuid() != 0 {
		return append(out, rootOnly("socket.others", "only root sees all of %s", wire.RunDir))
	}
	return append(out, others(known)...)
}

// port says where browsers come. That a drop-in says so is as it is meant.
func (m *Machine) port(unit string) Finding {
	const check = "socket.page"
	u := m.units[unit]
	if !u.active() {
		return Bad(check, "systemctl start "+unit, "%s is %s", unit, state(u))
	}
	at, _, _ := strings.Cut(u["Listen"], " (")
	return Ok(check, "%s listens on %s", unit, Detail(at))
}

func (m *Machine) socket(s socket) Finding {
	const check = "socket"
	if u := m.units[s.unit]; !u.active() {
		return Bad(check, "systemctl start "+s.unit, "%s is %s", s.unit, state(u))
	}
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return rootOnly(check, "%s: only root may look at %s", s.unit, s.path)
	case err != nil:
		return Bad(check, "systemctl restart "+s.unit, "%s listens, and %s is not there (%v)", s.unit, s.path, err)
	}
	st := info.Sys().(*syscall.Stat_t)
	g, err := user.LookupGroup(s.group)
	if err != nil {
		return Bad(check, "systemd-sysusers doorward.conf", "there is no group %s", s.group)
	}
	gid, _ := strconv.ParseUint(g.Gid, 10, 32)
	mode := uint32(info.Mode().Perm())
	if info.Mode().Type() != fs.ModeSocket || st.Uid != 0 || uint64(st.Gid) != gid || mode != s.mode {
		return Bad(check, "systemctl restart "+s.unit, "%s is %04o, of user %d and group %d, and has to be a socket, %04o root:%s (%d)",
			s.path, int64(mode), int64(st.Uid), int64(st.Gid), int64(s.mode), s.group, int64(gid))
	}
	return Ok(check, "%s is %04o root:%s", s.path, int64(mode), s.group)
}

// others looks for what is below the directory of sockets and not in the table, and for directories that another than
// root may write to.
func others(known map[string]bool) []Finding {
	const check, next = "socket.others", "systemd-tmpfiles --create doorward.conf; whoever put it there is root"
	var out []Finding
	n := 0
	err := filepath.WalkDir(wire.RunDir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone
		}
		n++
		if path+"/" == wire.BPFDir { // a file system of the kernel's own, in which no socket can be
			return fs.SkipDir
		}
		st := info.Sys().(*syscall.Stat_t)
		switch {
		case d.IsDir() && (st.Uid != 0 || st.Gid != 0 || info.Mode().Perm()&0o022 != 0):
			out = append(out, Bad(check, next, "%s is %04o, of user %d and group %d: another than root may put a socket there",
				Detail(path), int64(info.Mode().Perm()), int64(st.Uid), int64(st.Gid)))
		case strings.HasPrefix(path, wire.CADir) && info.Mode().IsRegular(): // what a cell trusts
		case !info.IsDir() && !known[path]:
			out = append(out, Bad(check, next, "%s is there, and not in the table of who may talk to whom", Detail(path)))
		}
		return nil
	})
	if info, bad := os.Lstat(wire.RunDir + "private"); bad == nil && info.Mode().Perm() != 0o700 {
		out = append(out, Bad(check, next, "%sprivate is %04o: it keeps this machine's users from the cells' sockets with 0700",
			wire.RunDir, int64(info.Mode().Perm())))
	}
	if err != nil {
		return append(out, Not(check, "%s: %v", wire.RunDir, err))
	}
	if len(out) == 0 {
		out = append(out, Ok(check, "%s has nothing else in it", wire.RunDir))
	}
	return out
}
