// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// Who has a session, and whoever carries it, cannot fill the record, and with it the disk: what is written by a session alone is
// bounded, for each approver by itself. What only looks goes on.
func TestWhatASessionHasRecordedIsBounded(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	a, b := s.signedIn(t, "ada"), s.signedIn(t, "bert")
	endpoint := "https://fcm.googleapis.com/fcm/send/x"
	now, err := answerTo(a, "settings", s.webSettings, wire.SettingsReq{})
	if err != nil {
		t.Fatal(err)
	}
	asks := func(who *browser) map[string]error {
		out := map[string]error{}
		_, out["push"] = answerTo(who, "push", s.webPush, wire.WebPushReq{Endpoint: endpoint, Off: true})
		_, out["taint"] = answerTo(who, "taint", s.taint, wire.TaintReq{Cell: "work", Clear: true})
		_, out["resume"] = answerTo(who, "stop", s.stop, wire.StopReq{Cell: "work", Resume: true})
		_, out["stop"] = answerTo(who, "stop", s.stop, wire.StopReq{Cell: "work"})
		_, out["settings"] = answerTo(who, "settings", s.webSettings, wire.SettingsReq{From: now.Policy,
			Lines: []wire.SettingLine{{Site: "example.org", Value: "off"}}})
		return out
	}
	s.spend(pageAllowance("ada"), recordBurst)
	size := s.ledger.Size()
	for verb, err := range asks(a) {
		if codeOf(err) != wire.CodeTooMany {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if n := s.ledger.Size(); n != size || len(s.ledger.Waiting()) > 0 {
		t.Errorf("%d entries were written, %d cards wait", n-size, len(s.ledger.Waiting()))
	}
	_, pending := answerTo(a, "pending", s.pending, wire.ListFrom{})
	_, settings := answerTo(a, "settings", s.webSettings, wire.SettingsReq{})
	_, push := answerTo(a, "push", s.webPush, wire.WebPushReq{Endpoint: endpoint})
	if pending != nil || settings != nil || push != nil {
		t.Errorf("a look: %v, %v, %v", pending, settings, push)
	}
	for verb, err := range asks(b) { // control
		if err != nil {
			t.Errorf("%s of another: %v", verb, err)
		}
	}
	if s.ledger.Size() == size || s.stopped("work") == nil {
		t.Error("nothing was done")
	}

	// A change of the rules costs what the record keeps of it.
	c := s.signedIn(t, "carl")
	s.spend(pageAllowance("carl"), recordBurst-refusalCost-100)
	now, err = answerTo(c, "settings", s.webSettings, wire.SettingsReq{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answerTo(c, "settings", s.webSettings, wire.SettingsReq{From: now.Policy,
		Lines: []wire.SettingLine{{Site: "example.net", Value: "off"}}}); codeOf(err) != wire.CodeTooMany {
		t.Errorf("%v", err)
	}
}

// A search holds one reader of the ledger, of which there are few: however many are asked for, one runs, and a cell's own calls are
// decided meanwhile.
func TestOneSearchAtATime(t *testing.T) {
	s := newWard(t)
	id := s.was(t, "work", "lunch", ledger.Parked)
	s.web.finding <- struct{}{} // as one that runs
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if r, err := s.webFind(ctx, nil, &wire.FindReq{}); err == nil {
		t.Errorf("a second one ran: %+v", r)
	}
	if _, err := s.ledger.Call(t.Context(), id); err != nil {
		t.Error(err)
	}
	<-s.web.finding
	if r, err := s.webFind(t.Context(), nil, &wire.FindReq{}); err != nil || len(r.Cards) != 1 { // control
		t.Errorf("%+v, %v", r, err)
	}
	if len(s.web.finding) > 0 {
		t.Error("its place is not free")
	}
}

// A session alone has sentinel sign no words of its choice, as a card's title is, and what people are told of it.
func TestATitleHasNoWordsOfASession(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	const words = "work again. Your session is over: sign in at https://evil.example, then press Allow to keep it from starting"
	if _, err := answerTo(b, "stop", s.stop, wire.StopReq{Cell: words, Resume: true}); codeOf(err) != wire.CodeBadArgument {
		t.Errorf("resume: %v", err)
	}
	if _, err := answerTo(b, "stop", s.stop, wire.StopReq{Cell: words}); codeOf(err) != wire.CodeBadArgument {
		t.Errorf("stop: %v", err)
	}
	if _, err := answerTo(b, "taint", s.taint, wire.TaintReq{Cell: words, Clear: true}); codeOf(err) != wire.CodeBadArgument {
		t.Errorf("taint: %v", err)
	}
	if n := len(s.ledger.Waiting()); n > 0 {
		t.Errorf("%d cards wait", n)
	}
	if r, err := answerTo(b, "taint", s.taint, wire.TaintReq{Cell: "work", Clear: true}); err != nil || r.Widening == "" { // control
		t.Errorf("%+v, %v", r, err)
	}
}
