// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	lockName       = "lock"
	headerName     = "header.json"
	checkName      = "check"
	indexName      = "index"
	checkpointName = "checkpoint"
	mintedName     = "minted"
	accountsName   = "accounts"
	newSuffix      = ".new"
)

// folder is the store's directory. Everything in it is reached through the directory's descriptor, so a link put into
// it leads nowhere else.
type folder struct {
	path string
	root *os.Root
	lock *os.File
}

// openFolder makes the directory where it is missing, locks it, and clears what a crash left in it.
func openFolder(dir string) (*folder, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	f := &folder{path: dir, root: root}
	if err := f.prepare(); err != nil {
		f.close()
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return f, nil
}

func (f *folder) prepare() error {
	info, err := f.root.Stat(".")
	if err != nil {
		return err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("its mode is %#o, others could read or fill it: make it 0700", perm)
	}
	if f.lock, err = f.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return ErrInUse
	}
	if err := f.root.Mkdir(accountsName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := f.clean("."); err != nil {
		return err
	}
	if err := f.clean(accountsName); err != nil {
		return err
	}
	return f.sync(".")
}

// clean deletes what a crash left half written, and refuses names that authd does not write.
func (f *folder) clean(dir string) error {
	names, err := f.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base, unfinished := strings.CutSuffix(name, newSuffix)
		known := isHex(base)
		if dir == "." {
			switch base {
			case lockName, headerName, checkName, indexName, checkpointName, mintedName, accountsName:
				known = true
			default:
				known = false
			}
		}
		if !known {
			return fmt.Errorf("%w: %q in it is not of authd's making: move it away", ErrCorrupt, name)
		}
		if unfinished {
			if err := f.root.Remove(dir + "/" + name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *folder) names(dir string) ([]string, error) {
	d, err := f.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// read returns a file whole; fs.ErrNotExist where there is none.
func (f *folder) read(name string) ([]byte, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return nil, fmt.Errorf("%w: %s is no regular file of at most %d bytes", ErrCorrupt, name, maxRecord)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > maxRecord {
		return nil, fmt.Errorf("%w: %s grew while it was read", ErrCorrupt, name)
	}
	return b, nil
}

// write puts b durably in the place of name: whoever reads, also after a crash, finds the old bytes or the new.
func (f *folder) write(name string, b []byte) error {
	if len(b) > maxRecord {
		return fmt.Errorf("write %s: %d bytes, at most %d", name, len(b), maxRecord)
	}
	fresh := name + newSuffix
	err := f.writeFresh(fresh, b)
	if err == nil {
		err = f.root.Rename(fresh, name)
	}
	if err != nil {
		_ = f.root.Remove(fresh) // else the next start does
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.syncOf(name)
}

func (f *folder) writeFresh(name string, b []byte) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// remove deletes a file durably.
func (f *folder) remove(name string) error {
	if err := f.root.Remove(name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return f.syncOf(name)
}

func (f *folder) syncOf(name string) error {
	if dir, _, under := strings.Cut(name, "/"); under {
		return f.sync(dir)
	}
	return f.sync(".")
}

// sync makes the names in a directory durable.
func (f *folder) sync(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return fmt.Errorf("make store durable: %w", err)
	}
	err = errors.Join(d.Sync(), d.Close())
	if err != nil {
		return fmt.Errorf("make store durable: %w", err)
	}
	return nil
}

func (f *folder) close() {
	if f.lock != nil {
		_ = f.lock.Close() // and with it the lock
	}
	_ = f.root.Close()
}
