// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/notices"
	"github.com/doorward/doorward/sentinel/webpush"
)

// Kinds of channels.
const (
	kindNtfy    = "ntfy"
	kindWebhook = "webhook"
	kindService = "pushservice"
)

const (
	channelKey  = "notice/" // settings: a channel, by name
	browserKey  = "push/"   // settings: a browser, by id
	maxChannels = 8
	maxBrowsers = 8 // of one approver
	maxEndpoint = 1024
	maxToken    = 256
	pushTarget  = browserKey // what the target of a browser begins with; no channel has a slash in its name
)

// channel is where people are told, as root added it. Its row is sealed: an ntfy token and a webhook's secret are credentials, and the
// record's file is not sealed otherwise.
type channel struct {
	wire.NoticeChannel
	Secret []byte `json:"secret,omitempty"`
	Trust  []byte `json:"trust,omitempty"` // its CA
	Made   int64  `json:"made"`            // microseconds: the order
}

// subscription is a browser that an approver's session has asked to be told by. It ends with the approver.
type subscription struct {
	ID       string `json:"id"` // of the endpoint: the same browser is one browser
	Approver string `json:"approver"`
	Endpoint string `json:"endpoint"` // what may send there, also
	Public   []byte `json:"public"`
	Auth     []byte `json:"auth"`
	Made     int64  `json:"made"` // seconds
}

// services are the push services of the browsers that there are; a dot stands before a domain with names below it. Others are root's to
// add: an endpoint is chosen by a browser, and by whoever holds approvals.
var services = []string{"fcm.googleapis.com", ".push.services.mozilla.com", ".push.apple.com", ".notify.windows.com"}

// sealing makes what seals rows of notices, and the key that signs for push services, from the seed of the checkpoint key: see newWeb.
func sealing(seed []byte) (cipher.AEAD, *ecdsa.PrivateKey, error) {
	k, err := hkdf.Key(sha256.New, seed, nil, "doorward notices v1", 32)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the notices' key: %w", err)
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the notices' key: %w", err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the notices' key: %w", err)
	}
	for i := range 8 {
		raw, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("doorward push key v1 %d", i), 32)
		if err != nil {
			return nil, nil, fmt.Errorf("derive the push key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil { // but for one draw in 2^32
			return gcm, key, nil
		}
	}
	return nil, nil, errors.New("derive the push key: none in eight draws")
}

// putSealed keeps a row. What it is bound to is its key: it does not open under another.
func (s *Sentinel) putSealed(ctx context.Context, key string, v any, by string, details map[string]string) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.ledgerError(s.ledger.PutSetting(ctx, key, s.outbox.seal.Seal(nil, nil, b, []byte(key)), by, details))
}

// openSealed reads the rows whose key begins with prefix. One that does not open is told in the log, and is none.
func openSealed[T any](s *Sentinel, prefix string) []T {
	var out []T
	for _, v := range s.ledger.Settings(prefix) {
		if len(v.Value) == 0 {
			continue // removed
		}
		var row T
		b, err := s.outbox.seal.Open(nil, nil, v.Value, []byte(v.Key))
		if err == nil {
			err = json.Unmarshal(b, &row)
		}
		if err != nil {
			s.log.Error("nobody is told by what cannot be read; remove it and add it again", "row", v.Key, "err", err.Error())
			continue
		}
		out = append(out, row)
	}
	return out
}

// channels are all that root added, oldest first.
func (s *Sentinel) channels() []channel {
	out := openSealed[channel](s, channelKey)
	slices.SortFunc(out, func(a, b channel) int { return cmp.Compare(a.Made, b.Made) })
	return out
}

// browsers are those whose approver is there, and was when they asked.
func (s *Sentinel) browsers() []subscription {
	out := openSealed[subscription](s, browserKey)
	out = slices.DeleteFunc(out, func(b subscription) bool {
		r, ok := s.approverNamed(b.Approver)
		return !ok || r.Made > b.Made
	})
	slices.SortFunc(out, func(a, b subscription) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// targets are where people are told, each with how long nobody must have looked: browsers at once, and each channel ten minutes after
// the one before unless root said otherwise.
func targets(channels []channel, browsers []subscription) []notices.Target {
	var out []notices.Target
	for i := range browsers {
		out = append(out, notices.Target{Name: pushTarget + browsers[i].ID})
	}
	next := time.Duration(0)
	if len(out) > 0 {
		next = notices.Window
	}
	for i := range channels {
		c := &channels[i]
		if c.Kind == kindService {
			continue
		}
		after := time.Duration(c.After) * time.Second
		if c.After < 0 {
			after = next
		}
		out = append(out, notices.Target{Name: c.Name, After: after})
		next = after + notices.Window
	}
	return out
}

// noticesVerb lists where people are told, and lets root change that: what a channel is told of leaves the machine.
func (s *Sentinel) noticesVerb(ctx context.Context, c *daemon.Call, req *wire.NoticesReq) (*wire.NoticesResp, error) {
	if req.Op != "list" && !c.Peer.Admin {
		return nil, wire.Refuse(wire.CodeNotAllowed, "only root changes who is told", "sudo doorward notice "+short(req.Op))
	}
	switch req.Op {
	case "list":
		return s.listNotices(), nil
	case "add":
		return s.addChannel(ctx, req, actor(c.Peer))
	case "remove":
		for _, key := range []string{channelKey, browserKey} {
			if v, ok := s.ledger.Setting(key + req.Name); ok && len(v.Value) > 0 {
				return &wire.NoticesResp{}, s.ledgerError(s.ledger.PutSetting(ctx, v.Key, nil, actor(c.Peer), nil))
			}
		}
	case "test":
		return s.testNotice(ctx, req.Name)
	default:
		return nil, wire.Refuse(wire.CodeUsage, "notices: no operation "+quote(req.Op), "")
	}
	return nil, wire.Refuse(wire.CodeNotFound, "no channel or browser "+quote(req.Name), "doorward notice list shows them")
}

func (s *Sentinel) listNotices() *wire.NoticesResp {
	r := new(wire.NoticesResp)
	all, told := s.channels(), s.browsers()
	to := targets(all, told)
	for i := range all {
		c := all[i].NoticeChannel
		if j := slices.IndexFunc(to, func(t notices.Target) bool { return t.Name == c.Name }); j >= 0 {
			c.After = int64(to[j].After / time.Second)
		}
		c.CA = nil
		r.Channels = append(r.Channels, c)
	}
	for i := range told {
		host, _, _ := endpoint(told[i].Endpoint)
		r.Browsers = append(r.Browsers, wire.NoticeBrowser{ID: told[i].ID, Approver: told[i].Approver, Service: host, Made: told[i].Made})
	}
	return r
}

func (s *Sentinel) addChannel(ctx context.Context, req *wire.NoticesReq, by string) (*wire.NoticesResp, error) {
	c := channel{Secret: req.Secret, Made: s.ledger.Now().Wall}
	if req.Channel == nil {
		return nil, wire.Refuse(wire.CodeUsage, "add: no channel", "")
	}
	c.NoticeChannel = *req.Channel
	c.Trust, c.CA = c.CA, nil
	if err := checkChannel(&c); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward notice add --help")
	}
	all := s.channels()
	if slices.ContainsFunc(all, func(o channel) bool { return o.Name == c.Name }) {
		return nil, wire.Refuse(wire.CodeConflict, "there is a channel "+c.Name+" already", "sudo doorward notice remove "+c.Name)
	}
	if len(all) >= maxChannels {
		return nil, wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d channels are the most", maxChannels), "sudo doorward notice remove NAME")
	}
	r := new(wire.NoticesResp)
	if c.Kind == kindWebhook && len(c.Secret) == 0 {
		c.Secret = make([]byte, 32)
		rand.Read(c.Secret)
		r.Secret = []byte("whsec_" + base64.StdEncoding.EncodeToString(c.Secret))
	}
	if err := s.beginTelling(ctx); err != nil {
		return nil, err
	}
	return r, s.putSealed(ctx, channelKey+c.Name, &c, by, map[string]string{"kind": c.Kind, "host": hostOf(c.URL)})
}

// checkChannel holds a channel to its form, and takes the secret of a webhook out of the form in which it is written.
func checkChannel(c *channel) error {
	if err := wire.NoticeName(c.Name); err != nil {
		return err
	}
	host, path, ok := endpoint(c.URL)
	switch {
	case !ok:
		return fmt.Errorf("the address %s is none: https://HOST/..., without user, blanks and fragment, at most %d bytes",
			quote(c.URL), maxEndpoint)
	case c.After < -1 || c.After > int64(24*time.Hour/time.Second):
		return errors.New("after is from 0 to 24 hours")
	case c.Detail != "" && c.Detail != "none" && c.Detail != "title":
		return errors.New("detail is none or title")
	case len(c.Trust) > 64<<10 || len(c.Permit) > 8:
		return errors.New("a CA of at most 64 KiB and 8 permits fit")
	}
	switch c.Kind {
	case kindNtfy:
		if path[strings.LastIndexByte(path, '/')+1:] == "" || strings.Contains(path, "?") {
			return errors.New("the address of an ntfy channel ends in its topic: https://HOST/TOPIC")
		}
		if len(c.Secret) > maxToken || bytes.ContainsFunc(c.Secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return errors.New("what was given is no ntfy token")
		}
	case kindWebhook:
		if len(c.Secret) == 0 {
			return nil
		}
		text, _ := strings.CutPrefix(string(c.Secret), "whsec_")
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) < 24 || len(raw) > 64 {
			return errors.New("a webhook's secret is whsec_ and 24 to 64 bytes in base64")
		}
		c.Secret = raw
	case kindService:
		if path != "/" || len(c.Secret) > 0 {
			return fmt.Errorf("a push service is https://%s/ and has no secret", host)
		}
	default:
		return fmt.Errorf("no kind of channel %s: ntfy, webhook or pushservice", quote(c.Kind))
	}
	return nil
}

// endpoint takes an https address apart: host with its port where it is not 443, in lower case, and the rest. egress reads it again, and
// judges where the host leads.
func endpoint(s string) (host, path string, ok bool) {
	rest, found := strings.CutPrefix(s, "https://")
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\\\"<>^`{|}#", r) }
	if !found || len(s) > maxEndpoint || strings.ContainsFunc(s, odd) {
		return "", "", false
	}
	host, path = rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	host = strings.TrimSuffix(strings.ToLower(host), ":443")
	if host == "" || strings.ContainsAny(host, "@%") || path[0] != '/' {
		return "", "", false
	}
	return host, path, true
}

func hostOf(url string) string {
	host, _, _ := endpoint(url)
	return host
}

// serviceOf says whether browsers may be told by that host, and by which of root's channels if it is none of the usual.
func serviceOf(host string, channels []channel) (c *channel, ok bool) {
	for i := range channels {
		if channels[i].Kind == kindService && hostOf(channels[i].URL) == host {
			return &channels[i], true
		}
	}
	return nil, slices.ContainsFunc(services, func(known string) bool {
		return host == known || known[0] == '.' && strings.HasSuffix(host, known)
	})
}

// webPush begins or ends that a browser is told. Nothing is sent to an address that is none of a push service: who holds approvals could
// have egress reach it.
func (s *Sentinel) webPush(ctx context.Context, c *daemon.Call, req *wire.WebPushReq) (*wire.WebPushResp, error) {
	key, err := s.outbox.push.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	r := &wire.WebPushResp{Key: key}
	if req.Endpoint == "" {
		return r, nil
	}
	sum := sha256.Sum256([]byte(req.Endpoint))
	b := subscription{ID: hex.EncodeToString(sum[:12]), Approver: c.Peer.Name, Endpoint: req.Endpoint, Public: req.Public, Auth: req.Auth,
		Made: s.ledger.Now().Time().Unix()}
	all := s.browsers()
	i := slices.IndexFunc(all, func(o subscription) bool { return o.ID == b.ID && o.Approver == b.Approver })
	if r.On = i >= 0; len(req.Public) == 0 && !req.Off {
		return r, nil
	}
	if r.On = false; req.Off {
		if i < 0 {
			return r, nil
		}
		return r, s.ledgerError(s.ledger.PutSetting(ctx, browserKey+b.ID, nil, actor(c.Peer), nil))
	}
	host, _, ok := endpoint(b.Endpoint)
	if ok {
		_, ok = serviceOf(host, s.channels())
	}
	if !ok {
		return nil, wire.Refuse(wire.CodeNotAllowed, "this browser's push service, "+quote(host)+", is not known",
			"if it is to be, root adds it: sudo doorward notice add pushservice NAME https://HOST/")
	}
	if err := (&webpush.Receiver{Public: b.Public, Auth: b.Auth}).Check(); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	r.On = true
	if i >= 0 && bytes.Equal(all[i].Public, b.Public) && bytes.Equal(all[i].Auth, b.Auth) {
		return r, nil
	}
	mine := 0
	for j := range all {
		if all[j].Approver == b.Approver && all[j].ID != b.ID {
			mine++
		}
	}
	if mine >= maxBrowsers {
		return nil, wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d browsers of yours are told already", maxBrowsers),
			"end one there; or root does: sudo doorward notice list, sudo doorward notice remove ID")
	}
	if err := s.beginTelling(ctx); err != nil {
		return nil, err
	}
	return r, s.putSealed(ctx, browserKey+b.ID, &b, actor(c.Peer), map[string]string{"approver": b.Approver, "service": host})
}

// voidNotices takes all channels and browsers back: an older record may have one that was removed since, and would tell it again.
func (s *Sentinel) voidNotices(ctx context.Context, why string) {
	for _, prefix := range []string{channelKey, browserKey} {
		for _, v := range s.ledger.Settings(prefix) {
			if len(v.Value) == 0 {
				continue
			}
			if err := s.ledger.PutSetting(ctx, v.Key, nil, "sentinel", map[string]string{"why": why}); err != nil {
				s.log.Error("a channel of an older record is not taken back", "row", v.Key, "err", err.Error())
				continue
			}
			s.log.Warn("who is told is taken back; add it again", "row", v.Key, "why", why)
		}
	}
}
