// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// A cell's network on the host ground: what doorward-bpf, doorward-cellnet@ and the socket units of doorward-egress@ do.

// resolver is the address of a cell's resolver, as its resolv.conf has it.
const resolver = "198.18.0.1"

// Sockets in a cell's network, by name and port.
const (
	cellTCPPort = 15001
	cellDNSPort = 53
)

// network makes the network of a cell and starts its egress, where they are not there yet. It returns the network's name.
func (h *host) network(c *Cell) (string, error) {
	netns := "/run/netns/doorward-" + c.Name
	if _, err := os.Stat(wire.BPFDir); err != nil { // once, behind the slice of all cells
		for _, slice := range []string{"/doorward.slice/doorward-cells.slice", "/doorward.slice/doorward-workers.slice"} {
			if _, err := ground.MakeCgroup(slice); err != nil {
				return "", err
			}
		}
		if err := h.cellnet("bpf"); err != nil {
			return "", err
		}
	}
	if err := h.cellnet("cell", c.Name); err != nil {
		return "", err
	}
	name := "egress@" + c.Name
	if h.w.daemons[name] == nil {
		if err := h.addEgress(c.Name, netns); err != nil {
			return "", err
		}
	}
	if d := h.w.daemons[name]; d.PID() == 0 {
		return netns, d.Start()
	}
	return netns, nil
}

// cellnet runs cellnet as its units do, and gives what it pinned to the group that reads it, which here has no name.
func (h *host) cellnet(words ...string) error {
	cmd := exec.Command(filepath.Join(h.w.Prefix, "libexec/doorward/cellnet"), words...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cellnet %s: %w: %s", strings.Join(words, " "), err, out)
	}
	return filepath.WalkDir(strings.TrimSuffix(wire.BPFDir, "/"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, 0, uidEgress)
	})
}

// addEgress makes the daemon of a cell's way out, with its sockets.
func (h *host) addEgress(cell, netns string) error {
	name, uid := "egress@"+cell, uidCellEgress+h.egresses
	h.egresses++
	h.w.add(name)
	h.add(name, uid, false)
	u := h.units[name]
	u.binary = filepath.Join(h.w.Prefix, "libexec/doorward/egress")
	u.args, u.groups = []string{cell}, []uint32{uidEgress}
	u.env = []string{"STATE_DIRECTORY=" + h.w.State(name)}
	u.hosts = h.hosts
	t := tree{}
	t.dir(h.w.State(name), 0o700, uid)
	if t.err != nil {
		return t.err
	}
	edge := wire.Edge{From: "sentinel", To: "egress", Mode: 0o660}
	if err := h.listenOne(u, "egress-cell", "egress-cell/"+cell+"/sock", edge); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		kind int
		port int
	}{{"cell-tcp", unix.SOCK_STREAM, cellTCPPort}, {"cell-dns", unix.SOCK_DGRAM, cellDNSPort}} {
		file, err := listenIn(netns, s.name, s.kind, s.port)
		if err != nil {
			return fmt.Errorf("make socket %s of cell %s: %w", s.name, cell, err)
		}
		u.sockets = append(u.sockets, socket{s.name, file})
	}
	return nil
}

// listenIn makes a socket on the wildcard address in a network namespace, for IPv4 and IPv6.
func listenIn(netns, name string, kind, port int) (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		if err = enterNet(netns); err != nil {
			return
		}
		var fd int
		if fd, err = unix.Socket(unix.AF_INET6, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		file = os.NewFile(uintptr(fd), name)
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet6{Port: port}))
		if err == nil && kind == unix.SOCK_STREAM {
			err = unix.Listen(fd, 4096)
		}
	}()
	<-done
	return file, err
}

// enterNet moves the calling thread into a network namespace.
func enterNet(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

// closeNetworks takes the cells' networks and the file system of the pins away.
func (h *host) closeNetworks() error {
	var errs []error
	for name := range h.units {
		if cell, ok := strings.CutPrefix(name, "egress@"); ok {
			errs = append(errs, h.cellnet("cell", cell, "--stop"))
		}
	}
	const canary = "/run/netns/doorward--canary"
	if err := unix.Unmount(canary, unix.MNT_DETACH); err == nil {
		errs = append(errs, os.Remove(canary))
	}
	if err := unix.Unmount(wire.BPFDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("unmount %s: %w", wire.BPFDir, err))
	}
	return errors.Join(errs...)
}

// Walls runs what makes a cell's network once more, as its unit does when it is restarted. Where kill is not 0 it is killed
// after that time, as `kill -9` does, if it has not ended before. On the host ground only.
func (w *World) Walls(cell string, kill time.Duration) error {
	h, ok := w.on.(*host)
	if !ok || !h.net {
		return errors.New("make the walls of a cell: the cells of this world have no network of their own")
	}
	if kill == 0 {
		return h.cellnet("cell", cell)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kill)
	defer cancel()
	err := exec.CommandContext(ctx, filepath.Join(h.w.Prefix, "libexec/doorward/cellnet"), "cell", cell).Run()
	if ctx.Err() != nil { // as it was meant
		return nil
	}
	return err
}
