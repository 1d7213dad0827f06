// SPDX-License-Identifier: Apache-2.0

// Command flood does to a socket of Doorward's, from wherever a test starts it, what a caller does who wants the daemon
// behind it to fall: `flood MODE SOCKET [HEX]`. It prints what it got.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("flood:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: flood MODE SOCKET [HEX | DESCRIPTIONS SIZE]")
	}
	socket := args[1]
	switch args[0] {
	case "bytes": // send what is given, say whether the other end closed
		b, err := hex.DecodeString(args[2])
		if err != nil {
			return err
		}
		return raw(socket, b)
	case "names": // ask for calls that do not exist, each under a long name of its own
		return names(socket)
	case "connections": // as many as there may be, all silent
		return connections(socket)
	case "descriptors": // as many as a message takes, with a byte of a frame each
		return descriptors(socket)
	case "deaf": // ask and never read
		return deaf(socket)
	case "files": // as many and as large files as there may be, with a frame that says so or that they are of SIZE bytes
		size, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return err
		}
		return files(socket, args[2], size)
	}
	return fmt.Errorf("no mode %q", args[0])
}

func dial(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
}

func raw(socket string, b []byte) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = c.Write(b) // it may have closed already
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	fmt.Printf("closed after %d bytes\n", len(got))
	return nil
}

func names(socket string) error {
	c, err := wire.Dial(socket, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	refused := 0
	for i := range 400 {
		id := fmt.Sprintf("%06d", i) + strings.Repeat("x", 512<<10)
		var r wire.Result
		if _, err := c.Call("wait", &wire.WaitReq{Call: id}, &r); err != nil {
			refused++
		}
	}
	fmt.Printf("refused %d\n", refused)
	return nil
}

func connections(socket string) error {
	var all []*net.UnixConn
	for range 1500 {
		c, err := dial(socket)
		if err != nil {
			break
		}
		all = append(all, c)
	}
	fmt.Printf("connected %d\n", len(all))
	_ = os.Stdout.Sync()
	time.Sleep(4 * time.Second)
	for _, c := range all {
		_ = c.Close()
	}
	return nil
}

func descriptors(socket string) error {
	fd, err := unix.MemfdCreate("flood", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	many := make([]int, 253)
	for i := range many {
		many[i] = fd
	}
	sent := 0
	for range 300 {
		c, err := dial(socket)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, b := range []byte{0, 0, 1, 0} {
			if _, _, err := c.WriteMsgUnix([]byte{b}, unix.UnixRights(many...), nil); err != nil {
				break
			}
			sent += len(many)
		}
	}
	fmt.Printf("sent %d\n", sent)
	time.Sleep(3 * time.Second)
	return nil
}

// files sends calls with 16 sealed files of 64 MiB each, and prints what the other end said of them. The files are holes,
// so they cost this process nothing.
func files(socket, descriptions string, says int64) error {
	d, err := describe.Load(descriptions, "github")
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("flood", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	if err := unix.Ftruncate(fd, wire.MaxFile); err != nil {
		return err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return err
	}
	f := wire.Frame{Connector: "github", Description: d.Digest(), Method: "gist-create"}
	var all []int
	for range wire.MaxFiles {
		f.Files = append(f.Files, wire.File{Arg: "file", Name: "x", Size: says})
		all = append(all, fd)
	}
	if says < wire.MaxFile { // within what the method takes
		f.Files, all = f.Files[:10], all[:10]
	}
	verb, req := "decide", any(&wire.DecideReq{Frame: f})
	if !strings.HasSuffix(socket, "/sentinel.sock") {
		verb, req = "call", &wire.CallReq{Grant: strings.Repeat("g", 26), Frame: f}
	}
	said := map[string]int{}
	for range 2 {
		c, err := wire.Dial(socket, time.Minute)
		if err != nil {
			return err
		}
		for range 5 {
			var resp wire.DecideResp
			_, err := c.Call(verb, req, &resp, all...)
			if err == nil && resp.Err != nil {
				err = resp.Err
			}
			said[fmt.Sprint(err)]++
			var refusal *wire.Error
			if err != nil && !errors.As(err, &refusal) {
				break
			}
		}
		_ = c.Close()
	}
	for s, n := range said {
		fmt.Printf("%d times: %.200s\n", n, s)
	}
	return nil
}

func deaf(socket string) error {
	body, err := wire.Marshal(&wire.ListReq{})
	if err != nil {
		return err
	}
	var out []byte
	add := func(m *wire.Msg) error {
		b, err := wire.Marshal(m)
		if err != nil {
			return err
		}
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
		return nil
	}
	if err := add(&wire.Msg{Hello: wire.Version}); err != nil {
		return err
	}
	for i := range 2000 {
		if err := add(&wire.Msg{ID: uint64(i + 1), Verb: "list", Body: msgpack.RawMessage(body)}); err != nil {
			return err
		}
	}
	n := 0
	for range 200 {
		c, err := dial(socket)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(out)
		n++
	}
	fmt.Printf("deaf %d\n", n)
	time.Sleep(5 * time.Second)
	return nil
}
