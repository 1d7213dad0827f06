// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/go-json-experiment/json"
)

// stream sends server-sent events: each message is a wire.WatchResp in JSON, and its id the number of the last event, from which a
// browser that connects again goes on. after=-1 begins with what comes next. Nothing signs them: they are a reason to ask.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, query string) {
	session := s.session(r)
	if session == nil {
		refuse(w, http.StatusUnauthorized, signIn)
		return
	}
	after, err := begin(query, r.Header.Get("Last-Event-ID"))
	if err != nil {
		refuse(w, http.StatusBadRequest, wire.Refuse(wire.CodeUsage, err.Error(), "ask /v1/events?after=NUMBER"))
		return
	}
	if e := s.knows(r.Context(), session); e != nil {
		refuse(w, status(e.Code), e)
		return
	}
	if !take(r.Context(), s.streams, 0) {
		refuse(w, http.StatusTooManyRequests, busy)
		return
	}
	defer func() { <-s.streams }()
	ctx, cancel := context.WithTimeout(r.Context(), streamEnds)
	defer cancel()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // that of the request is over
	_ = rc.SetWriteDeadline(time.Time{})
	for began := false; ctx.Err() == nil; began = true {
		asked := time.Now()
		resp, text, err := s.poll(ctx, session, after)
		if err != nil {
			if !began {
				s.fail(w, "events", err)
			}
			return // the browser connects again, and is told then
		}
		message := []byte(":\n\n") // a sign of life; also to find out who is gone
		if !began || len(resp.Events) > 0 || resp.Last != after {
			message = fmt.Appendf(nil, "id: %d\ndata: %s\n\n", resp.Last, text)
		}
		after = resp.Last
		if !began {
			w.Header().Set("Content-Type", "text/event-stream")
			message = append([]byte("retry: 3000\n"), message...)
		}
		_ = rc.SetWriteDeadline(time.Now().Add(sendTimeout))
		if _, err := w.Write(message); err != nil || rc.Flush() != nil {
			return
		}
		_ = rc.SetWriteDeadline(time.Time{})
		if len(resp.Events) == 0 && began { // whatever sentinel answers, this asks it once a second at most
			pause(ctx, time.Second-time.Since(asked))
		}
	}
}

// poll waits for events after a number, and returns them also as sentinel wrote them: one line.
func (s *Server) poll(ctx context.Context, session []byte, after int64) (*wire.WatchResp, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	q, out, resp := &wire.WebReq{Session: session, Nonce: make([]byte, wire.WebNonce)}, new(wire.WebResp), new(wire.WatchResp)
	var err error
	if q.Body, err = json.Marshal(&wire.WatchReq{After: after}); err != nil {
		return nil, nil, err
	}
	if err := s.events.Call(ctx, "events", q, out); err != nil {
		return nil, nil, err
	}
	if out.Code != "" {
		e := new(wire.Error)
		if err := json.Unmarshal(out.Body, e); err != nil {
			return nil, nil, err
		}
		return nil, nil, e
	}
	if err := json.Unmarshal(out.Body, resp); err != nil {
		return nil, nil, err
	}
	return resp, out.Body, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// begin is the number after which events are asked for: the browser's own, when it connects again, before the query's.
func begin(query, last string) (int64, error) {
	q, err := url.ParseQuery(query)
	if err != nil || len(q) > 1 || len(q) == 1 && len(q["after"]) != 1 {
		return 0, errors.New("events takes after, once")
	}
	text := q.Get("after")
	if last != "" {
		text = last
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < -1 {
		return 0, errors.New("after is a number from -1")
	}
	return n, nil
}
