// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"strconv"
	"strings"
)

const cellsSlice = "/doorward.slice/doorward-cells.slice/"

// maxPath bounds a cgroup path in bytes; the kernel's own bound is PATH_MAX.
const maxPath = 4095

// Parse reads who a cgroup path names. The path is absolute, relative to the root of the reader's cgroup namespace, as
// in /proc/<pid>/cgroup. The forms, each at this depth and no other:
//
//	/doorward.slice/doorward-<daemon>.service
//	/doorward.slice/doorward-workers.slice/doorward-worker@<vendor>.service
//	/doorward.slice/doorward-cells.slice/doorward-cell@<cell>.service/<session>[/...]
//	/user.slice/user-<uid>.slice/<anything>[/...]
//
// <daemon>, <vendor> and <cell> are [a-z0-9]{1,32}, compared whole: slices nest at `-`, so a prefix proves nothing.
// <session> is `payload` or `run-` and [a-z0-9]{1,32}. What a cell or a person may name itself, below its own unit or
// slice, is not looked at, except that nothing may look like another place: no empty, `.` or `..` component, no control
// character, no cgroup that was removed. It returns the zero Identity with every error. Admin and Start are never set
// here.
func Parse(path string) (Identity, error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok || len(path) > maxPath {
		return Identity{}, refuse(path)
	}
	if strings.HasSuffix(path, " (deleted)") {
		return Identity{}, refuse(path)
	}
	for i := 0; i < len(rest); i++ {
		if rest[i] < ' ' || rest[i] == 0x7f {
			return Identity{}, refuse(path)
		}
	}
	// The first five components decide; the walk below only looks for forgeries.
	var part [5]string
	n := 0
	for more := true; more; n++ {
		var c string
		c, rest, more = strings.Cut(rest, "/")
		if c == "" || c == "." || c == ".." {
			return Identity{}, refuse(path)
		}
		if n < len(part) {
			part[n] = c
		}
	}
	id, ok := identity(part, n)
	if !ok {
		return Identity{}, refuse(path)
	}
	return id, nil
}

// identity reads the first components of a path of n.
func identity(part [5]string, n int) (Identity, bool) {
	switch {
	case n == 2 && part[0] == "doorward.slice":
		name, ok := within(part[1], "doorward-", ".service")
		if cell, egress := strings.CutPrefix(name, "egress@"); egress { // the one daemon that there is for each cell
			return Identity{Kind: Unit, Unit: part[1], Name: "egress", Of: cell}, ok && isName(cell)
		}
		return Identity{Kind: Unit, Unit: part[1], Name: name}, ok && isName(name)
	case n == 3 && part[0] == "doorward.slice" && part[1] == "doorward-workers.slice":
		name, ok := within(part[2], "doorward-worker@", ".service")
		return Identity{Kind: Unit, Unit: part[2], Name: name, Worker: true}, ok && isName(name)
	case n >= 4 && part[0] == "doorward.slice" && part[1] == "doorward-cells.slice":
		name, ok := within(part[2], "doorward-cell@", ".service")
		id := Identity{Kind: Cell, Unit: part[2], Name: name, Session: part[3]}
		return id, ok && isName(name) && isSession(part[3])
	case n >= 3 && part[0] == "user.slice":
		uid, ok := userSlice(part[1])
		return Identity{Kind: Person, UID: uid}, ok
	}
	return Identity{}, false
}

func within(s, before, after string) (string, bool) {
	s, ok := strings.CutPrefix(s, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(s, after)
}

// isName holds s to [a-z0-9]{1,32}.
func isName(s string) bool {
	if len(s) < 1 || len(s) > 32 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

func isSession(s string) bool {
	if s == "payload" {
		return true
	}
	id, ok := strings.CutPrefix(s, "run-")
	return ok && isName(id)
}

// userSlice reads `user-<uid>.slice`. The uid is written as the kernel and systemd write it: decimal, no leading zero,
// and neither of the two values that stand for no user (65534, 4294967295).
func userSlice(s string) (uint32, bool) {
	digits, ok := within(s, "user-", ".slice")
	if !ok {
		return 0, false
	}
	uid, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || utoa(uint32(uid)) != digits || uid == overflowUID || uid == 1<<32-1 {
		return 0, false
	}
	return uint32(uid), true
}

func utoa(u uint32) string { return strconv.FormatUint(uint64(u), 10) }

// refuse quotes at most a line of the path: below its own unit a caller chooses it.
func refuse(path string) error {
	if len(path) > 200 {
		path = path[:200] + "…"
	}
	return fmt.Errorf("read cgroup path %q: %w", path, ErrUnknown)
}

// unified finds the cgroup2 line in the text of /proc/<pid>/cgroup (cgroups(7)). There must be exactly one.
func unified(text string) (string, error) {
	path, found := "", false
	for len(text) > 0 {
		line, rest, whole := strings.Cut(text, "\n")
		if !whole {
			return "", fmt.Errorf("read cgroup file: last line has no end: %w", ErrMismatch)
		}
		text = rest
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			if found {
				return "", fmt.Errorf("read cgroup file: two lines for cgroup2: %w", ErrMismatch)
			}
			path, found = p, true
		}
	}
	if !found {
		return "", fmt.Errorf("read cgroup file: no line for cgroup2: %w", ErrUnsupported)
	}
	return path, nil
}
