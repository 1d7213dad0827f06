// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkDir refuses a folder that somebody else could write, or one whose files are not ours: a record that the agent
// can write is none.
func checkDir(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := ours(dir, st); err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%w: %s is not a folder", ErrUnsafe, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // a folder beside us, such as the spool, changes
		}
		if err != nil {
			return err
		}
		if err := ours(filepath.Join(dir, e.Name()), st); err != nil {
			return err
		}
	}
	return nil
}

// private makes an empty file for this user only, if there is none. SQLite gives its -wal and -shm files the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func ours(path string, st fs.FileInfo) error {
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok || int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to another user; it must be this one's", ErrUnsafe, path)
	case st.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %s is a symbolic link; put the folder itself there", ErrUnsafe, path)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: %s can be written by others (mode %04o); chmod go-w it", ErrUnsafe, path, st.Mode().Perm())
	}
	return nil
}

// takeLock takes the lock that makes this the only instance. The file says who holds it.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
	case errors.Is(err, unix.EWOULDBLOCK):
		buf := make([]byte, 32)
		n, _ := f.ReadAt(buf, 0)
		f.Close()
		pid, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
		return nil, fmt.Errorf("%w: %s; stop it first, two may not run", ErrBusy, culprit(pid))
	default:
		f.Close()
		return nil, fmt.Errorf("%w: this file system has no locks (%w); move the folder to a local one", ErrUnsafe, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	// A full disk must not keep the lock from being taken: the pid is a help, the lock is the lock.
	return f, nil
}

// culprit names a process.
func culprit(pid int) string {
	if pid <= 0 {
		return "held by a process that did not leave its number"
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("held by process %d", pid)
	}
	state := ""
	if st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		if i := strings.LastIndexByte(string(st), ')'); i >= 0 && i+2 < len(st) && st[i+2] == 'T' {
			state = ", which is stopped"
		}
	}
	return fmt.Sprintf("held by process %d (%s)%s", pid, strings.TrimSpace(string(comm)), state)
}

// mark is the file that tells the next start how this one ended. While the ledger is open it says "open": then a -wal
// file that is missing was deleted, and what it held is lost.
type mark struct {
	exists bool
	clean  bool
	size   int64  // entries at the end, if clean
	root   string // the tree's hash then, base64
}

func (l *Ledger) readMark() (mark, error) {
	b, err := os.ReadFile(filepath.Join(l.dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	f := strings.Fields(string(b))
	if len(f) == 1 && f[0] == "open" {
		return mark{exists: true}, nil
	}
	if len(f) == 3 && f[0] == "closed" {
		if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			return mark{exists: true, clean: true, size: n, root: f[2]}, nil
		}
	}
	return mark{}, fmt.Errorf("%w: the file %s cannot be read", ErrCorrupt, markName)
}

func (l *Ledger) writeMark(m mark) error {
	text := "open\n"
	if m.clean {
		text = fmt.Sprintf("closed %d %s\n", m.size, m.root)
	}
	path := filepath.Join(l.dir, markName)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(l.dir)
}

// missing compares the files that are there with what the mark says.
func (l *Ledger) missing(m mark) (suspect string, err error) {
	if !m.exists {
		return "", nil
	}
	_, err = os.Lstat(filepath.Join(l.dir, dbName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s is not there but was; restore a copy, or delete %s too to begin a new record "+
			"knowingly", ErrGone, dbName, markName)
	}
	if err != nil || m.clean {
		return "", err
	}
	_, err = os.Lstat(filepath.Join(l.dir, walName))
	if errors.Is(err, fs.ErrNotExist) {
		return walName + " was deleted after a crash, and with it what it held", nil
	}
	return "", err
}

// disagrees says how a cleanly closed ledger differs from how it was closed.
func (m mark) disagrees(h *frontier) string {
	if !m.exists || !m.clean || (m.size == h.size && m.root == h.root().String()) {
		return ""
	}
	return fmt.Sprintf("it was closed with %d entries and holds %d others now", m.size, h.size)
}

// openFiles are the identities of the files that SQLite has open.
type openFiles struct{ db, wal fileID }

type fileID struct{ dev, ino uint64 }

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// look finds the files as they are now.
func (l *Ledger) look() (openFiles, error) {
	db, err := identify(filepath.Join(l.dir, dbName))
	if err != nil {
		return openFiles{}, err
	}
	wal, err := identify(filepath.Join(l.dir, walName))
	return openFiles{db, wal}, err
}

// keepWAL gives the -wal file of a busy ledger its size at once where there is room: to write within a file costs
// half of what it costs to make it longer, because its length need not be made durable too. SQLite takes zeros for no
// frames. Only the writer calls it, between two commits.
func (l *Ledger) keepWAL() {
	if l.free() < 64*walKept {
		return
	}
	f, err := os.OpenFile(filepath.Join(l.dir, walName), os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // it is made longer as it grows
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() >= walKept {
		return
	}
	zeros := make([]byte, 64<<10) // by and by: the memory would stay with the process for long
	for at := st.Size(); at < walKept && err == nil; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), walKept-at)], at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		l.log.Warn("the ledger's -wal file could not be made longer", "err", err)
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// keepReserve makes the file that is given up for the alarm when the disk is full.
func (l *Ledger) keepReserve() error {
	path := filepath.Join(l.dir, reserveName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, l.reserve)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, l.reserve))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // give back what it took
		return fmt.Errorf("keep %d bytes back for the alarm: %w", l.reserve, err)
	}
	return nil
}

// giveReserve frees the space; false if it was given up already.
func (l *Ledger) giveReserve() bool { return os.Remove(filepath.Join(l.dir, reserveName)) == nil }
