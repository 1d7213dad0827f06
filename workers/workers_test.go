// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// toy is a connector whose handlers send nothing.
func toy(read, write Handler) *Connector {
	file := describe.Arg{Name: "file", Label: "File", Help: "a file", Type: describe.TypeFile, Max: 100}
	get := []describe.Entry{{Name: "get", Method: "GET", Path: "{base}/"}}
	put := []describe.Entry{{Name: "put", Method: "PUT", Path: "{base}/",
		Body: &describe.Body{Media: "x/y", Prepared: true}}}
	return &Connector{
		Describe: &describe.Connector{Vendor: "toy", Title: "Toy", Check: "read",
			Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "X"}},
			Methods: []describe.Method{
				{Name: "prepared", Summary: "s", Class: describe.Write, Reach: describe.ReachNone, Entries: put,
					Prepare: &describe.Prepare{Kind: "vcard"}},
				{Name: "read", Summary: "s", Class: describe.Read, Reach: describe.ReachNone, Entries: get,
					Args: []describe.Arg{file}, Labels: []string{wire.LabelPrivate}},
				{Name: "write", Summary: "s", Class: describe.Write, Reach: describe.ReachNone, Entries: get},
			}},
		Handlers: map[string]Handler{"read": read, "write": write, "prepared": write},
		Renderers: map[string]Renderer{"prepared": func(r *Rendering) ([]byte, string, error) {
			if r.Owner == "panic" {
				panic(r.Owner)
			}
			return []byte(r.Mark), "x/y", nil
		}},
	}
}

func answers(v any) Handler {
	return func(context.Context, *Call) (*Answer, error) { return &Answer{Value: v}, nil }
}

func fails(err error) Handler {
	return func(context.Context, *Call) (*Answer, error) { return nil, err }
}

// trial runs calls of c and keeps what was finished.
func trial(t *testing.T, c *Connector) (*Trial, *[]wire.FinishReq) {
	t.Helper()
	if _, err := c.Describe.Seal(); err != nil {
		t.Fatal(err)
	}
	var ended []wire.FinishReq
	return &Trial{Connector: c, Egress: "/absent",
		Borrow: func(*wire.BorrowReq) (*wire.BorrowResp, error) { return &wire.BorrowResp{Mark: "m"}, nil },
		Finish: func(f *wire.FinishReq) error { ended = append(ended, *f); return nil }}, &ended
}

func frameOf(c *Connector, method string, files ...wire.File) wire.Frame {
	return wire.Frame{Connector: "toy", Description: c.Describe.Digest(), Method: method, Files: files}
}

func codeOf(err error) wire.Code {
	var w *wire.Error
	if errors.As(err, &w) {
		return w.Code
	}
	if err != nil {
		return "no refusal"
	}
	return ""
}

func TestAFrameThatIsNotThisWorkersIsRefusedBeforeAnythingIsBorrowed(t *testing.T) {
	c := toy(answers(1), answers(1))
	tr, ended := trial(t, c)
	borrowed := 0
	tr.Borrow = func(*wire.BorrowReq) (*wire.BorrowResp, error) { borrowed++; return &wire.BorrowResp{}, nil }
	good := frameOf(c, "read")
	for want, alter := range map[wire.Code]func(*wire.Frame){
		wire.CodeUnknownConnector: func(f *wire.Frame) { f.Connector = "dav" },
		wire.CodeWrongDescription: func(f *wire.Frame) { f.Description[0]++ },
		wire.CodeUnknownMethod:    func(f *wire.Frame) { f.Method = "other" },
		wire.CodeBadArgument:      func(f *wire.Frame) { f.Args = []wire.Arg{{Name: "x", Values: []string{"y"}}} },
	} {
		f := good
		alter(&f)
		if _, err := tr.Run(t.Context(), &wire.CallReq{Frame: f}); codeOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if borrowed+len(*ended) != 0 {
		t.Errorf("borrowed %d, finished %d", borrowed, len(*ended))
	}
	if _, err := tr.Run(t.Context(), &wire.CallReq{Frame: good}); err != nil || borrowed != 1 { // the control
		t.Errorf("%v, borrowed %d", err, borrowed)
	}
}

func TestOnlySealedFilesOfTheFrameAreTaken(t *testing.T) {
	c := toy(func(_ context.Context, k *Call) (*Answer, error) {
		b, err := io.ReadAll(k.Files("file")[0].Reader())
		return &Answer{Value: string(b)}, err
	}, answers(1))
	tr, _ := trial(t, c)
	fd, size, sum, err := wire.SealFile(strings.NewReader("hello"), 100)
	if err != nil {
		t.Fatal(err)
	}
	sealed := os.NewFile(uintptr(fd), "sealed")
	defer sealed.Close()
	open, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	changing := os.NewFile(uintptr(open), "changing")
	defer changing.Close()
	if _, err := changing.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	named := wire.File{Arg: "file", Name: "f", Size: size, SHA256: sum}
	long, other := named, named
	long.Size++
	other.SHA256[0]++
	for name, k := range map[string]struct {
		file  *wire.File
		files []*os.File
		want  wire.Code
	}{
		"control":        {&named, []*os.File{sealed}, ""},
		"not sealed":     {&named, []*os.File{changing}, wire.CodeBadArgument},
		"another size":   {&long, []*os.File{sealed}, wire.CodeBadArgument},
		"another digest": {&other, []*os.File{sealed}, wire.CodeBadArgument},
		"missing":        {&named, nil, wire.CodeBadArgument},
		"one more":       {&named, []*os.File{sealed, sealed}, wire.CodeBadArgument},
		"unnamed":        {nil, []*os.File{sealed}, wire.CodeBadArgument},
	} {
		f := frameOf(c, "read")
		if k.file != nil {
			f.Files = []wire.File{*k.file}
		}
		out, err := tr.Run(t.Context(), &wire.CallReq{Frame: f}, k.files...)
		if codeOf(err) != k.want || err == nil && string(out.JSON) != `"hello"` {
			t.Errorf("%s: %v, want %q", name, err, k.want)
		}
	}
}

func TestHowACallEndsIsToldBeforeItsAnswer(t *testing.T) {
	for name, k := range map[string]struct {
		handler Handler
		outcome string
		code    wire.Code
	}{
		"done": {answers("x"), wire.OutcomeDone, ""},
		"refused": {func(context.Context, *Call) (*Answer, error) {
			return nil, wire.Refuse(wire.CodeVendorRefused, "r", "")
		}, wire.OutcomeFailed, wire.CodeVendorRefused},
		"fault": {fails(errors.New("secret detail")), wire.OutcomeFailed, wire.CodeInternal},
		"panic": {func(context.Context, *Call) (*Answer, error) { panic("secret detail") },
			wire.OutcomeFailed, wire.CodeInternal},
		"unknown": {fails(wire.Refuse(wire.CodeUnknown, "u", "")), wire.OutcomeUnknown, wire.CodeUnknown},
		"panic after a write": {func(_ context.Context, c *Call) (*Answer, error) { c.ran = true; panic(1) },
			wire.OutcomeUnknown, wire.CodeUnknown},
		"fault while a write is open": {func(_ context.Context, c *Call) (*Answer, error) {
			c.unsure = true
			return nil, io.EOF
		}, wire.OutcomeUnknown, wire.CodeUnknown},
		"egress absent": {func(ctx context.Context, c *Call) (*Answer, error) { _, err := c.Do(ctx, "get"); return nil, err },
			wire.OutcomeFailed, wire.CodeUnavailable},
	} {
		c := toy(answers(1), k.handler)
		tr, ended := trial(t, c)
		_, err := tr.Run(t.Context(), &wire.CallReq{Grant: "g", Frame: frameOf(c, "write")})
		if codeOf(err) != k.code || len(*ended) != 1 || (*ended)[0].Outcome != k.outcome {
			t.Errorf("%s: %v, %+v", name, err, *ended)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: detail went to the caller: %v", name, err)
		}
		tr.Finish = func(*wire.FinishReq) error { return wire.Refuse(wire.CodeFull, "full", "") }
		out, err := tr.Run(t.Context(), &wire.CallReq{Frame: frameOf(c, "write")})
		if codeOf(err) != wire.CodeFull || out != nil {
			t.Errorf("%s: an answer without a record: %v %v", name, out, err)
		}
	}
}

func TestOnlySentinelRunsWhatWasPrepared(t *testing.T) {
	c := toy(answers(1), answers(1))
	tr, _ := trial(t, c)
	w := newWorker(c, slog.New(slog.DiscardHandler), tr, tr, "/absent")
	cell := peer.Identity{Kind: peer.Cell, Name: "work", Session: "payload"}
	for name, req := range map[string]wire.CallReq{
		"a prepared method": {Frame: frameOf(c, "prepared")},
		"a prepared body":   {Frame: frameOf(c, "prepared"), Prepared: true},
		"a raw answer":      {Frame: frameOf(c, "read"), Raw: true},
		"a mark":            {Frame: frameOf(c, "read"), Mark: "m"},
		"an ETag":           {Frame: frameOf(c, "read"), ETag: `"x"`},
	} {
		if _, err := w.call(t.Context(), cell, &req, nil); codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s from a cell: %v", name, err)
		}
	}
	var asked wire.BorrowReq
	tr.Borrow = func(r *wire.BorrowReq) (*wire.BorrowResp, error) { asked = *r; return &wire.BorrowResp{}, nil }
	read := wire.CallReq{Frame: frameOf(c, "read")}
	if _, err := w.call(t.Context(), cell, &read, nil); err != nil || asked.Cell != "work" || asked.Session != "payload" {
		t.Errorf("borrowed as %+v: %v", asked, err)
	}
	if _, err := w.execute(t.Context(), &wire.CallReq{Frame: frameOf(c, "read")}, nil); err != nil || asked.Cell != "" {
		t.Errorf("borrowed as %+v: %v", asked, err)
	}
	if _, err := w.execute(t.Context(), &wire.CallReq{Frame: frameOf(c, "write"), Raw: true}, nil); codeOf(err) !=
		wire.CodeNotAllowed {
		t.Errorf("a raw write: %v", err)
	}
	if _, err := w.check(t.Context(), &wire.CallReq{Frame: frameOf(c, "write")}, nil); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("check of a write: %v", err)
	}
	if _, err := w.prepare(&wire.PrepareReq{Frame: frameOf(c, "prepared"), Owner: "panic"}); codeOf(err) != "no refusal" {
		t.Errorf("a renderer that panics: %v", err)
	}
	r, err := w.prepare(&wire.PrepareReq{Frame: frameOf(c, "prepared"), Mark: "m"})
	if err != nil || string(r.Body) != "m" {
		t.Errorf("%v %v", r, err)
	}
	if len(w.cellVerbs()) != 1 || len(w.sentinelVerbs()) != 3 {
		t.Error("the tables of verbs")
	}
}

func TestLargeAnswersTravelAsSealedFiles(t *testing.T) {
	for _, size := range []int{0, 1, wire.MaxInline - 2, wire.MaxInline - 1, wire.MaxInline, 3 << 20} {
		a := Answer{Value: strings.Repeat("x", size)}
		out, fd, err := a.output([]string{wire.LabelPrivate})
		if err != nil {
			t.Fatal(err)
		}
		if out.File != (size+2 > wire.MaxInline) || out.Bytes != int64(size+2) {
			t.Errorf("%d: file %v, %d bytes", size, out.File, out.Bytes)
		}
		if out.File {
			b, err := wire.ReadFile(fd, wire.MaxFile)
			if err != nil || len(b) != size+2 {
				t.Errorf("%d: %d bytes in the file, %v", size, len(b), err)
			}
			unix.Close(fd)
		}
	}
	torn := &Body{r: io.MultiReader(strings.NewReader("half"), iotest{}), left: 100, ctx: t.Context()}
	if _, _, err := (&Answer{Raw: torn, Media: "x/y"}).output(nil); codeOf(err) != wire.CodeVendorDown {
		t.Errorf("a body that broke off: %v", err)
	}
	long := &Body{r: strings.NewReader("too long"), left: 3, ctx: t.Context()}
	if _, _, err := (&Answer{Raw: long, Media: "x/y"}).output(nil); codeOf(err) != wire.CodeTooLarge {
		t.Errorf("a body that is too long: %v", err)
	}
}

// iotest fails as a connection that ends too early.
type iotest struct{}

func (iotest) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// CI-08: a cut never splits a character, and is told.
func TestCutsKeepCharactersWhole(t *testing.T) {
	for limit := range 40 {
		for _, s := range []string{strings.Repeat("ä", 30), strings.Repeat("😀", 20), "plain and longer than its limit is",
			"\xff\xfe"} {
			got := Cut(s, limit)
			if !utf8.ValidString(got) || len(got) > max(limit, len(cutMark)) {
				t.Errorf("%d: %q", limit, got)
			}
		}
	}
	if items, note := Cap([]int{1, 2, 3}, 2, "raise --max"); len(items) != 2 || !strings.Contains(note, "2 of 3") {
		t.Errorf("%v %q", items, note)
	}
	if items, note := Cap([]int{1, 2}, 2, ""); len(items) != 2 || note != "" {
		t.Errorf("%v %q", items, note)
	}
}

func TestJSONBodiesHaveExactlyTheirLeaves(t *testing.T) {
	content := []byte("bytes \x00\xff\n")
	fd, size, sum, err := wire.SealFile(bytes.NewReader(content), 100)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	file := func(d wire.Digest) (*File, error) {
		if d != sum {
			return nil, errors.New("no such file")
		}
		return &File{wire.File{Size: size, SHA256: sum}, fd}, nil
	}
	leaf := func(p, v string) wire.Leaf { return wire.Leaf{Pointer: p, Value: []byte(v)} }
	r, n, err := jsonBody([]wire.Leaf{leaf("/a/b", `"x"`), leaf("/c", `[1,2]`), leaf("/a/d~1e~0", "true"),
		{Pointer: "/f", Base64: &wire.FileBody{SHA256: sum, Size: size}}}, file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != n {
		t.Fatalf("%d bytes, announced %d, %v", len(b), n, err)
	}
	var got struct {
		A map[string]any
		C []int
		F []byte
	}
	if err := json.Unmarshal(b, &got); err != nil || got.A["b"] != "x" || got.A["d/e~"] != true || len(got.C) != 2 ||
		!bytes.Equal(got.F, content) {
		t.Errorf("%s %v", b, err)
	}
	for _, bad := range [][]wire.Leaf{{leaf("", "1")}, {leaf("a", "1")}, {leaf("/a", "1"), leaf("/a", "2")},
		{leaf("/a", "1"), leaf("/a/b", "2")}, {leaf("/a/b", "1"), leaf("/a", "2")},
		{{Pointer: "/f", Base64: &wire.FileBody{}}}} {
		if _, _, err := jsonBody(bad, file); err == nil {
			t.Errorf("%v: taken", bad)
		}
	}
	text := []wire.Leaf{{Pointer: "/t", Text: &wire.FileBody{SHA256: sum, Size: size}}}
	if _, _, err := jsonBody(text, file); codeOf(err) != wire.CodeBadArgument {
		t.Errorf("a file that is no text: %v", err)
	}
}

func TestDeepJSONIsRefusedBeforeItIsDecoded(t *testing.T) {
	for text, want := range map[string]bool{
		strings.Repeat("[", 64) + strings.Repeat("]", 64): true,
		strings.Repeat("[", 65) + strings.Repeat("]", 65): false,
		`{"a":"` + strings.Repeat("[", 100) + `"}`:        true,
		`{"a\"` + strings.Repeat("[", 100) + `":1}`:       true,
		strings.Repeat(`{"a":`, 65) + "1":                 false,
	} {
		if got := shallow([]byte(text), maxDepth); got != want {
			t.Errorf("%.30s: %v", text, got)
		}
	}
}

func TestCodeWithoutADeclarationIsFound(t *testing.T) {
	for name, alter := range map[string]func(*Connector){
		"a handler more":    func(c *Connector) { c.Handlers["other"] = c.Handlers["read"] },
		"a handler less":    func(c *Connector) { delete(c.Handlers, "read") },
		"a renderer more":   func(c *Connector) { c.Renderers["read"] = c.Renderers["prepared"] },
		"a renderer less":   func(c *Connector) { delete(c.Renderers, "prepared") },
		"a bad declaration": func(c *Connector) { c.Describe.Check = "write" },
	} {
		c := toy(answers(1), answers(1))
		alter(c)
		if _, err := c.verify(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
