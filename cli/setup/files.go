// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files go between the person's home and the cell's tree through os.Root at both ends. Root does this in folders that
// others may write: a program of the person's in the one, the agent itself in the other. A link put into the way of it
// leads to nowhere outside of the folder that was opened.

// copyAll copies a file or folder. Owners are what own says of a path below it; what is neither file, folder nor link is
// left out, and named in skipped. Modes lose what would make a program act as another user.
func copyAll(from *os.Root, src string, to *os.Root, dst string, own func(rel string) owner) (skipped []string, err error) {
	var copyOne func(rel string) error
	copyOne = func(rel string) error {
		s, d := path.Join(src, rel), path.Join(dst, rel)
		st, err := from.Lstat(s)
		if err != nil {
			return err
		}
		o := own(rel)
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := from.Readlink(s)
			if err != nil {
				return err
			}
			return errors.Join(to.Symlink(target, d), to.Lchown(d, o.UID, o.GID))
		case st.IsDir():
			if err := to.Mkdir(d, 0o700); err != nil {
				return err
			}
			names, err := list(from, s)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := copyOne(path.Join(rel, name)); err != nil {
					return err
				}
			}
		case st.Mode().IsRegular():
			if err := copyFile(from, s, to, d); err != nil {
				return err
			}
		default:
			skipped = append(skipped, s)
			return nil
		}
		return errors.Join(to.Lchown(d, o.UID, o.GID), to.Chmod(d, st.Mode().Perm()),
			to.Chtimes(d, st.ModTime(), st.ModTime()))
	}
	if err := copyOne("."); err != nil {
		return skipped, fmt.Errorf("copy %s: %w", path.Join(from.Name(), src), err)
	}
	return skipped, nil
}

func copyFile(from *os.Root, src string, to *os.Root, dst string) error {
	in, err := from.OpenFile(src, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// owners are the owners of a file and of what is below it, by the path from it, that are not o.
func owners(in *os.Root, src string, o owner) (map[string]owner, error) {
	all := map[string]owner{}
	var look func(rel string) error
	look = func(rel string) error {
		p := path.Join(src, rel)
		st, err := in.Lstat(p)
		if err != nil {
			return err
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && (int(sys.Uid) != o.UID || int(sys.Gid) != o.GID) {
			all[rel] = owner{int(sys.Uid), int(sys.Gid)}
		}
		if !st.IsDir() {
			return nil
		}
		names, err := list(in, p)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := look(path.Join(rel, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return all, look(".")
}

func list(in *os.Root, p string) ([]string, error) {
	d, err := in.Open(p)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// parents makes the folders above a path, as o's.
func parents(in *os.Root, p string, o owner) error {
	dir := path.Dir(p)
	if dir == "." {
		return nil
	}
	if _, err := in.Lstat(dir); err == nil {
		return nil
	}
	if err := parents(in, dir, o); err != nil {
		return err
	}
	return errors.Join(in.Mkdir(dir, 0o755), in.Lchown(dir, o.UID, o.GID))
}

func exists(in *os.Root, p string) bool {
	_, err := in.Lstat(p)
	return err == nil
}

// syncAll puts all that was written below an open folder on the disk.
func syncAll(in *os.Root) error {
	d, err := in.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// Names that a move uses beside the two that it is between. Whole files alone stand at those two: a copy is made beside
// and then renamed, and what is taken away is renamed first.
const (
	coming = ".doorward-coming"
	going  = ".doorward-going"
)

// moveAll moves a file or folder from one root to another. It can be cut anywhere and called again.
func moveAll(from *os.Root, src string, to *os.Root, dst string, parent owner, own func(rel string) owner) (skipped []string,
	err error) {
	if exists(from, src) && !exists(from, src+going) {
		if exists(to, dst) {
			return nil, fmt.Errorf("move %s: %s is there already", path.Join(from.Name(), src), path.Join(to.Name(), dst))
		}
		if err := errors.Join(to.RemoveAll(dst+coming), parents(to, dst, parent)); err != nil {
			return nil, err
		}
		if skipped, err = copyAll(from, src, to, dst+coming, own); err != nil {
			return nil, err
		}
		if err := syncAll(to); err != nil {
			return nil, err
		}
		// From here on the copy is whole. The old one gives way first: were both there, nobody could say which is newer.
		if err := from.Rename(src, src+going); err != nil {
			return nil, err
		}
	}
	if exists(from, src+going) {
		if exists(to, dst+coming) {
			if err := to.Rename(dst+coming, dst); err != nil {
				return skipped, err
			}
		}
		if err := syncAll(to); err != nil {
			return skipped, err
		}
		return skipped, from.RemoveAll(src + going)
	}
	return skipped, nil
}

// moveBack takes a move back, however far it came. Something new that stands in the old place is kept beside it, under
// the name that is returned.
func moveBack(from *os.Root, src string, to *os.Root, dst string, parent owner, own func(rel string) owner) (aside string,
	err error) {
	if exists(from, src) && (exists(from, src+going) || exists(to, dst)) { // made since
		aside = src + ".since-doorward"
		for n := 2; exists(from, aside); n++ {
			aside = fmt.Sprintf("%s.since-doorward-%d", src, n)
		}
		if err := from.Rename(src, aside); err != nil {
			return "", err
		}
	}
	switch {
	case exists(from, src+going) && exists(to, dst): // the new one is whole, the old one perhaps no more
		if err := from.RemoveAll(src + going); err != nil {
			return aside, err
		}
	case exists(from, src+going): // the old one is whole
		if err := to.RemoveAll(dst + coming); err != nil {
			return aside, err
		}
		return aside, from.Rename(src+going, src)
	}
	if err := to.RemoveAll(dst + coming); err != nil {
		return "", err
	}
	if !exists(to, dst) && !exists(to, dst+going) { // never moved, or back already
		return "", nil
	}
	_, err = moveAll(to, dst, from, src, parent, own)
	return aside, err
}
