// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// Files go between the person's home and the cell's tree, where others write: programs of the person's in the one, the agent
// in the other. So both are worked in by open folders and single names in them, and no link is followed, not even one that
// stays within: a path would be walked anew at each step, and lead elsewhere at each. What is written is written in a folder
// that root alone enters, with its owner, and then renamed to where it belongs.

// Bounds of what one copy takes along. An agent that may fill its tree is not to fill the person's disk, or root's day.
const (
	maxDepth   = 256
	maxEntries = 1_000_000
	maxBytes   = 10 << 30 // of data; holes do not count
)

// folder is an open folder. Its methods take one name in it.
type folder struct{ *os.File }

func (d folder) at() int { return int(d.Fd()) }

func (d folder) wrong(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path.Join(d.Name(), name), Err: err}
}

func (d folder) lstat(name string) (st unix.Stat_t, err error) {
	return st, d.wrong("look at", name, unix.Fstatat(d.at(), name, &st, unix.AT_SYMLINK_NOFOLLOW))
}

// has says whether a name is there. Only "it is not there" is a no.
func (d folder) has(name string) (bool, error) {
	_, err := d.lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// open opens a name that is no link, without waiting for whoever is at the other end of a pipe.
func (d folder) open(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(d.at(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, d.wrong("open", name, err)
	}
	return os.NewFile(uintptr(fd), path.Join(d.Name(), name)), nil
}

func (d folder) sub(name string) (folder, error) {
	f, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return folder{f}, err
}

// rename moves a name to one that is not there.
func (d folder) rename(name string, to folder, as string) error {
	err := unix.Renameat2(d.at(), name, to.at(), as, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system that cannot say so at once, as NFS
		there, e := to.has(as)
		if e != nil || there {
			return errors.Join(e, to.wrong("rename", as, unix.EEXIST))
		}
		err = unix.Renameat(d.at(), name, to.at(), as)
	}
	return d.wrong("rename", name, err)
}

func (d folder) removeAll(name string) error {
	in, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", d.at()))
	if err != nil {
		return err
	}
	defer in.Close()
	return in.RemoveAll(name)
}

// regular opens a name that is a regular file.
func (d folder) regular(name string) (*os.File, error) {
	f, err := d.open(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(d.wrong("open", name, errors.New("no regular file")), err, f.Close())
	}
	return f, nil
}

// openRegular opens a path below an open folder that is a regular file.
func openRegular(in *os.Root, p string) (*os.File, error) {
	d, name, err := walk(in, p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.regular(name)
}

// walk opens the folder of a path below an open one, and returns the name in it.
func walk(in *os.Root, p string) (folder, string, error) {
	f, err := in.Open(".")
	if err != nil {
		return folder{}, "", err
	}
	d, names := folder{f}, strings.Split(path.Clean(p), "/")
	for _, name := range names[:len(names)-1] {
		next, err := d.sub(name)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = wire.Refuse(wire.CodeNotAllowed, path.Join(d.Name(), name)+" is a link, or no folder, and is not followed",
				"put a folder in its place")
		}
		_ = d.Close()
		if err != nil {
			return folder{}, "", err
		}
		d = next
	}
	return d, names[len(names)-1], nil
}

// exists says whether a path is there. What cannot be looked at is an error, and not a no.
func exists(in *os.Root, p string) (bool, error) {
	d, name, err := walk(in, p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	return d.has(name)
}

// removeAll removes a path and what is below it, if it is there.
func removeAll(in *os.Root, p string) error {
	d, name, err := walk(in, p)
	if err != nil {
		return gone(err)
	}
	defer d.Close()
	return d.removeAll(name)
}

// copier is one copying. anyone is for only: whose the files are is not looked at.
type copier struct {
	as      owner // whose the copies are
	only    int   // the user whose the files must be
	public  bool  // or whom all users may read
	entries int
	bytes   int64
	skipped []string // what is neither file, folder nor link
}

const anyone = -1

// one copies a name of a folder to one of another, which root alone can reach. Modes lose what would make a program act as
// another user.
func (c *copier) one(from folder, name string, to folder, as string, depth int) error {
	here := path.Join(from.Name(), name)
	if c.entries++; c.entries > maxEntries || depth > maxDepth {
		return tooMuch(here)
	}
	st, err := from.lstat(name)
	if err != nil {
		return err
	}
	if err := c.mayTake(here, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from.at(), name, b)
		if err != nil {
			return from.wrong("read link", name, err)
		}
		return to.wrong("link", as, errors.Join(unix.Symlinkat(string(b[:n]), to.at(), as),
			unix.Fchownat(to.at(), as, c.as.UID, c.as.GID, unix.AT_SYMLINK_NOFOLLOW)))
	case unix.S_IFDIR:
		return c.folder(from, name, to, as, depth)
	case unix.S_IFREG:
		return c.file(from, name, to, as)
	}
	c.skipped = append(c.skipped, here)
	return nil
}

// count looks at what would be copied, and refuses what would not.
func (c *copier) count(d folder, name string, depth int) error {
	here := path.Join(d.Name(), name)
	st, err := d.lstat(name)
	if err != nil {
		return err
	}
	if c.entries++; c.entries > maxEntries || depth > maxDepth {
		return tooMuch(here)
	}
	if c.bytes += st.Blocks * 512; c.bytes > maxBytes {
		return tooMuch(here)
	}
	if err := c.mayTake(here, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	sub, err := d.sub(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.Readdirnames(-1)
	for _, n := range names {
		if err := c.count(sub, n, depth+1); err != nil {
			return err
		}
	}
	return err
}

func tooMuch(where string) error {
	return wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("%s is more than setup copies: %d GiB, %d files, folders %d deep", where,
		maxBytes>>30, maxEntries, maxDepth), "move what is large away from there")
}

// mayTake refuses what is another user's: root would read it for whoever has put it there, and give it to them.
func (c *copier) mayTake(where string, st *unix.Stat_t) error {
	if c.only == anyone || int(st.Uid) == c.only {
		return nil
	}
	if kind := st.Mode & unix.S_IFMT; c.public && (kind == unix.S_IFLNK || kind == unix.S_IFREG && st.Mode&0o4 != 0 ||
		kind == unix.S_IFDIR && st.Mode&0o5 == 0o5) {
		return nil
	}
	return wire.Refuse(wire.CodeNotAllowed, fmt.Sprintf("%s belongs to another user, %d, and is not taken along", where, st.Uid),
		"chown it if it is theirs, or move it away")
}

func (c *copier) folder(from folder, name string, to folder, as string, depth int) error {
	in, err := from.sub(name)
	if err != nil {
		return err
	}
	defer in.Close()
	var st unix.Stat_t
	if err := errors.Join(unix.Fstat(in.at(), &st), c.mayTake(in.Name(), &st)); err != nil {
		return err
	}
	if err := to.wrong("make", as, unix.Mkdirat(to.at(), as, 0o700)); err != nil {
		return err
	}
	out, err := to.sub(as)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		names, err := in.Readdirnames(1000)
		for _, n := range names {
			if err := c.one(in, n, out, n, depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return finish(out.File, &st, c.as)
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) file(from folder, name string, to folder, as string) error {
	in, err := from.regular(name)
	if err != nil {
		return err
	}
	defer in.Close()
	var st unix.Stat_t
	if err := errors.Join(unix.Fstat(int(in.Fd()), &st), c.mayTake(in.Name(), &st)); err != nil {
		return err
	}
	out, err := to.open(as, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := c.data(in, out, st.Size); err != nil {
		return err
	}
	return finish(out, &st, c.as)
}

// data copies what a file has between its holes.
func (c *copier) data(in, out *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole up to its end
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", in.Name(), err)
		}
		end, err := unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("read %s: %w", in.Name(), err)
		}
		if c.bytes += end - begin; c.bytes > maxBytes {
			return tooMuch(in.Name())
		}
		if _, err := out.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, io.NewSectionReader(in, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
	return out.Truncate(size)
}

// finish gives an open copy owner, mode and time of what it is of.
func finish(out *os.File, st *unix.Stat_t, o owner) error {
	times := []unix.Timespec{st.Mtim, st.Mtim}
	return errors.Join(out.Chown(o.UID, o.GID), out.Chmod(fs.FileMode(st.Mode&0o777)),
		unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", out.Fd()), times, 0))
}

// parents makes the folders above a path, as o's.
func parents(in *os.Root, p string, o owner) error {
	var made string
	for _, name := range strings.Split(path.Dir(path.Clean(p)), "/") {
		made = path.Join(made, name)
		if err := makeFolder(in, made, o); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder as o's, if it is not there.
func makeFolder(in *os.Root, p string, o owner) error {
	if p == "." {
		return nil
	}
	d, name, err := walk(in, p)
	if err != nil {
		return err
	}
	defer d.Close()
	err = unix.Mkdirat(d.at(), name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return d.wrong("make", name, err)
	}
	fresh, err := d.own(name)
	if err != nil {
		return err
	}
	defer fresh.Close()
	return errors.Join(fresh.Chown(o.UID, o.GID), fresh.Chmod(0o755))
}

// own opens a folder that this process has made: of its user, whom alone it lets in, with inside in it at most.
func (d folder) own(name string) (folder, error) {
	f, err := d.sub(name)
	if err == nil {
		var st unix.Stat_t
		names, e := f.Readdirnames(2)
		if err = unix.Fstat(f.at(), &st); err == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o777 == 0o700 &&
			(e == io.EOF || slices.Equal(names, []string{inside})) {
			return f, nil
		}
		_ = f.Close()
	}
	return folder{}, wire.Refuse(wire.CodeUnavailable, path.Join(d.Name(), name)+" is there, and setup has not made it",
		"look what it is, and rename it")
}

// syncAll puts all that was written below an open folder on the disk.
func syncAll(in folder) error { return unix.Syncfs(in.at()) }

// Names that a move uses beside the two that it is between, of folders that root alone enters, and what is in these. Whole
// files alone stand at the two: a copy is made in a folder beside and renamed, and what is taken away is renamed first.
const (
	coming = ".doorward-coming"
	going  = ".doorward-going"
	inside = "doorward-copy"
)

// stage is a folder of a move beside a name, if it is there.
type stage struct {
	in   folder
	name string
	f    folder // nil File: it is not there
	full bool   // something is in it
}

func (d folder) stage(name string) (*stage, error) {
	s := &stage{in: d, name: name}
	there, err := d.has(name)
	if err != nil || !there {
		return s, err
	}
	if s.f, err = d.own(name); err != nil {
		return s, err
	}
	s.full, err = s.f.has(inside)
	return s, err
}

// fresh makes it, empty.
func (s *stage) fresh() error {
	if err := s.remove(); err != nil {
		return err
	}
	if err := unix.Mkdirat(s.in.at(), s.name, 0o700); err != nil {
		return s.in.wrong("make", s.name, err)
	}
	var err error
	s.f, err = s.in.own(s.name)
	return err
}

// remove removes it and what is in it.
func (s *stage) remove() error {
	if s.f.File == nil {
		return nil
	}
	if err := s.f.removeAll(inside); err != nil {
		return err
	}
	_ = s.f.Close()
	s.f, s.full = folder{}, false
	return s.in.wrong("remove", s.name, unix.Unlinkat(s.in.at(), s.name, unix.AT_REMOVEDIR))
}

// out renames what is in it to a name beside it, and removes it.
func (s *stage) out(as string) error {
	if err := s.f.rename(inside, s.in, as); err != nil {
		return err
	}
	return s.remove()
}

func (s *stage) close() {
	if s.f.File != nil {
		_ = s.f.Close()
	}
}

// copyAll copies a path to one that is not there. What is there of a copy that was cut is removed. Files of others than only
// are copied where all may read them.
func copyAll(from *os.Root, src string, to *os.Root, dst string, as owner, only int) (skipped []string, err error) {
	m, err := between(from, src, to, dst)
	if err != nil {
		return nil, err
	}
	defer m.close()
	c := copier{as: as, only: only, public: true}
	if err := m.copy(&c); err != nil {
		return c.skipped, err
	}
	return c.skipped, m.coming.out(m.dst)
}

// move is between a name and another, in open folders.
type move struct {
	from, to      folder
	src, dst      string
	going, coming *stage // beside the one, and beside the other
}

func between(from *os.Root, src string, to *os.Root, dst string) (m *move, err error) {
	m = &move{}
	if m.from, m.src, err = walk(from, src); err != nil {
		return nil, err
	}
	if m.to, m.dst, err = walk(to, dst); err != nil {
		_ = m.from.Close()
		return nil, err
	}
	var err1, err2 error
	m.going, err1 = m.from.stage(m.src + going)
	m.coming, err2 = m.to.stage(m.dst + coming)
	if err := errors.Join(err1, err2); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// copy makes the copy beside where it belongs, anew.
func (m *move) copy(c *copier) error {
	err := m.coming.fresh()
	if err == nil {
		err = c.one(m.from, m.src, m.coming.f, inside, 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", path.Join(m.from.Name(), m.src), err), m.coming.remove())
	}
	return nil
}

func (m *move) close() {
	m.going.close()
	m.coming.close()
	_ = m.from.Close()
	_ = m.to.Close()
}

// moveAll moves a path from one root to another, whose folders it makes as parent's. It can be cut anywhere and called
// again. It is done when the one is gone and the other is there, and not before.
func moveAll(from *os.Root, src string, to *os.Root, dst string, parent, as owner, only int) (skipped []string, err error) {
	if err := parents(to, dst, parent); err != nil {
		return nil, err
	}
	m, err := between(from, src, to, dst)
	if err != nil {
		return nil, err
	}
	defer m.close()
	old, err1 := m.from.has(m.src)
	new, err2 := m.to.has(m.dst)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if !m.going.full && !old && new { // done, and cut before that was written down
		return nil, errors.Join(m.coming.remove(), m.going.remove())
	}
	if !m.going.full {
		if skipped, err = m.begin(as, only); err != nil {
			return skipped, err
		}
	}
	if err := m.end(); err != nil {
		return skipped, err
	}
	old, err1 = m.from.has(m.src)
	new, err2 = m.to.has(m.dst)
	if err := errors.Join(err1, err2); err != nil {
		return skipped, err
	}
	if old || !new {
		return skipped, wire.Refuse(wire.CodeUnavailable, path.Join(m.from.Name(), m.src)+" was made anew while it was moved",
			"end what makes it, and rename it")
	}
	return skipped, nil
}

// begin makes the copy, and has the old one give way: were both there, nobody could say which is newer.
func (m *move) begin(as owner, only int) ([]string, error) {
	there, err := m.to.has(m.dst)
	if err != nil {
		return nil, err
	}
	if there {
		return nil, wire.Refuse(wire.CodeUnavailable, "move "+path.Join(m.from.Name(), m.src)+": "+
			path.Join(m.to.Name(), m.dst)+" is there already", "look which is the right one, and rename the other")
	}
	was, err := m.from.lstat(m.src)
	if err != nil {
		return nil, err
	}
	c := copier{as: as, only: only}
	if err := m.copy(&c); err != nil {
		return c.skipped, err
	}
	if err := errors.Join(syncAll(m.to), m.going.fresh()); err != nil {
		return c.skipped, err
	}
	if err := m.from.rename(m.src, m.going.f, inside); err != nil {
		return c.skipped, err
	}
	if is, err := m.going.f.lstat(inside); err != nil || is.Dev != was.Dev || is.Ino != was.Ino {
		return c.skipped, errors.Join(fmt.Errorf("%s was made anew while it was copied", path.Join(m.from.Name(), m.src)), err,
			m.coming.remove(), m.going.out(m.src))
	}
	m.coming.full, m.going.full = true, true
	return c.skipped, nil
}

// end puts the copy in its place and removes the old one.
func (m *move) end() error {
	there, err := m.to.has(m.dst)
	switch {
	case err != nil:
		return err
	case !there && !m.coming.full: // somebody has taken it away: the old one is all there is
		return errors.Join(errors.New("the copy of "+path.Join(m.from.Name(), m.src)+" is gone"), m.going.out(m.src))
	case !there:
		if err := m.coming.out(m.dst); err != nil {
			return err
		}
	}
	if err := syncAll(m.to); err != nil {
		return err
	}
	return errors.Join(m.coming.remove(), m.going.remove())
}

// moveBack takes a move back, however far it came. Something new that stands in the old place is kept beside it, under
// the name that is returned.
func moveBack(from *os.Root, src string, to *os.Root, dst string, me owner) (aside string, err error) {
	if err := parents(from, src, me); err != nil {
		return "", err
	}
	// The folder above dst is gone where nothing was moved yet.
	m, err := between(from, src, to, dst)
	if err != nil {
		return "", gone(err)
	}
	defer m.close()
	old, err1 := m.from.has(m.src)
	moved, err2 := m.to.has(m.dst)
	back, err3 := m.to.stage(m.dst + going) // of a moving back that was cut
	defer back.close()
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	if old && (m.going.full || moved) { // made since
		if aside, err = m.aside(); err != nil {
			return "", err
		}
	}
	if m.going.full && !moved { // the old one is whole
		return aside, errors.Join(m.coming.remove(), m.going.out(m.src))
	}
	if err := errors.Join(m.coming.remove(), m.going.remove()); err != nil {
		return aside, err
	}
	if !moved && !back.full { // never moved, or back already
		return aside, back.remove()
	}
	_, err = moveAll(to, dst, from, src, me, me, anyone)
	return aside, err
}

// aside renames what stands at the old place.
func (m *move) aside() (string, error) {
	for n := 1; ; n++ {
		as := m.src + ".since-doorward"
		if n > 1 {
			as = fmt.Sprintf("%s-%d", as, n)
		}
		if err := m.from.rename(m.src, m.from, as); !errors.Is(err, fs.ErrExist) {
			return as, err
		}
	}
}

// openSecret opens a file that holds a secret, if nobody but root and who runs this may read it. What is checked is what
// was opened. Who reads the descriptor closes it.
func openSecret(path string) (fd int, err error) {
	bad := func(why string) (int, error) {
		return -1, wire.Refuse(wire.CodeBadCredential, "read the secret of "+path+": "+why,
			"chown root "+path+"; chmod 600 "+path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bad(err.Error())
	}
	st, err := f.Stat()
	if err == nil {
		sys, ok := st.Sys().(*syscall.Stat_t)
		switch {
		case !st.Mode().IsRegular():
			err = errors.New("no regular file")
		case st.Mode().Perm()&0o077 != 0:
			err = fmt.Errorf("its mode %04o lets others read it", st.Mode().Perm())
		case !ok || sys.Uid != 0 && int(sys.Uid) != os.Getuid():
			err = errors.New("it belongs to another user")
		}
	}
	if err == nil {
		fd, err = syscall.Dup(int(f.Fd()))
	}
	_ = f.Close()
	if err != nil {
		return bad(err.Error())
	}
	syscall.CloseOnExec(fd)
	return fd, nil
}
