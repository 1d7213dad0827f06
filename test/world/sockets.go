// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// socket is one .socket unit: it stays open while its daemon starts and dies.
type socket struct {
	name string // FileDescriptorName
	file *os.File
}

// listen makes every socket of the table of who may talk to whom.
func (h *host) listen() error {
	for _, e := range wire.Graph() {
		if strings.HasPrefix(e.Socket, "egress-cell/") {
			continue // there is one for each cell
		}
		server := e.To
		if server == "approvals" && h.units[server] == nil {
			continue // which is Options.Page
		}
		if server != "worker" {
			if err := h.listenOne(h.units[server], e.Name, e.Socket, e); err != nil {
				return err
			}
			continue
		}
		for _, vendor := range h.w.Workers {
			name := e.Name
			if name == "cell-worker" {
				name = "cell-" + vendor
			}
			if err := h.listenOne(h.units["worker-"+vendor], name, strings.Replace(e.Socket, "*", vendor, 1), e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *host) listenOne(u *hostUnit, name, path string, e wire.Edge) error {
	if u == nil {
		return fmt.Errorf("make socket %s: no daemon %s", path, e.To)
	}
	full := wire.RunDir + path
	if rest, ok := strings.CutPrefix(path, "cell/"); ok {
		full = wire.CellDir + rest
	} else if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	u.sockets = append(u.sockets, socket{name, file})
	old := unix.Umask(0o777) // nobody can connect before owner and mode are right
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: full})
	unix.Umask(old)
	if err == nil {
		err = errors.Join(os.Chown(full, 0, h.groupOf(e.From)), os.Chmod(full, os.FileMode(e.Mode)), unix.Listen(fd, 4096))
	}
	if err != nil {
		return fmt.Errorf("make socket %s: %w", full, err)
	}
	return nil
}

// groupOf is the group that a socket's clients are in.
func (h *host) groupOf(client string) int {
	switch client {
	case "worker":
		return gidWorkers
	case "doorward":
		return gidDoorward
	case "connector":
		return 0
	}
	if u := h.units[client]; u != nil {
		return u.uid
	}
	return 0 // it does not run here
}

// rows are the directories below /run that a daemon dials in.
func rows(name string) []string {
	client := name
	if strings.HasPrefix(name, "worker-") {
		client = "worker"
	}
	var out []string
	if strings.HasPrefix(name, "egress@") {
		client, out = "egress", []string{strings.TrimSuffix(wire.BPFDir, "/")}
	}
	for _, e := range wire.Graph() {
		if e.From != client {
			continue
		}
		dir := filepath.Dir(e.Socket)
		if before, _, ok := strings.Cut(e.Socket, "/*"); ok {
			dir = before // the parent: a worker's own directory may be made later
		}
		if dir = wire.RunDir + dir; !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}
