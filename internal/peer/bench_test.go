// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net"
	"os"
	"testing"

	"github.com/doorward/doorward/test/ground"
)

// BenchmarkIdentify compares dial, accept and close without a look, with the first look at a cgroup, and with a later.
func BenchmarkIdentify(b *testing.B) {
	ground.Need(b)
	if err := os.MkdirAll(ground.Cgroup+authd, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(ground.Cgroup+authd+"/cgroup.procs", []byte("0"), 0); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.WriteFile(ground.Cgroup+"/cgroup.procs", []byte("0"), 0) }()
	for _, tt := range []struct {
		name                  string
		look, forget, getInfo bool
	}{{name: "none"}, {"info-known", true, false, true}, {"info-new", true, true, true}, {"fdinfo", true, false, false}} {
		b.Run(tt.name, func(b *testing.B) {
			k, err := Open()
			if err != nil {
				b.Fatal(err)
			}
			defer k.Close()
			if tt.getInfo && !k.getInfo {
				b.Skip("skipped: the kernel has no PIDFD_GET_INFO; needs 6.13")
			}
			k.getInfo = tt.getInfo
			addr := &net.UnixAddr{Name: b.TempDir() + "/s", Net: "unix"}
			ln, err := net.ListenUnix("unix", addr)
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			b.ReportAllocs()
			for b.Loop() {
				c, err := net.DialUnix("unix", nil, addr)
				if err != nil {
					b.Fatal(err)
				}
				s, err := ln.AcceptUnix()
				if err != nil {
					b.Fatal(err)
				}
				if tt.look {
					if tt.forget {
						clear(k.known)
					}
					if _, err := k.Identify(s); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
				s.Close()
			}
		})
	}
}
