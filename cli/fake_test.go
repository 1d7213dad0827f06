// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// demo is the vendor of the scripts.
func demo() *describe.Connector {
	entry := []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}
	return &describe.Connector{Vendor: "demo", Title: "Demo of all types", Base: "https://api.example.org", Check: "items",
		Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization"}},
		Methods: []describe.Method{
			{Name: "create", Summary: "make a thing", Class: describe.Write, Reach: describe.ReachPeople, Entries: entry,
				Args: []describe.Arg{
					{Name: "title", Label: "Title", Help: "what it is called, one line", Type: describe.TypeString, Required: true},
					{Name: "body", Label: "Text", Help: "the text", Type: describe.TypeText, Max: 1000, Role: "content"},
					{Name: "to", Label: "To", Help: "an address", Type: describe.TypeEmail, Repeat: 3, Role: "recipient"},
					{Name: "priority", Label: "Priority", Help: "how urgent", Type: describe.TypeEnum,
						Enum: []string{"high", "low"}, Default: "low"},
					{Name: "count", Label: "Count", Help: "how many", Type: describe.TypeInt, Min: 1, Max: 100},
					{Name: "draft", Label: "Draft", Help: "do not send it yet", Type: describe.TypeBool},
					{Name: "attach", Label: "Files", Help: "a file", Type: describe.TypeFile, Repeat: 2, Max: 100000},
					{Name: "start", Label: "Start", Help: "when it begins", Type: describe.TypeWhen},
				}},
			{Name: "hidden", Summary: "is off", Class: describe.Read, Reach: describe.ReachNone, Entries: entry},
			{Name: "items", Summary: "list things", Class: describe.Read, Reach: describe.ReachNone, Entries: entry,
				Labels: []string{wire.LabelUntrusted},
				Args: []describe.Arg{
					{Name: "max", Label: "At most", Help: "how many", Type: describe.TypeInt, Min: 1, Max: 100, Default: "20"},
					{Name: "page", Label: "Page", Help: "from an earlier answer", Type: describe.TypeCursor},
				}},
		}}
}

// sham is sentinel and the worker of demo, for scripts of the command only: it does as the file "does" in its folder
// says, one line for each request, the last line again and again.
type sham struct {
	clitest.Script
	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func (f *sham) note(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(&f.log, format+"\n", a...)
	os.WriteFile(filepath.Join(f.Dir, "seen"), f.log.Bytes(), 0o600)
}

func (f *sham) file(name string) []byte {
	b, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		panic(err)
	}
	return b
}

func (f *sham) frame(fr *wire.Frame, fds []int) {
	f.note("%s %s account=%s", fr.Connector, fr.Method, fr.Account)
	for _, a := range fr.Args {
		f.note("  %s=%q", a.Name, a.Values)
	}
	for i, file := range fr.Files {
		b := make([]byte, file.Size+1)
		n, _ := unix.Pread(fds[i], b, 0)
		got, _ := unix.FcntlInt(uintptr(fds[i]), unix.F_GET_SEALS, 0)
		_, werr := unix.Pwrite(fds[i], []byte("x"), 0)
		f.note("  file %s %q size=%d same=%v sealed=%v write=%v", file.Arg, file.Name, file.Size,
			wire.Sum(b[:n]) == file.SHA256 && int64(n) == file.Size, got&seals == seals, werr)
		os.WriteFile(filepath.Join(f.Dir, fmt.Sprintf("received-%d", i)), b[:n], 0o600)
	}
}

// sentinel answers as sentinel does.
func (f *sham) sentinel(m *wire.Msg, fds []int) (any, []int, *wire.Error) {
	w := f.Line(m.Verb)
	switch m.Verb {
	case "decide":
		var r wire.DecideReq
		if err := wire.Decode(m.Body, &r); err != nil {
			panic(err)
		}
		c := demo()
		c.Seal()
		method, _ := c.Method(r.Frame.Method)
		if _, err := method.Decode(&r.Frame); err != nil {
			return nil, nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
		}
		if r.Frame.Description != c.Digest() {
			return nil, nil, wire.Refuse(wire.CodeWrongDescription, "another description", "")
		}
		f.frame(&r.Frame, fds)
		switch w[0] {
		case "deny":
			return &wire.DecideResp{Verdict: wire.Deny, Err: wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "),
				"ask the person")}, nil, nil
		case "parked", "joined":
			return &wire.DecideResp{Verdict: wire.Parked, Call: "c123", Joined: w[0] == "joined",
				Err: wire.Refuse(wire.CodeNeedsApproval, "a person decides", "")}, nil, nil
		case "bulk":
			return &wire.DecideResp{Verdict: wire.Parked, Call: "c123",
				Err: wire.Refuse(wire.CodeBulkRead, "more than 200 reads in this session", "")}, nil, nil
		case "run", "rejoin":
			return &wire.DecideResp{Verdict: wire.Run, Call: "c123", Joined: w[0] == "rejoin"}, nil, nil
		case "refuse":
			return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "")
		default:
			return &wire.DecideResp{Verdict: wire.Allow, Call: "c123", Grant: "g1"}, nil, nil
		}
	case "wait", "result", "cancel":
		var id string
		if m.Verb == "wait" {
			var r wire.WaitReq
			if err := wire.Decode(m.Body, &r); err != nil {
				panic(err)
			}
			id = r.Call
		} else {
			var r wire.CallRef
			if err := wire.Decode(m.Body, &r); err != nil {
				panic(err)
			}
			id = r.Call
		}
		f.note("%s %s", m.Verb, id)
		r := &wire.Result{Call: id, State: wire.State(w[0])}
		if len(w) > 1 {
			switch {
			case w[1] == "unkept":
				r.Title = "POST chat.example/messages"
				if r.State == wire.StateDenied {
					r.Err = wire.Refuse(wire.CodeDenied, "a person said no", "tell the person what you need instead")
				}
			case w[0] == "done" && w[1] == "gone":
				r.Err = wire.Refuse(wire.CodeExpired, "the call is done; its answer was kept for 24 hours", "")
			case w[0] == "done":
				out, files := f.output(w[1:])
				r.Output = out
				return r, files, nil
			default:
				r.Err = wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "")
			}
		}
		if r.State == wire.StateParked && m.Verb == "wait" {
			time.Sleep(5 * time.Millisecond)
		}
		return r, nil, nil
	case "inbox":
		if len(w) > 0 && w[0] == "unkept" {
			r := new(wire.InboxResp)
			for i, s := range []wire.State{wire.StateParked, wire.StateDone, wire.StateDenied} {
				r.Items = append(r.Items, wire.InboxItem{Call: fmt.Sprint("c", 9-i), State: s, Connector: "doorward", Method: "request",
					Title: "POST chat.example/messages", Unix: 1900000000})
			}
			return r, nil, nil
		}
		return &wire.InboxResp{Items: []wire.InboxItem{
			{Call: "c124", State: wire.StateParked, Connector: "demo", Method: "create", Unix: 1900000000},
			{Call: "c123", State: wire.StateDone, Connector: "demo", Method: "create", Unix: 1899999000},
			{Call: "c122", State: wire.StateDenied, Connector: "demo", Method: "create", Unix: 1899998000, Collected: true},
		}}, nil, nil
	case "surrogate":
		var r wire.SurrogateReq
		if err := wire.Decode(m.Body, &r); err != nil {
			panic(err)
		}
		f.note("surrogate %s", r.Name)
		if r.Name == "" {
			if len(w) == 0 || w[0] == "none" {
				return &wire.SurrogateResp{}, nil, nil
			}
			return &wire.SurrogateResp{Issued: []wire.IssuedHere{
				{Name: "bot", Hosts: []string{"chat.example:443", "*.chat.example:443"}, Place: `the header Authorization, behind "Bot "`,
					Unix: 1900000000},
				{Name: "notes", Hosts: []string{"notes.example:443"}, Place: "the query parameter key",
					Err: wire.Refuse(wire.CodeNotConnected, "the account notes waits", "doorward pending")}}}, nil, nil
		}
		resp := &wire.SurrogateResp{Value: []byte("a\nb")}
		switch {
		case len(w) > 2 && w[0] == "refuse":
			return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "ask the person")
		case len(w) > 1:
			resp.Unix = 1900000000
			fallthrough
		case len(w) > 0:
			resp.Value = []byte(w[0])
		}
		return resp, nil, nil
	case "list":
		c := demo()
		c.Seal()
		judged := c.Digest()
		if len(w) > 0 && w[0] == "outdated" {
			judged[0]++
		}
		return &wire.ListResp{Connectors: []wire.ListConnector{{Name: "demo", Setting: "ask-before-changes", Description: judged,
			Accounts: []wire.ListAccount{{Name: "home"}, {Name: "work", Health: wire.CodeReconnectRequired}},
			Methods:  []wire.ListMethod{{Name: "create", Ask: "ask"}, {Name: "items", Ask: "allow"}}},
			{Name: "other", Setting: "dont-ask"}}}, nil, nil
	}
	return nil, nil, wire.Refuse(wire.CodeInternal, "no such verb "+m.Verb, "")
}

// worker answers as the worker of demo does.
func (f *sham) worker(m *wire.Msg, fds []int) (any, []int, *wire.Error) {
	var r wire.CallReq
	if err := wire.Decode(m.Body, &r); err != nil {
		panic(err)
	}
	f.note("call with %s", r.Grant)
	f.frame(&r.Frame, fds)
	w := f.Line("call")
	if w[0] == "refuse" {
		return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "look at the vendor's page")
	}
	out, files := f.output(w)
	return out, files, nil
}

// output is the answer that the words say: inline FILE [MEDIA], memfd FILE [MEDIA], next FILE TOKEN, none.
func (f *sham) output(w []string) (*wire.Output, []int) {
	out := &wire.Output{Labels: []string{wire.LabelUntrusted}}
	if w[0] == "none" {
		return out, nil
	}
	b := f.file(w[1])
	if w[0] == "next" {
		out.JSON, out.Next, out.Truncated = b, w[2], "two more items"
		return out, nil
	}
	if len(w) > 2 {
		out.Media = w[2]
	}
	if w[0] == "inline" {
		out.JSON = b
		return out, nil
	}
	fd, err := unix.MemfdCreate("answer", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		panic(err)
	}
	if err := writeAll(fd, b); err != nil {
		panic(err)
	}
	out.File = true
	return out, []int{fd}
}
