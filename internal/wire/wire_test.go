// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := NewConn(rawSocket(fds[0])), NewConn(rawSocket(fds[1]))
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestAMessageArrivesWithItsDescriptors(t *testing.T) {
	a, b := pair(t)
	for i, name := range []string{"one", "two"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(name)
		if err := a.Write(&Msg{ID: uint64(i + 1), Verb: "decide"}, int(f.Fd())); err != nil {
			t.Fatal(err)
		}
		if err := a.Write(&Msg{ID: 9, Verb: "list"}); err != nil { // pipelined, without descriptors
			t.Fatal(err)
		}
		f.Close()
	}
	for _, name := range []string{"one", "", "two", ""} {
		m, fds, err := b.Read()
		if err != nil {
			t.Fatal(err)
		}
		if (name == "") != (len(fds) == 0) {
			t.Fatalf("%s: %d descriptors", m.Verb, len(fds))
		}
		if name == "" {
			continue
		}
		f := os.NewFile(uintptr(fds[0]), "")
		defer f.Close()
		got := make([]byte, 8)
		n, _ := f.ReadAt(got, 0)
		if string(got[:n]) != name {
			t.Fatalf("descriptor of %q, want %q", got[:n], name)
		}
	}
}

func TestWhatIsNoMessageEndsTheConnection(t *testing.T) {
	hello, _ := Marshal(&Msg{Hello: Version})
	frame := func(bodies ...[]byte) (out []byte) {
		for _, b := range bodies {
			out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
			out = append(out, b...)
		}
		return out
	}
	enc := func(m *Msg) []byte { b, _ := Marshal(m); return b }
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"no version first":               {frame(enc(&Msg{ID: 1, Verb: "list"})), ErrMalformed},
		"another version":                {frame(enc(&Msg{Hello: Version + 1})), ErrVersion},
		"version twice":                  {frame(hello, hello), ErrMalformed},
		"a length above the limit":       {frame(hello, nil)[:4+len(hello)], nil},
		"four gigabytes promised":        {append(frame(hello), 0xff, 0xff, 0xff, 0xff), ErrTooLarge},
		"a frame cut short":              {append(frame(hello), 0, 0, 0, 9, 0x81), ErrMalformed},
		"an unknown field":               {frame(hello, []byte{0x81, 0xa1, 'z', 1}), ErrMalformed},
		"trailing bytes":                 {frame(hello, append(enc(&Msg{ID: 1, Verb: "x"}), 0xc0)), ErrMalformed},
		"a descriptor that did not come": {frame(hello, enc(&Msg{ID: 1, Verb: "x", Files: 1})), ErrMalformed},
		"a negative count":               {frame(hello, enc(&Msg{ID: 1, Verb: "x", Files: -1})), ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			unix.Write(int(a.t.(rawSocket)), c.bytes)
			unix.Shutdown(int(a.t.(rawSocket)), unix.SHUT_WR)
			_, _, err := b.Read()
			if c.want == nil {
				c.want = io.EOF
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestCheckRefusesBeforeTheDecoderAllocates(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":                       {},
		"an array of 2^32-1":            {0xdd, 0xff, 0xff, 0xff, 0xff},
		"a map of 2^32-1":               {0xdf, 0xff, 0xff, 0xff, 0xff},
		"a map of more keys than exist": {0xde, 0x00, 0x90, 0xa1, 'a', 1},
		"a string of 4 GiB":             {0xdb, 0xff, 0xff, 0xff, 0xff, 'a'},
		"nested two thousand deep":      append(bytes.Repeat([]byte{0x91}, 2000), 1),
		"a key twice":                   {0x82, 0xa1, 'a', 1, 0xa1, 'a', 2},
		"a key twice in two spellings":  {0x82, 0xa1, 'a', 1, 0xd9, 1, 'a', 2},
		"a key that is a number":        {0x81, 1, 1},
		"a float":                       {0xca, 0, 0, 0, 0},
		"a double":                      {0xcb, 0, 0, 0, 0, 0, 0, 0, 0},
		"an extension":                  {0xd4, 1, 1},
		"the reserved byte":             {0xc1},
		"trailing bytes":                {0xc0, 0xc0},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(b)
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("got %v, want ErrMalformed", err)
			}
		})
	}
	ok, err := Marshal(&Frame{Connector: "github", Method: "issues", Args: []Arg{{"repo", []string{"o/r"}}}})
	if err != nil || Check(ok) != nil {
		t.Fatalf("control: a frame is refused: %v, %v", err, Check(ok))
	}
	if n := testing.AllocsPerRun(100, func() { Check(ok) }); n != 0 {
		t.Errorf("Check allocates %v times on a good frame", n)
	}
}

func TestMoreDescriptorsThanAFrameMayHaveAreRefused(t *testing.T) {
	a, b := pair(t)
	if err := a.Write(&Msg{ID: 1, Verb: "x"}, make([]int, MaxFiles+1)...); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("sent: %v", err)
	}
	a.Write(&Msg{ID: 1, Verb: "x"})
	b.Read()
	fds := make([]int, 2*MaxFiles) // past our own sender
	if err := a.t.WriteMsg([]byte{0}, fds); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	if _, _, err := b.Read(); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("received: %v", err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("descriptors leaked: %d before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func TestCallReturnsTheOtherEndsRefusal(t *testing.T) {
	a, b := pair(t)
	var other sync.WaitGroup
	defer other.Wait() // no Close beside a Read
	other.Go(func() {
		m, _, err := b.Read()
		if err == nil {
			b.Write(&Msg{ID: m.ID, Err: Refuse(CodeNotAllowed, "the policy denies it", "ask the person")})
		}
	})
	var e *Error
	if _, err := a.Call("decide", &DecideReq{}, &DecideResp{}); !errors.As(err, &e) || e.Code.Exit() != ExitDenied {
		t.Fatalf("got %v", err)
	}
}

func TestTheGraphIsWhole(t *testing.T) {
	names, sockets := map[string]bool{}, map[string]bool{}
	for _, e := range Graph() {
		if names[e.Name] || sockets[e.Socket] {
			t.Errorf("%s or %s stands twice", e.Name, e.Socket)
		}
		names[e.Name], sockets[e.Socket] = true, true
		all := slices.Concat(e.Verbs, e.Back)
		slices.Sort(all)
		if len(all) == 0 || len(slices.Compact(all)) != len(e.Verbs)+len(e.Back) {
			t.Errorf("%s: no verbs, or one twice", e.Name)
		}
		if open := e.Mode&0o006 != 0; open != strings.HasPrefix(e.Socket, "cell/") {
			t.Errorf("%s: mode %o", e.Name, e.Mode)
		}
	}
}

// FuzzFrame: what decodes encodes to the same bytes again, and an error comes without a value.
func FuzzFrame(f *testing.F) {
	for _, m := range []any{
		&Msg{ID: 7, Verb: "decide", Body: []byte{0x80}, Files: 2},
		&Msg{ID: 7, Err: Refuse(CodeDenied, "no", "")},
		&DecideReq{Frame{Connector: "dav", Method: "events", Args: []Arg{{"from", []string{"2030-01-01"}}}}},
		&GrantReq{Grant: "g", Entries: []Entry{{Name: "get", Method: "GET", Path: "/", Uses: 1}}},
		&ResolveResp{Secret: "x", Scrub: []string{"x"}},
		&AccountsReq{Instance: "i", Accounts: []Account{{Name: "work", Vendor: "dav"}}},
		&RunReq{Start: &RunStart{Cell: "work", Args: []string{"true"}, Rows: 40, Dir: "/srv/p"}},
		&CellSessionReq{Cell: "work", Session: "run-1", Start: 1 << 40},
		&DecideCardReq{ID: "i", Hash: []byte{1}, Grant: &Grant{Limits: []Limit{{Field: "repo", Values: []string{"o/r"}}}}},
	} {
		b, err := Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{new(Msg), new(DecideReq), new(DecideResp), new(WaitReq), new(Result), new(InboxResp),
			new(ListResp), new(CallReq), new(Output), new(PrepareReq), new(PrepareResp), new(BorrowReq),
			new(BorrowResp), new(FinishReq), new(GrantReq), new(GrantRef), new(ResolveReq), new(ResolveResp),
			new(SentReq), new(AccountsReq), new(ReleasedReq), new(RefusedReq), new(CheckpointReq), new(AddReq),
			new(Card), new(DecideCardReq), new(GrantsResp), new(PersonRevokeReq), new(PolicyReq), new(AuditReq),
			new(MintReq), new(MintResp), new(SurrogateReq), new(SurrogateResp), new(PersonSurrogateReq), new(PersonSurrogateResp),
			new(CellsResp), new(FreezeReq), new(FreezeResp), new(RunReq), new(RunResp), new(CellSessionReq),
			new(WebReq), new(WebResp), new(ApproversReq), new(ApproversResp)} {
			if err := Unmarshal(b, v); err != nil {
				continue
			}
			out, err := Marshal(v)
			if err != nil {
				t.Fatalf("%T decodes and does not encode: %v", v, err)
			}
			again := out
			if err := Unmarshal(again, v); err != nil {
				t.Fatalf("%T: its own encoding is refused: %v", v, err)
			}
			if out, _ = Marshal(v); !bytes.Equal(out, again) {
				t.Fatalf("%T: %x, then %x", v, again, out)
			}
		}
	})
}

func FuzzConn(f *testing.F) {
	hello, _ := Marshal(&Msg{Hello: Version})
	one, _ := Marshal(&Msg{ID: 1, Verb: "list"})
	seed, _ := AppendFrame(nil, hello)
	seed, _ = AppendFrame(seed, one)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		c := NewConn(&bytesTransport{in})
		for {
			m, fds, err := c.Read()
			if err != nil {
				if m != nil || fds != nil {
					t.Fatal("a value came with an error")
				}
				return
			}
		}
	})
}

type bytesTransport struct{ b []byte }

func (r *bytesTransport) ReadMsg(p []byte) (int, []int, error) {
	if len(r.b) == 0 {
		return 0, nil, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil, nil
}
func (r *bytesTransport) WriteMsg([]byte, []int) error { return nil }
func (r *bytesTransport) CloseFD(int)                  {}
func (r *bytesTransport) Close() error                 { return nil }
