// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// Grants that the benchmark's sentinel gives, each with so many uses.
const (
	benchGrants = 128
	benchUses   = 10000
)

// TestMain makes the test's binary a sentinel of its own process where the benchmark asks for one: with two ends in
// one process, the work of one would be measured as the wait of the other.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "sentinel" {
		if err := benchSentinel(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// benchSentinel grants, says so on standard output, and answers releases until standard input ends.
func benchSentinel(path string) error {
	accounts := make(chan wire.AccountsReq, 1)
	c := &daemon.Client{Path: path, Log: slog.New(slog.DiscardHandler), Pushed: []daemon.Verb{
		daemon.Pushed("accounts", func(_ context.Context, _ *daemon.Call, r *wire.AccountsReq) (*wire.Empty, error) {
			accounts <- *r
			return &wire.Empty{}, nil
		}),
		daemon.Pushed("released", func(context.Context, *daemon.Call, *wire.ReleasedReq) (*wire.Empty, error) {
			return &wire.Empty{}, nil
		}).InOrder(),
	}}
	l, err := c.Link(context.Background())
	if err != nil {
		return err
	}
	for _, account := range (<-accounts).Accounts {
		if account.Name != "work" {
			continue
		}
		for i := range benchGrants {
			g := benchGrant(i)
			g.Generation, g.Digest = account.Generation, account.Digest
			if _, err := ask[wire.Empty](l, "grant", &g); err != nil {
				return err
			}
		}
	}
	fmt.Println("granted")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func benchGrant(i int) wire.GrantReq {
	id := fmt.Sprint(i)
	return wire.GrantReq{
		Grant: "grant-0123456789-" + id, Call: "call-" + id, Worker: "github", Cell: "work", Session: "run-1",
		Frame: wire.Sum([]byte(id)), Account: "work", Unix: time.Now().Add(time.Minute).Unix(),
		Entries: []wire.Entry{{Name: "call", Scheme: "https", Host: "api.github.com", Port: 443, Method: "GET",
			Path: "/user", Uses: benchUses, Credential: true}},
	}
}

// BenchmarkResolveIPC is row authd/resolve-ipc: egress asks authd over its socket, and sentinel is told each time. Its
// denominator is BenchmarkPlainIPC: a question and an answer of the same types and sizes over the same code, with
// nothing behind it.
func BenchmarkResolveIPC(b *testing.B) {
	w := start(b)
	w.as.id = sentinelID // nobody else has connected yet
	child := exec.Command(os.Args[0], "sentinel", w.path("authd-sentinel"))
	child.Stderr = os.Stderr
	until, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	said, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		until.Close()
		_ = child.Wait()
	}()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	var lent []wire.ResolveReq
	for i := range benchGrants {
		g := benchGrant(i)
		resp, err := ask[wire.BorrowResp](worker, "borrow", ptr(borrowOf(g)))
		if err != nil {
			b.Fatal(err)
		}
		lent = append(lent, wire.ResolveReq{Grant: g.Grant, Surrogate: resp.Surrogate, Worker: "github"})
	}
	ctx := context.Background()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		var resp wire.ResolveResp
		if err := egress.Call(ctx, "resolve", &lent[n/benchUses], &resp); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlainIPC is what BenchmarkResolveIPC is compared with.
func BenchmarkPlainIPC(b *testing.B) {
	w := start(b)
	answer := &wire.ResolveResp{
		Secret: token, Placement: githubAccount("work").Placement, Entry: w.grantFor("a").Entries[0], Call: "call-a",
		Cell: "work", Account: "work", Generation: 1, Scrub: []string{token},
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.path("plain"), Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	server := &daemon.Server{
		Name: "plain", Listener: peer.NewListener(ln, w.as, nil), Log: w.authd.log,
		Verbs: []daemon.Verb{daemon.On("resolve", peer.Daemon("egress"),
			func(context.Context, *daemon.Call, *wire.ResolveReq) (*wire.ResolveResp, error) {
				return answer, nil
			}).InOrder()},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	defer func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			b.Error("the server does not end")
		}
	}()
	egress := w.dial("plain", egressID)
	req := wire.ResolveReq{Grant: w.grantFor("a").Grant, Surrogate: token, Worker: "github"}
	b.ReportAllocs()
	for b.Loop() {
		var resp wire.ResolveResp
		if err := egress.Call(ctx, "resolve", &req, &resp); err != nil {
			b.Fatal(err)
		}
	}
}
