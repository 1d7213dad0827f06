// SPDX-License-Identifier: Apache-2.0

package openers

import (
	"encoding/binary"
	"net"
	"testing"
)

// The structs are as long as the kernel's, with nothing that Go would pad.
func TestTheStructsHaveNoHoles(t *testing.T) {
	if k, o := binary.Size(Key{}), binary.Size(Opener{}); k != keySize || o != openerSize {
		t.Errorf("%d and %d bytes, want %d and %d", k, o, keySize, openerSize)
	}
}

// A connection's key is its client's address and port in its network namespace.
func TestAConnectionsKeyIsItsClients(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		out, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		k, err := keyOf(in.(*net.TCPConn))
		if err != nil {
			t.Fatal(err)
		}
		client := out.LocalAddr().(*net.TCPAddr)
		if !net.IP(k.Addr[:]).Equal(client.IP) || int(k.Port) != client.Port {
			t.Errorf("the key of %v is %+v", client, k)
		}
	}
}
