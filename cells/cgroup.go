// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
)

const slice = "/doorward.slice/doorward-cells.slice"

func unitName(cell string) string { return "doorward-cell@" + cell + ".service" }
func unitPath(cell string) string { return slice + "/" + unitName(cell) }

// group is the directory of a cgroup outside of what is delegated to a cell: only root and the kernel write in it.
type group struct{ dir *os.File }

func (g group) Close() { _ = g.dir.Close() }

// open opens the cgroup of a cell's unit; fs.ErrNotExist where the cell does not run.
func open(k *peer.Kernel, cell string) (group, error) {
	dir, err := k.Cgroup(unitPath(cell))
	return group{dir}, err
}

// running are the cells whose unit has a cgroup, sorted.
func running(k *peer.Kernel) ([]string, error) {
	dir, err := k.Cgroup(slice)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var out []string
	below, err := dir.ReadDir(-1)
	for _, d := range below {
		name := strings.TrimSuffix(strings.TrimPrefix(d.Name(), "doorward-cell@"), ".service")
		if d.IsDir() && d.Name() == unitName(name) && isCell(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, err
}

// sessions are the sessions below a cell's unit, sorted: `payload` and runs.
func (g group) sessions(cell string) ([]string, error) {
	if _, err := g.dir.Seek(0, 0); err != nil {
		return nil, err
	}
	below, err := g.dir.ReadDir(-1)
	var out []string
	for _, d := range below {
		if id, bad := peer.Parse(unitPath(cell) + "/" + d.Name()); d.IsDir() && bad == nil && id.Session == d.Name() {
			out = append(out, d.Name())
		}
	}
	slices.Sort(out)
	return out, err
}

// child opens a cgroup directly below.
func (g group) child(name string) (group, error) {
	fd, err := unix.Openat(int(g.dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return group{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return group{os.NewFile(uintptr(fd), name)}, nil
}

// id is the cgroup's id, by which sentinel tells starts apart.
func (g group) id() (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(g.dir.Fd()), &st)
	return st.Ino, err
}

func (g group) read(file string) (string, error) {
	fd, err := unix.Openat(int(g.dir.Fd()), file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", nil // it is empty
	}
	return string(b[:n]), nil
}

func (g group) write(file, value string) error {
	fd, err := unix.Openat(int(g.dir.Fd()), file, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// event is one line of cgroup.events, as `populated 0`.
func (g group) event(line string) (bool, error) {
	text, err := g.read("cgroup.events")
	return slices.Contains(strings.Split(text, "\n"), line), err
}

// until waits for a line of cgroup.events.
func (g group) until(ctx context.Context, line string) error {
	for {
		if there, err := g.event(line); there || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %q: %w", line, ctx.Err())
		}
	}
}

// Who froze a cell stands at its cgroup, in attributes that only root sets: it outlives this daemon and ends with the
// cell. A cell goes on when nobody is left who froze it.
const (
	byPerson = "person"
	byStop   = "stop"
	byCanary = "canary" // package cellnet: the walls did not hold, and only another start lets the cell go
)

func mark(by string) string { return "trusted.doorward." + by }

// frozenBy are those who froze the cell.
func (g group) frozenBy() []string {
	var out []string
	for _, by := range []string{byPerson, byStop, byCanary} {
		if n, err := unix.Fgetxattr(int(g.dir.Fd()), mark(by), nil); err == nil && n >= 0 {
			out = append(out, by)
		}
	}
	return out
}

// freeze returns when no process of the cell moves any more.
func (g group) freeze(ctx context.Context, by string) error {
	// Without the mark it could be thawed by another, which is no reason to let it run.
	marked := unix.Fsetxattr(int(g.dir.Fd()), mark(by), []byte("1"), 0)
	if err := g.write("cgroup.freeze", "1"); err != nil {
		return err
	}
	if err := g.until(ctx, "frozen 1"); err != nil {
		return err
	}
	if marked != nil {
		return fmt.Errorf("it is frozen, but who froze it is not kept: %w", marked)
	}
	return nil
}

func (g group) thaw(by string) error {
	if err := unix.Fremovexattr(int(g.dir.Fd()), mark(by)); err != nil && !errors.Is(err, unix.ENODATA) {
		return err
	}
	if len(g.frozenBy()) > 0 {
		return nil
	}
	return g.write("cgroup.freeze", "0")
}

// end kills everything in the cgroup and waits until nothing is left.
func (g group) end(ctx context.Context) error {
	if err := g.write("cgroup.kill", "1"); err != nil {
		return err
	}
	return g.until(ctx, "populated 0")
}

// remove removes an empty cgroup directly below.
func (g group) remove(name string) error {
	return unix.Unlinkat(int(g.dir.Fd()), name, unix.AT_REMOVEDIR)
}

// pids are the processes directly in the cgroup.
func (g group) pids() ([]int, error) {
	text, err := g.read("cgroup.procs")
	var out []int
	for _, line := range strings.Fields(text) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, err
}
