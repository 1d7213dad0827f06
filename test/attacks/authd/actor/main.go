// SPDX-License-Identifier: Apache-2.0

// Command actor speaks Doorward's protocol for the attacks on authd, from wherever the test starts it: it dials, asks
// what its lines of input say, and prints what it is answered. As `sentinel` it also takes what authd pushes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// Line is one line of output.
type Line struct {
	Event string          `json:"event"` // answer, accounts, released, refused, connected or error
	Code  string          `json:"code,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

var out sync.Mutex // held while a line is written

func say(event, code string, body any) {
	out.Lock()
	defer out.Unlock()
	b, err := json.Marshal(body)
	if err == nil {
		b, err = json.Marshal(Line{event, code, b})
	}
	if err != nil {
		panic(err) // our own types
	}
	fmt.Printf("%s\n", b)
}

type caller func(verb string, req, resp any) error

// requests are the verbs and what they ask and answer.
var requests = map[string]func(call caller, body []byte) error{
	"mint":       ask[wire.MintReq, wire.MintResp]("mint"),
	"grant":      ask[wire.GrantReq, wire.Empty]("grant"),
	"revoke":     ask[wire.GrantRef, wire.RevokeResp]("revoke"),
	"checkpoint": ask[wire.CheckpointReq, wire.Empty]("checkpoint"),
	"borrow":     ask[wire.BorrowReq, wire.BorrowResp]("borrow"),
	"resolve":    ask[wire.ResolveReq, wire.ResolveResp]("resolve"),
	"add":        ask[wire.AddReq, wire.AccountsResp]("add"),
	"list":       ask[wire.Empty, wire.AccountsResp]("list"),
	"unlock":     ask[wire.UnlockReq, wire.Empty]("unlock"),
}

func ask[Req, Resp any](verb string) func(call caller, body []byte) error {
	return func(call caller, body []byte) error {
		var req Req
		if err := json.Unmarshal(body, &req); err != nil {
			return err
		}
		var resp Resp
		err := call(verb, &req, &resp)
		var refusal *wire.Error
		switch {
		case errors.As(err, &refusal):
			say("answer", string(refusal.Code), refusal.Reason)
		case err != nil:
			say("answer", "broken", err.Error())
		default:
			say("answer", "", resp)
		}
		return nil
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: actor plain|sentinel SOCKET")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		say("error", "", err.Error())
		os.Exit(1)
	}
}

func run(mode, path string) error {
	var call caller
	if mode == "sentinel" {
		c := &daemon.Client{Path: path, Log: slog.New(slog.DiscardHandler), Pushed: []daemon.Verb{
			pushed[wire.AccountsReq]("accounts"), pushed[wire.ReleasedReq]("released"), pushed[wire.RefusedReq]("refused"),
		}}
		l, err := c.Link(context.Background())
		if err != nil {
			return err
		}
		go func() {
			<-l.Done()
			say("gone", "", nil)
		}()
		call = func(verb string, req, resp any) error { return l.Call(context.Background(), verb, req, resp) }
	} else {
		c, err := wire.Dial(path, 20*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		call = func(verb string, req, resp any) error {
			_, err := c.Call(verb, req, resp)
			return err
		}
	}
	say("connected", "", nil)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Verb string          `json:"verb"`
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		f := requests[line.Verb]
		if f == nil {
			return fmt.Errorf("no such verb: %q", line.Verb)
		}
		if err := f(call, line.Body); err != nil {
			return err
		}
	}
	return lines.Err()
}

func pushed[Req any](name string) daemon.Verb {
	return daemon.Pushed(name, func(_ context.Context, _ *daemon.Call, r *Req) (*wire.Empty, error) {
		say(name, "", r)
		return &wire.Empty{}, nil
	}).InOrder()
}
