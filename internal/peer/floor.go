// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Floor is the oldest kernel that is supported.
const Floor = "6.8"

// Supported says whether this kernel is one on which callers can be proved: not older than Floor, and with
// SO_PEERPIDFD, which is tried. Errors wrap ErrUnsupported.
func Supported() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("ask the kernel for its version: %w: %w", err, ErrUnsupported)
	}
	if release := unix.ByteSliceToString(u.Release[:]); !AtLeast(release, Floor) {
		return fmt.Errorf("kernel %s is below %s: %w", release, Floor, ErrUnsupported)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a pair of sockets: %w: %w", err, ErrUnsupported)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	fd, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return fmt.Errorf("no SO_PEERPIDFD: %w: %w", err, ErrUnsupported)
	}
	return unix.Close(fd)
}

// AtLeast says whether a version begins with numbers that are not below those of floor.
func AtLeast(version, floor string) bool {
	for floor != "" {
		var want, have string
		want, floor, _ = strings.Cut(floor, ".")
		have, version, _ = strings.Cut(version, ".")
		if i := strings.IndexFunc(have, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			have = have[:i]
		}
		w, errW := strconv.Atoi(want)
		h, errH := strconv.Atoi(have)
		if errW != nil || errH != nil || h < w {
			return false
		}
		if h > w {
			return true
		}
	}
	return true
}
