// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"doorward": func() {
			clitest.Enter()
			os.Exit(Main(os.Args[1:], Parts{VerifyFile: verifyFile, Manifest: manifestOf, BuiltIn: builtIn,
				Names: func() []string { return []string{"demo", "mail"} }, Sites: func() []string { return []string{"go: modules"} }}))
		},
	})
}

// verifyFile stands for the ledger's, which this package may not import.
func verifyFile(_ context.Context, path string, pub ed25519.PublicKey, key ed25519.PrivateKey, file []byte) ([]byte,
	string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	r := fmt.Sprintf(`{"size":3,"root":"r","signed":1,"kept":[],"coded":%v,"note":"%d %d"}`, key != nil, len(pub),
		len(file))
	return []byte(r), strings.TrimSpace(string(b)), nil
}

// manifestOf stands for package manifest's, which reads what a script's file says.
func manifestOf(name string, b []byte) (*Manifest, error) {
	m := &Manifest{Place: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "}, Lines: []string{"for: a test", "all else is refused"}}
	switch strings.TrimSpace(string(b)) {
	case "demo manifest":
		m.Hosts = []string{"api.example.org:443", "*.example.org:443"}
	case "mail manifest":
		m.Hosts, m.Place = []string{"mail.example.org:8443"}, wire.Placement{Kind: "basic"}
	case "wider":
		m.Hosts = []string{"api.example.org:443", "*.example.org:443", "evil.test:443"}
	case "elsewhere":
		m.Hosts, m.Place.Prefix = []string{"api.example.org:443", "*.example.org:443"}, "Bearer "
	case "odd":
		m.Hosts, m.Notes = []string{"api.example.org:443"}, []string{"prefix has no space"}
	case "pattern":
		m.Hosts = []string{"*.example.org:443"}
	default:
		return nil, errors.New(name + ":1:1: no hosts")
	}
	return m, nil
}

func builtIn(name string) ([]byte, bool) {
	return []byte(name + " manifest\n"), name == "demo" || name == "mail"
}

func demo() *describe.Connector {
	entry := []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}
	return &describe.Connector{Vendor: "demo", Title: "Demo", Base: "https://api.example.org", Check: "items",
		Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization",
			Prefix: "Bearer "},
			NewURL: "https://example.org/new?name={name}&{scopes}"},
		Methods: []describe.Method{
			{Name: "create", Summary: "make a thing", Class: describe.Write, Reach: describe.ReachPeople, Entries: entry,
				Scopes: []string{"Things: write"}, Grant: []string{"to"},
				Args: []describe.Arg{
					{Name: "title", Label: "Title", Help: "one line", Type: describe.TypeString, Required: true},
					{Name: "to", Label: "To", Help: "an address", Type: describe.TypeEmail, Repeat: 3, Role: "recipient"},
				}},
			{Name: "items", Summary: "list things", Class: describe.Read, Reach: describe.ReachNone, Entries: entry,
				Scopes: []string{"Things: read"}},
		}}
}

func basic() *describe.Connector {
	entry := []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}
	return &describe.Connector{Vendor: "dav", Title: "DAV", Check: "items",
		Tokens: describe.Tokens{Kinds: []string{"basic"}, Placement: wire.Placement{Kind: "basic"},
			Help: "use an app password"},
		Methods: []describe.Method{{Name: "items", Summary: "list", Class: describe.Read, Reach: describe.ReachNone,
			Entries: entry}}}
}

func TestScripts(t *testing.T) {
	clitest.Scripts(t, "doorward", []*describe.Connector{demo(), basic()}, map[string]clitest.Cmd{"serve": serve})
}

// sham is sentinel and authd for scripts of this command only.
type sham struct {
	clitest.Script
	mu  sync.Mutex // guards log
	log bytes.Buffer
	tty *os.File // the other end of the run's terminal
}

func serve(ts *testscript.TestScript, _ bool, args []string) {
	s := &sham{Script: clitest.Script{Dir: ts.Getenv("WORK")}}
	for _, who := range args {
		switch who {
		case "sentinel":
			s.Serve(ts, "approve/sock", s.sentinel)
		case "cells":
			s.Serve(ts, "cells/person/sock", s.cells)
		default:
			s.Serve(ts, "authd/admin/sock", s.authd)
		}
	}
}

func (s *sham) note(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.log, format+"\n", a...)
	os.WriteFile(filepath.Join(s.Dir, "seen"), s.log.Bytes(), 0o600)
}

// read decodes the body of m, or the JSON of a script's file.
func read[T any](m *wire.Msg) *T {
	v := new(T)
	if err := wire.Decode(m.Body, v); err != nil {
		panic(err)
	}
	return v
}

func (s *sham) file(name string, v any) {
	b, err := os.ReadFile(filepath.Join(s.Dir, name))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		panic(err)
	}
}

func (s *sham) sentinel(m *wire.Msg, _ []int) (any, []int, *wire.Error) {
	w := s.Line(m.Verb)
	if m.Verb == "surrogate" && read[wire.PersonSurrogateReq](m).Op == "check" {
		w = s.Line("free")
	}
	if len(w) > 2 && w[0] == "refuse" {
		return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "what to do")
	}
	switch m.Verb {
	case "pending":
		r := &wire.PendingResp{}
		if len(w) > 0 {
			s.file(w[0], &r.Cards)
		}
		if len(w) > 1 { // one at a time
			after := read[wire.ListFrom](m).After
			r.Cards = slices.DeleteFunc(r.Cards, func(k wire.Card) bool { return k.ID <= after })
			if len(r.Cards) > 1 {
				r.Cards, r.Next = r.Cards[:1], r.Cards[0].ID
			}
		}
		return r, nil, nil
	case "show":
		var all []wire.Card
		s.file(w[0], &all)
		for _, k := range all {
			if k.ID == read[wire.CallRef](m).Call {
				return &wire.ShowResp{Card: k}, nil, nil
			}
		}
		return nil, nil, wire.Refuse(wire.CodeNotFound, "no such call", "doorward pending")
	case "decide":
		d := read[wire.DecideCardReq](m)
		s.note("decide %s hash=%x approve=%v why=%q stop=%v", d.ID, d.Hash, d.Approve, d.Why, d.Stop)
		r := &wire.DecideCardResp{State: wire.StateDenied}
		if d.Approve {
			r.State = wire.StateApproved
		}
		if len(w) > 0 && w[0] == "fails" {
			r.State, r.Err = wire.StateFailed, wire.Refuse(wire.CodeConflict, "another policy was taken up since", "doorward policy load")
		}
		if g := d.Grant; g != nil {
			days := ""
			if g.Until > 0 {
				days = " until"
			}
			s.note("grant kind=%s%s session=%q count=%d tainted=%v limits=%v", g.Kind, days, g.Session, g.Count, g.Tainted,
				g.Limits)
			r.Grant = "g7"
		}
		return r, nil, nil
	case "grants":
		r := &wire.GrantsResp{}
		if len(w) > 0 {
			s.file(w[0], &r.Grants)
		}
		if len(w) > 1 {
			if read[wire.ListFrom](m).After == "" {
				r.Next = r.Grants[0].ID
			} else {
				r.Grants[0].ID = "g2"
			}
		}
		return r, nil, nil
	case "revoke":
		q := read[wire.PersonRevokeReq](m)
		s.note("revoke %+v", *q)
		return &wire.Report{Lines: []string{"grant " + q.Grant + " is revoked"}, MayHaveRun: []string{"c9"}}, nil, nil
	case "stop":
		q := read[wire.StopReq](m)
		s.note("stop %+v", *q)
		if q.Resume {
			return &wire.Report{Widening: "w1"}, nil, nil
		}
		return &wire.Report{Lines: []string{"no new grants", "authd voided 2 live grants"},
			MayHaveRun: []string{"c9 demo create"}}, nil, nil
	case "policy":
		q := read[wire.PolicyReq](m)
		s.note("policy %s cell=%q files=%d frame=%v", q.Op, q.Cell, len(q.Files), q.Frame != nil)
		r := &wire.PolicyResp{}
		switch {
		case q.Op == "intercepted": // a page for each line
			lines := []string{"*.chat.example:443 surrogate bot", `registry.npmjs.org:443 policy.toml:1: sites "npm"`}
			if len(w) == 0 || w[0] != "intercepts" {
				return r, nil, nil
			}
			if r.Lines = lines[q.From : q.From+1]; q.From == 0 {
				r.Next = 1
			}
		case q.Op == "methods":
			r.Lines = []string{"demo items", "dav items"}
		case len(w) > 0 && w[0] == "typo":
			r.Problems = []string{`policy.toml:3:1: no method "isues"; did you mean "issues"?`}
		case len(w) > 0 && w[0] == "widens":
			r.Lines, r.Widening = []string{"widens: demo create goes without asking"}, "w1"
		case q.Op == "explain":
			r.Lines = []string{"asks, by policy settings.demo", fmt.Sprint(q.Frame.Args)}
			b, _ := json.Marshal(map[string]any{"session": q.Session, "attended": q.Attended, "by": q.By, "reads": q.Reads,
				"bytes": q.ReadBytes, "unix": q.Unix})
			s.note("supposed %s", b)
		case q.Op == "show":
			r.Lines, r.Notes = []string{"# policy.toml", `organisation = ["example.org"]` + strings.Repeat(" ", 12) + "# ours"},
				[]string{"dont-ask does not cover sensitive methods"}
		}
		return r, nil, nil
	case "surrogate":
		q := read[wire.PersonSurrogateReq](m)
		if q.Op == "list" && q.Name != "" {
			return &wire.PersonSurrogateResp{Issued: []wire.IssuedCustom{{Issue: "i2", Name: "bot", Cell: "work", Hosts: []string{"api.example.org:443"},
				Made: 1900000000, Until: 1, LastUse: 1900001000}}}, nil, nil
		}
		s.note("surrogate %s %s %s manifest=%q until=%v", q.Op, q.Name, q.Cell, q.Manifest, q.Until > 0)
		switch {
		case q.Op == "list" && len(w) > 0:
			return &wire.PersonSurrogateResp{}, nil, nil
		case q.Op == "list":
			return &wire.PersonSurrogateResp{Next: "i1", Issued: []wire.IssuedCustom{{Issue: "i1", Name: "bot", Cell: "play",
				Hosts: []string{"api.example.org:443", "*.example.org:443"}, Made: 1900000000}}}, nil, nil
		case q.Op == "revoke":
			return &wire.PersonSurrogateResp{Lines: []string{"its live traffic is cut"}}, nil, nil
		}
		return &wire.PersonSurrogateResp{Widening: "w2"}, nil, nil
	case "notices":
		q := read[wire.NoticesReq](m)
		s.note("notices %s %s %+v secret=%d", q.Op, q.Name, q.Channel, len(q.Secret))
		r := &wire.NoticesResp{}
		switch {
		case q.Op == "add" && q.Channel.Kind == "webhook" && len(q.Secret) == 0:
			r.Secret = []byte("whsec_AAAA")
		case q.Op == "test":
			if r.Status = 204; len(w) > 0 {
				r.Status = 403
			}
		case len(w) > 0:
			r.Browsers = []wire.NoticeBrowser{{ID: "b1", Approver: "ada", Service: "push.example.org", Made: 1900000000}}
			r.Channels = []wire.NoticeChannel{{Name: "phone", Kind: "ntfy", URL: "https://ntfy.example.org/t", After: 600}}
		}
		return r, nil, nil
	case "approvers":
		q := read[wire.ApproversReq](m)
		s.note("approvers %s %s%s", q.Op, q.Name, map[bool]string{true: " viewer"}[q.Viewer])
		r := &wire.ApproversResp{Key: []byte("a public key")}
		switch q.Op {
		case "link":
			r.Link = "https://ward.example.org:8440/#key=def"
		case "add":
			r.Link, r.Until = "https://ward.example.org:8440/#enrol=i1&code=abc&key=def", time.Now().Add(15*time.Minute).Unix()
		case "recovery":
			if s.note("approvers revoke %t", q.Revoke); !q.Revoke {
				r.Link, r.Code = "https://ward.example.org:8440/#key=def", "0M2G-A185"
			}
		}
		if len(w) > 0 {
			s.file(w[0], &r.Approvers)
		}
		return r, nil, nil
	case "session":
		return &wire.SessionResp{Sessions: []wire.Session{{Cell: "main", Name: "s1", Attended: true, Began: 1900000000}}},
			nil, nil
	case "check":
		if read[wire.CheckReq](m).Account == "" {
			if len(w) > 1 { // those of the longer list, whose logins are 3 and 2
				return &wire.Output{JSON: fmt.Appendf(nil, `[{"login":3,"health":%q},{"login":2,"health":%q}]`, w[0], w[1])}, nil, nil
			}
			if len(w) > 0 && w[0] == "refused" {
				return &wire.Output{JSON: []byte(`[{"account":"home","login":1,"health":"reconnect_required"}]`)}, nil, nil
			}
			return &wire.Output{JSON: []byte(`[]`)}, nil, nil
		}
		return &wire.Output{JSON: []byte(`{"items":[]}`), Bytes: 12}, nil, nil
	case "taint":
		q := read[wire.TaintReq](m)
		r := &wire.TaintResp{Labels: []wire.Cause{{Label: "untrusted", Why: "demo items, call c1", Unix: 1900000000}}}
		if q.Clear {
			r.Widening = "w1"
		}
		return r, nil, nil
	case "audit":
		q := read[wire.AuditReq](m)
		s.note("audit %s id=%q after=%d checkpoint=%d limit=%d", q.Op, q.ID, q.After, len(q.Checkpoint), q.Limit)
		r := &wire.AuditResp{Last: q.After}
		switch q.Op {
		case "checkpoint":
			r.Lines = [][]byte{[]byte("doorward.org/ledger\n3\nroot\n\n— sig\n")}
		case "verify":
			r.Lines = [][]byte{[]byte(`{"size":3,"root":"r","signed":1,"kept":[2],"coded":true}`)}
			if len(w) > 0 && w[0] == "broken" {
				r.Lines = [][]byte{[]byte(`{"size":3,"root":"r","signed":1,"kept":[2],"coded":true,"findings":[{"entry":2,"last":2,"what":"its code does not fit"}]}`)}
				r.Err = wire.Refuse(wire.CodeInternal, "entry 2: its code does not fit", "keep it")
			}
		default:
			if r.More = len(w) > 0 && w[0] == "paged" && q.After < 3; r.More || q.After == 3 {
				r.Lines = [][]byte{fmt.Appendf(nil, `{"n":%d,"time":"2030-03-10T12:00:00Z","type":"deny"}`, q.After)}
				r.Last = q.After + 1
			} else if q.After == 0 {
				r.Lines, r.Last = [][]byte{
					[]byte(`{"n":0,"time":"2030-03-10T12:00:00Z","boot":1,"type":"open"}`),
					[]byte(`{"n":1,"time":"2030-03-10T12:00:01Z","boot":2,"type":"park","actor":"cell:main","cell":"main","call":"c1","details":{"title":"a\u001b[2Jb\u202e"}}`),
				}, 2
			}
		}
		return r, nil, nil
	case "why":
		return &wire.AuditResp{Lines: [][]byte{[]byte(`{"n":4,"time":"2030-03-10T12:00:01Z","type":"deny","actor":"sentinel","cell":"main","call":"c1","subject":"demo",` +
			`"details":{"connector":"demo","method":"create","reason":"the policy denies","policy":"settings.demo","next":"doorward policy explain c1"}}`)}}, nil, nil
	case "watch":
		q := read[wire.WatchReq](m)
		if q.After < 0 {
			return &wire.WatchResp{Last: 1}, nil, nil
		}
		if q.After == 1 {
			last := int64(2)
			if len(w) > 0 && w[0] == "older" {
				last = 0
			}
			return &wire.WatchResp{Last: last, Events: []wire.Event{{N: 2, ID: "c1", State: wire.StateParked,
				Summary: "demo create\x1b[2J", Unix: 1900000000}}}, nil, nil
		}
		return nil, nil, wire.Refuse(wire.CodeUnavailable, "the script ends here", "")
	}
	return nil, nil, wire.Refuse(wire.CodeInternal, "no such verb "+m.Verb, "")
}

func (s *sham) authd(m *wire.Msg, _ []int) (any, []int, *wire.Error) {
	if w := s.Line(m.Verb); len(w) > 2 && w[0] == "refuse" {
		return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "what to do")
	}
	acc := wire.Account{Name: "home", Vendor: "demo", Base: wire.Base{Scheme: "https", Host: "api.example.org", Port: 443},
		Generation: 1, Workers: []string{"demo"}, Unix: 1900000000}
	switch m.Verb {
	case "add":
		q := read[wire.AddReq](m)
		s.note("add %s %s base=%+v placement=%+v secret=%q permit=%v also=%v ca=%d replace=%v", q.Vendor, q.Name, q.Base,
			q.Placement, q.Secret,
			q.Permit, q.Also, len(q.CA), q.Replace)
		acc.Name, acc.Vendor, acc.Base, acc.Placement = q.Name, q.Vendor, q.Base, q.Placement
		return &wire.AccountsResp{Accounts: []wire.Account{acc}}, nil, nil
	case "list":
		all := []wire.Account{acc}
		if len(s.Line("list")) > 0 {
			all = append(all, wire.Account{Name: "box", Vendor: "custom", Base: wire.Base{Scheme: "https", Host: "mail.example.org", Port: 8443},
				Placement: wire.Placement{Kind: "basic", User: "ada"}, Generation: 3}, wire.Account{Name: "bot", Vendor: "custom", Base: acc.Base, Also: []string{"*.example.org:443"},
				Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "}, Generation: 2})
		}
		return &wire.AccountsResp{Accounts: all}, nil, nil
	case "remove":
		s.note("authd remove %s", read[wire.AccountRef](m).Name)
	case "unlock":
		s.note("unlock %q", read[wire.UnlockReq](m).Passphrase)
	default:
		s.note("%s", m.Verb)
	}
	return &wire.Empty{}, nil, nil
}

// cells runs nothing: a run says "hello", and what it was given to read, and ends with code 7.
func (s *sham) cells(m *wire.Msg, _ []int) (any, []int, *wire.Error) {
	w := s.Line(m.Verb)
	if len(w) > 2 && w[0] == "refuse" {
		return nil, nil, wire.Refuse(wire.Code(w[1]), strings.Join(w[2:], " "), "what to do")
	}
	switch m.Verb {
	case "list":
		r := &wire.CellsResp{}
		if len(w) > 0 {
			s.file(w[0], &r.Cells)
		}
		return r, nil, nil
	case "freeze":
		q := read[wire.FreezeReq](m)
		s.note("freeze %s thaw=%v", q.Cell, q.Thaw)
		return &wire.FreezeResp{Cells: []string{q.Cell}}, nil, nil
	case "start", "stop":
		s.note("%s %s", m.Verb, read[wire.CellReq](m).Cell)
		return &wire.Empty{}, nil, nil
	case "run":
		q := read[wire.RunReq](m)
		if q.Start == nil {
			buf := make([]byte, 4096)
			n, _ := s.tty.Read(buf)
			fmt.Fprintf(s.tty, "hello %s", buf[:n])
			s.tty.Close()
			return &wire.RunResp{Session: q.Wait, Code: 7}, nil, nil
		}
		s.note("run %s %q attended=%v plain=%v", q.Start.Cell, q.Start.Args, q.Start.Attended, q.Start.Plain)
		master, tty, err := openTerminal()
		if err != nil {
			return nil, nil, wire.Refuse(wire.CodeInternal, err.Error(), "")
		}
		s.tty = tty
		fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0) // not what a finalizer closes
		master.Close()
		if err != nil {
			return nil, nil, wire.Refuse(wire.CodeInternal, err.Error(), "")
		}
		return &wire.RunResp{Session: "run-1"}, []int{fd}, nil
	}
	return nil, nil, wire.Refuse(wire.CodeInternal, "no such verb "+m.Verb, "")
}
