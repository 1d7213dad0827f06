// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
)

// leader is the first process of a cell, held by descriptors: its number may be another's by the time that it is used.
type leader struct {
	pidfd int
	root  *os.File            // the root of its tree; nothing below is opened but through open
	ns    map[string]*os.File // its namespaces, but for those that are this process's own
	uids  idMap
	gids  idMap
}

// kinds are the namespaces that a run joins, as /proc has them and nsenter's options name them.
var kinds = []struct{ file, option string }{
	{"user", "user"}, {"mnt", "mount"}, {"pid", "pid"}, {"net", "net"}, {"ipc", "ipc"}, {"uts", "uts"}, {"cgroup", "cgroup"},
}

func (l *leader) Close() {
	_ = unix.Close(l.pidfd)
	if l.root != nil {
		_ = l.root.Close()
	}
	for _, f := range l.ns {
		_ = f.Close()
	}
}

// findLeader finds the process that nspawn started as number 1 of the cell. It is found as the child of what is in
// `supervisor`, where the cell cannot put anything; what is in `payload` is the cell's own to arrange.
func findLeader(g group, cell string) (*leader, error) {
	sup, err := g.child("supervisor")
	if err != nil {
		return nil, fmt.Errorf("find the cell's first process: %w", err)
	}
	defer sup.Close()
	pids, err := sup.pids()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			for _, word := range strings.Fields(string(text)) {
				child, err := strconv.Atoi(word)
				if err != nil {
					continue
				}
				l, err := openLeader(child, cell)
				if err == nil {
					return l, nil
				}
				if !errors.Is(err, errNotFirst) {
					return nil, err
				}
			}
		}
	}
	return nil, fmt.Errorf("find the cell's first process: %w", fs.ErrNotExist)
}

var errNotFirst = errors.New("not the first process of a cell")

// openLeader opens what a run needs of the process of that number. Last of all the pidfd is asked whether the process
// has ended: one that has not had its number all the while.
func openLeader(pid int, cell string) (*leader, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, errNotFirst
	}
	l := &leader{pidfd: fd, ns: map[string]*os.File{}}
	err = l.read("/proc/"+strconv.Itoa(pid), cell)
	if err == nil {
		if n, gone := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 || gone != nil {
			err = errors.New("the cell's first process has ended")
		}
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *leader) read(proc, cell string) error {
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return errNotFirst
	}
	if !isFirst(string(status)) {
		return errNotFirst
	}
	text, err := os.ReadFile(proc + "/cgroup")
	if err != nil {
		return err
	}
	var path string
	for line := range strings.Lines(string(text)) { // cgroups(7); a kernel with both versions has more lines
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	if id, err := peer.Parse(path); err != nil || id.Kind != peer.Cell || id.Name != cell || id.Session != "payload" {
		return fmt.Errorf("the first process is in cgroup %.200q, which is not that of cell %s", path, cell)
	}
	for _, k := range kinds {
		f, err := os.Open(proc + "/ns/" + k.file)
		if err != nil {
			return err
		}
		own, err := isOwn(f, k.file)
		if own || err != nil {
			_ = f.Close()
			if err != nil {
				return err
			}
			if k.file == "user" || k.file == "mnt" || k.file == "pid" {
				return fmt.Errorf("cell %s has no %s namespace of its own; it is not entered", cell, k.file)
			}
			continue
		}
		l.ns[k.option] = f
	}
	if l.uids, err = readMap(proc + "/uid_map"); err != nil {
		return err
	}
	if l.gids, err = readMap(proc + "/gid_map"); err != nil {
		return err
	}
	l.root, err = os.OpenFile(proc+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	return err
}

// isFirst says whether a process has number 1 in a pid namespace directly below this one (proc_pid_status(5)). Deeper
// ones are made by the cell.
func isFirst(status string) bool {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(v)
			return len(f) == 2 && f[1] == "1"
		}
	}
	return false
}

func isOwn(f *os.File, kind string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &a); err != nil {
		return false, err
	}
	if err := unix.Stat("/proc/self/ns/"+kind, &b); err != nil {
		return false, err
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// idMap is the text of uid_map or gid_map (user_namespaces(7)), which only the kernel and nspawn write.
type idMap []idRange

type idRange struct{ inside, outside, n int64 }

func readMap(file string) (idMap, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var m idMap
	for line := range strings.Lines(string(b)) {
		var r idRange
		if _, err := fmt.Sscan(line, &r.inside, &r.outside, &r.n); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		m = append(m, r)
	}
	return m, nil
}

// outside is an id of the cell as this machine has it. Root of this machine stands for no user of a cell.
func (m idMap) outside(id int64) (int, error) {
	for _, r := range m {
		if id >= r.inside && id-r.inside < r.n {
			if out := r.outside + id - r.inside; out > 0 {
				return int(out), nil
			}
		}
	}
	return 0, fmt.Errorf("id %d is not one of the cell's own users", id)
}

// has says whether an id of this machine is one of the cell's.
func (m idMap) has(id int64) bool {
	for _, r := range m {
		if id >= r.outside && id-r.outside < r.n {
			return true
		}
	}
	return false
}

// open opens a file of the cell's tree. The cell may have put anything there: a link leads to nowhere outside of its
// tree, and nothing is opened that ok, which sees what it is, does not pass. Opening a device or a pipe can do something.
func (l *leader) open(path string, flags int, ok func(*unix.Stat_t, *unix.Statfs_t) bool) (*os.File, error) {
	return openIn(l.root, path, flags, ok)
}

func openIn(tree *os.File, path string, flags int, ok func(*unix.Stat_t, *unix.Statfs_t) bool) (*os.File, error) {
	fd, err := unix.Openat2(int(tree.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, fmt.Errorf("open %s of the cell: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var on unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &on)); err != nil {
		return nil, fmt.Errorf("open %s of the cell: %w", path, err)
	}
	if !ok(&st, &on) {
		return nil, fmt.Errorf("open %s of the cell: it is not what stands there by right", path)
	}
	if flags == unix.O_PATH {
		return nil, nil
	}
	fd, err = unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s of the cell: %w", path, err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// account is a user of the cell.
type account struct {
	name        string
	uid, gid    int64
	home, shell string
}

const maxPasswd = 1 << 20 // bytes of the cell's passwd(5), and of its group(5)

// user finds a user of the cell in its own passwd(5). That file is the cell's to write, and says who is who in there
// only.
func (l *leader) user(name string) (account, error) {
	a := account{name: "root", home: "/root", shell: "/bin/sh"}
	text, err := readIn(l.root, "etc/passwd")
	if err != nil {
		if name == "root" {
			return a, nil
		}
		return account{}, err
	}
	found, ok := inPasswd(text, name)
	switch {
	case ok:
		return found, nil
	case name == "root":
		return a, nil
	}
	return account{}, fmt.Errorf("the cell has no user %s in its /etc/passwd", name)
}

func inPasswd(text, name string) (account, bool) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 7 || f[0] != name {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil || !isPlace(f[5]) && f[5] != "/" {
			return account{}, false
		}
		if !isPlace(f[6]) {
			f[6] = "/bin/sh"
		}
		return account{name: name, uid: int64(uid), gid: int64(gid), home: f[5], shell: f[6]}, true
	}
	return account{}, false
}

// hasFolder says whether the cell's tree has a folder of that path now which its root may enter: one of the cell's own
// users', or one that is open to all.
func (l *leader) hasFolder(path string) bool {
	_, err := l.open(path, unix.O_PATH, func(st *unix.Stat_t, _ *unix.Statfs_t) bool {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR && (l.uids.has(int64(st.Uid)) || st.Mode&0o005 == 0o005)
	})
	return err == nil
}
