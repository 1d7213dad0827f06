// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/notices"
	"github.com/doorward/doorward/sentinel/webpush"
)

// project is who push services may turn to where the page is no address of the network's.
const project = "https://github.com/doorward/doorward"

const (
	maxLine   = 120            // bytes of one line of a notice
	pushKeeps = 24 * time.Hour // how long a push service keeps one for a browser that is away; a card does not wait longer
)

// noticeText is what a notice says. Nothing in it was written by an agent: a text of its choice would be read in a place where nothing
// around it is ours. The vendor's name of what was made is the vendor's text, made visible.
type noticeText struct {
	ID        string `json:"id"` // of the thread: what is told of one card has one
	State     string `json:"state"`
	Count     int    `json:"count"`
	Cell      string `json:"cell,omitempty"`
	Connector string `json:"connector,omitempty"`
	Method    string `json:"method,omitempty"`
	Title     string `json:"title,omitempty"`
	Object    string `json:"object,omitempty"`
	MadeAt    string `json:"made_at,omitempty"` // the object's address at the vendor
	Link      string `json:"link,omitempty"`    // has an opaque id, and shows nothing without a session
}

// headlines say what happened, by state.
var headlines = map[string]string{
	string(ledger.Parked): "A decision waits", string(ledger.Approved): "Approved", string(ledger.Done): "Done",
	string(ledger.Failed): "It failed", string(ledger.Unknown): "It may have run: look before it is repeated",
	string(ledger.Denied): "Denied", string(ledger.Expired): "Nobody decided in time: it did not run",
	string(ledger.Revoked): "It was taken back",
	notices.ApproverAdded:  "Somebody may sign in from now on", notices.ApproverRemoved: "Somebody may not sign in any more",
	notices.WallFailed: "A wall around the cells did not hold: they are frozen",
	notices.Test:       "This is a test: notices arrive here",
}

func (s *Sentinel) textOf(next *notices.Sending, detail string) *noticeText {
	t, i := next.Thread, next.Item
	out := &noticeText{ID: t.ID, State: i.State, Count: i.Count}
	if i.State == string(ledger.Parked) {
		out.Count = max(1, len(t.Waiting))
	}
	if place, _, err := s.place(); err == nil {
		out.Link = place.PageOrigin() + "/"
		if i.Call != "" {
			out.Link += "#card=" + i.Call
		}
	}
	if detail != "none" {
		out.Cell, out.Connector, out.Method = noticeLine(t.Cell), noticeLine(t.Connector), noticeLine(t.Method)
		out.Title, out.Object, out.MadeAt = noticeLine(t.Title), noticeLine(i.Object), i.MadeAt
	}
	return out
}

// noticeLine is a text in one line, made visible and at most maxLine bytes long.
func noticeLine(s string) string {
	if len(s) > maxLine {
		n := maxLine
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return visible.Line(s)
}

// head and text are for people.
func (t *noticeText) head() string {
	h := headlines[t.State]
	if t.State == string(ledger.Parked) && t.Count > 1 {
		return fmt.Sprintf("%d decisions wait", t.Count)
	}
	if t.Count > 1 {
		h += fmt.Sprintf(" (%d)", t.Count)
	}
	return h
}

func (t *noticeText) text() string {
	var parts []string
	if t.Cell != "" {
		parts = append(parts, "cell "+t.Cell)
	}
	for _, p := range []string{t.Connector, t.Title, t.Object} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// notice is the request that tells a target.
func (s *Sentinel) notice(now ledger.Moment, channels []channel, browsers []subscription, next *notices.Sending) (*wire.NotifyReq, error) {
	if id, ok := strings.CutPrefix(next.To, pushTarget); ok {
		i := slices.IndexFunc(browsers, func(b subscription) bool { return b.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no browser %s", id)
		}
		return s.pushNotice(now, &browsers[i], channels, next)
	}
	i := slices.IndexFunc(channels, func(c channel) bool { return c.Name == next.To })
	if i < 0 {
		return nil, fmt.Errorf("no channel %s", next.To)
	}
	c := &channels[i]
	t := s.textOf(next, c.Detail)
	req, err := &wire.NotifyReq{}, error(nil)
	if c.Kind == kindNtfy {
		req, err = ntfyNotice(c, t)
	} else {
		req, err = webhookNotice(c, t, next.ID(), now.Time())
	}
	if err != nil {
		return nil, err
	}
	req.CA, req.Permit = c.Trust, c.Permit
	return req, nil
}

// ntfyNotice publishes as JSON, at the server's root (docs.ntfy.sh/publish). With a sequence id a newer message takes an older one's
// place; servers before 2.16 do not know it, and show both.
func ntfyNotice(c *channel, t *noticeText) (*wire.NotifyReq, error) {
	at := strings.LastIndexByte(c.URL, '/')
	m := map[string]any{"topic": c.URL[at+1:], "title": "Doorward: " + t.head(), "message": orElse(t.text(), "Open the page to see what."),
		"sequence_id": t.ID}
	if t.Link != "" {
		m["click"] = t.Link
	}
	if t.MadeAt != "" {
		m["actions"] = []map[string]string{{"action": "view", "label": "Look at it", "url": t.MadeAt}}
	}
	if t.State == string(ledger.Parked) {
		m["priority"] = 4
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	req := &wire.NotifyReq{URL: c.URL[:at+1], Body: b, Header: []wire.NoticeHeader{{Name: "Content-Type", Value: "application/json"}}}
	if len(c.Secret) > 0 {
		req.Header = append(req.Header, wire.NoticeHeader{Name: "Authorization", Value: "Bearer " + string(c.Secret)})
	}
	return req, nil
}

// webhookNotice is signed as the Standard Webhooks do it: HMAC-SHA256 over id, time and body. The id is the same at each try.
func webhookNotice(c *channel, t *noticeText, id string, now time.Time) (*wire.NotifyReq, error) {
	b, err := json.Marshal(map[string]any{"type": "card." + t.State, "timestamp": now.Format(time.RFC3339), "data": t})
	if err != nil {
		return nil, err
	}
	at := strconv.FormatInt(now.Unix(), 10)
	m := hmac.New(sha256.New, c.Secret)
	m.Write([]byte(id + "." + at + "."))
	m.Write(b)
	return &wire.NotifyReq{URL: c.URL, Body: b, Header: []wire.NoticeHeader{{Name: "Content-Type", Value: "application/json"},
		{Name: "Webhook-Id", Value: id}, {Name: "Webhook-Timestamp", Value: at},
		{Name: "Webhook-Signature", Value: "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))}}}, nil
}

// pushNotice is sealed for the browser: its push service sees neither the text nor, by its length, which it is. The topic has a newer
// one take the place of an older that is still on its way.
func (s *Sentinel) pushNotice(now ledger.Moment, to *subscription, channels []channel, next *notices.Sending) (*wire.NotifyReq, error) {
	t := s.textOf(next, "")
	b, err := json.Marshal(map[string]string{"tag": t.ID, "title": t.head(), "body": t.text(), "link": t.Link})
	if err != nil {
		return nil, err
	}
	body, err := webpush.Seal(&webpush.Receiver{Public: to.Public, Auth: to.Auth}, b)
	if err != nil {
		return nil, err
	}
	host, _, ok := endpoint(to.Endpoint)
	service, known := serviceOf(host, channels)
	if !ok || !known {
		return nil, fmt.Errorf("%s is no push service any more", quote(host))
	}
	contact := project
	if place, _, err := s.place(); err == nil && strings.HasPrefix(place.PageOrigin(), "https:") {
		contact = place.PageOrigin()
	}
	signed, err := webpush.Authorization(s.outbox.push, "https://"+host, contact, now.Time().Add(12*time.Hour))
	if err != nil {
		return nil, err
	}
	urgency := "normal"
	if t.State == string(ledger.Parked) {
		urgency = "high"
	}
	req := &wire.NotifyReq{URL: to.Endpoint, Body: body, Header: []wire.NoticeHeader{{Name: "Authorization", Value: signed},
		{Name: "Content-Type", Value: "application/octet-stream"}, {Name: "Content-Encoding", Value: "aes128gcm"},
		{Name: "TTL", Value: strconv.Itoa(int(pushKeeps / time.Second))}, {Name: "Urgency", Value: urgency}, {Name: "Topic", Value: t.ID}}}
	if service != nil {
		req.CA, req.Permit = service.Trust, service.Permit
	}
	return req, nil
}
