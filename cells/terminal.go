// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// terminal makes a new terminal on the cell's own devpts, for the cell's user. What is open of it outside of the cell is
// the master alone: a terminal of this machine's would let the cell type into it.
func (l *leader) terminal(s *wire.RunStart, uid, gid int) (master, slave *os.File, err error) {
	master, err = l.open("dev/pts/ptmx", unix.O_RDWR, func(st *unix.Stat_t, on *unix.Statfs_t) bool {
		return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(5, 2) && on.Type == unix.DEVPTS_SUPER_MAGIC
	})
	if err != nil {
		return nil, nil, err
	}
	fail := func(what string, err error) (*os.File, *os.File, error) {
		_ = master.Close()
		if slave != nil {
			_ = slave.Close()
		}
		return nil, nil, fmt.Errorf("make a terminal in the cell: %s: %w", what, err)
	}
	m := int(master.Fd())
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock", err)
	}
	fd, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if no != 0 {
		return fail("open its other end", no)
	}
	slave = os.NewFile(fd, "terminal")
	if err := unix.Fchown(int(fd), uid, gid); err != nil {
		return fail("give it to the cell's user", err)
	}
	if s.Rows > 0 && s.Cols > 0 {
		if err := unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols}); err != nil {
			return fail("set its size", err)
		}
	}
	if s.Plain {
		t, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		if err == nil {
			t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ISIG
			t.Oflag &^= unix.OPOST
			t.Iflag &^= unix.ICRNL | unix.IXON
			err = unix.IoctlSetTermios(int(fd), unix.TCSETS, t)
		}
		if err != nil {
			return fail("make it plain", err)
		}
	}
	return master, slave, nil
}
