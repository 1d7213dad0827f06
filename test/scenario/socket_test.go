// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// SO-04: the machine's abstract sockets and its sockets below /run are out of a cell's reach; what a cell does reach is
// no protection by its mount, only by who calls.
func TestCase_SO04_TheMachinesSocketsAreOutOfReach(t *testing.T) {
	w := world.Start(t, world.Options{})
	cell, err := w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	system := map[string]bool{} // those that are the machine's own, which may be for root alone
	listen := func(path string) {
		t.Helper()
		if _, err := os.Stat(path); err == nil {
			paths, system[path] = append(paths, path), true
			return
		}
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		if path[0] == '/' {
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, path)
	}
	listen("@/tmp/.X11-unix/X-doorward-" + strconv.Itoa(os.Getpid()))
	for _, dir := range []string{"/run/dbus", "/run/systemd"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	listen("/run/dbus/system_bus_socket")
	listen("/run/docker.sock")
	listen("/run/systemd/private")

	program, err := world.BuildTest("./test/world/ask", w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	// reached says whether a process of the actor can connect: then it waits for an answer in vain and is killed.
	reached := func(a *world.Actor, path string) bool {
		t.Helper()
		r, err := a.Run(t.Context(), "/usr/bin/timeout", "-s", "KILL", "1", program, path, "x", "80")
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(r.Stdout, "connect to ")
	}
	for _, path := range paths {
		other := w.Local(1001)
		if system[path] {
			other = w.Local(0)
		}
		if !reached(other, path) {
			t.Errorf("control: nobody reaches %s", path)
		}
		for _, uid := range []*world.Actor{cell.Actor(), cell.Session("run-x")} {
			if reached(uid, path) {
				t.Errorf("a cell reaches %s", path)
			}
		}
	}
	// The list of sockets that a cell sees names none of the machine's.
	r, err := cell.Actor().Run(t.Context(), "/bin/cat", "/proc/net/unix")
	if err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	for _, path := range paths {
		if strings.Contains(r.Stdout, path) {
			t.Errorf("a cell sees %s", path)
		}
	}
	// The cell's own directory is reached, and there the kernel's word decides: a verb of others' ends the connection.
	var resp wire.PendingResp
	err = cell.Actor().Ask(t.Context(), wire.PathCellSentinel, "pending", &wire.Empty{}, &resp)
	if !errors.Is(err, world.ErrNoAnswer) {
		t.Errorf("a person's verb from a cell: %v", err)
	}
}
