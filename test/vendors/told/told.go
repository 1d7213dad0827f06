// SPDX-License-Identifier: Apache-2.0

// Package told is a stand-in for where people are told: a push service with one browser (RFC 8030, 8188, 8291, 8292), an ntfy server
// (docs.ntfy.sh/publish, as JSON), and the receiver of a webhook (Standard Webhooks). What does not hold to its rules is a violation,
// and refused. It reads what was sealed for the browser, as a browser would, with the browser's key and none of ours.
package told

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/test/vendors/standin"
)

// Paths of the one listener.
const (
	PushPath = "/push/abc"
	HookPath = "/hook"
	Topic    = "doorward" // of ntfy
)

// A Notice is one that was taken. Of two with one id the second is the first once more.
type Notice struct {
	Way   string // push, ntfy or hook
	ID    string // webhook-id; of the others thread and state
	Tag   string // what a newer one takes the place of
	State string // of a webhook
	Title string
	Text  string
	Link  string
	Raw   []byte // as it was before sealing
}

// A Server is a running stand-in.
type Server struct {
	*standin.Server
	Authority string // HOST:PORT
	Token     string // that ntfy takes
	Secret    []byte // of the webhook; set before the first one
	Public    []byte // of the browser
	Auth      []byte
	Key       []byte // of the sender, which the browser subscribed with; nil: any

	browser *ecdh.PrivateKey
	mu      sync.Mutex // guards all
	all     []Notice
}

// New starts one.
func New() (*Server, error) {
	base, err := standin.New()
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, Token: "tk_" + rand.Text(), Auth: make([]byte, 16)}
	rand.Read(s.Auth)
	if s.browser, err = ecdh.P256().GenerateKey(rand.Reader); err != nil {
		return nil, fmt.Errorf("make the browser's key: %w", err)
	}
	s.Public = s.browser.PublicKey().Bytes()
	s.Authority, err = s.Open(standin.Options{Listener: "told", Vendor: s.serve})
	return s, err
}

// All are the notices so far.
func (s *Server) All() []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// By are those that came by one way, each once.
func (s *Server) By(way string) []Notice {
	var out []Notice
	for _, n := range s.All() {
		if n.Way == way && !slices.ContainsFunc(out, func(o Notice) bool { return o.ID == n.ID }) {
			out = append(out, n)
		}
	}
	return out
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, body []byte, note *standin.Note) {
	var n Notice
	var err error
	status := http.StatusOK
	switch r.URL.Path {
	case PushPath:
		note.Operation = "push"
		n, err = s.push(r, body)
		status = http.StatusCreated
	case "/":
		note.Operation = "ntfy"
		n, err = s.ntfy(r, body)
	case HookPath:
		note.Operation = "hook"
		n, err = s.hook(r, body)
		status = http.StatusNoContent
	default:
		err = errors.New("nobody is here")
	}
	if r.Method != http.MethodPost {
		err = errors.New("no POST")
	}
	if err != nil {
		note.Refused = true
		note.Violations = append(note.Violations, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.all = append(s.all, n)
	s.mu.Unlock()
	w.WriteHeader(status)
}

func (s *Server) push(r *http.Request, body []byte) (n Notice, err error) {
	if ttl, err := strconv.Atoi(r.Header.Get("TTL")); err != nil || ttl < 0 { // RFC 8030, 5.2
		return n, errors.New("no TTL")
	}
	topic := r.Header.Get("Topic") // 5.4
	if raw, err := base64.RawURLEncoding.DecodeString(topic); len(topic) > 32 || topic == "" || err != nil && len(raw) == 0 {
		return n, errors.New("no topic of at most 32 letters of base64url")
	}
	if u := r.Header.Get("Urgency"); !slices.Contains([]string{"very-low", "low", "normal", "high"}, u) {
		return n, errors.New("no urgency")
	}
	if r.Header.Get("Content-Encoding") != "aes128gcm" || len(body) > 4096 {
		return n, errors.New("not sealed, or longer than 4096 bytes")
	}
	if err := s.vapid(r.Header.Get("Authorization")); err != nil {
		return n, err
	}
	n.Raw, err = s.unseal(body)
	if err != nil {
		return n, err
	}
	var m struct{ Tag, Title, Body, Link string }
	if err := strict(n.Raw, &m); err != nil {
		return n, err
	}
	if m.Tag != topic {
		return n, errors.New("topic and tag differ")
	}
	n.Way, n.ID, n.Tag, n.Title, n.Text, n.Link = "push", m.Tag+" "+m.Title, m.Tag, m.Title, m.Body, m.Link
	return n, nil
}

// vapid verifies who sends (RFC 8292).
func (s *Server) vapid(h string) error {
	rest, ok := strings.CutPrefix(h, "vapid t=")
	token, k, ok2 := strings.Cut(rest, ", k=")
	parts := strings.Split(token, ".")
	if !ok || !ok2 || len(parts) != 3 {
		return errors.New("no sender")
	}
	var raw [4][]byte
	for i, p := range append(parts, k) {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return err
		}
	}
	if s.Key != nil && !bytes.Equal(s.Key, raw[3]) {
		return errors.New("another sender than the browser subscribed with")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw[3])
	if err != nil {
		return err
	}
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	if err := strict(raw[1], &claims); err != nil {
		return err
	}
	left := time.Until(time.Unix(claims.Exp, 0))
	if claims.Aud != "https://"+s.Authority || left <= 0 || left > 24*time.Hour || !strings.HasPrefix(claims.Sub, "https:") {
		return fmt.Errorf("claims %+v", claims)
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(raw[2]) != 64 || !ecdsa.Verify(key, digest[:], new(big.Int).SetBytes(raw[2][:32]), new(big.Int).SetBytes(raw[2][32:])) {
		return errors.New("the sender's signature does not hold")
	}
	return nil
}

// unseal reads what was sealed for the browser (RFC 8291).
func (s *Server) unseal(b []byte) ([]byte, error) {
	if len(b) < 21+65 || b[20] != 65 {
		return nil, errors.New("no head of aes128gcm")
	}
	salt, size, public, sealed := b[:16], binary.BigEndian.Uint32(b[16:20]), b[21:86], b[86:]
	if int(size) < len(sealed) {
		return nil, errors.New("more than one record")
	}
	theirs, err := ecdh.P256().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	shared, err := s.browser.ECDH(theirs)
	if err != nil {
		return nil, err
	}
	input, err := hkdf.Key(sha256.New, shared, s.Auth, "WebPush: info\x00"+string(s.Public)+string(public), 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, sealed, nil)
	if err != nil {
		return nil, err
	}
	plain = bytes.TrimRight(plain, "\x00")
	if !bytes.HasSuffix(plain, []byte{2}) {
		return nil, errors.New("no end of the last record")
	}
	return plain[:len(plain)-1], nil
}

func (s *Server) ntfy(r *http.Request, body []byte) (n Notice, err error) {
	if r.Header.Get("Authorization") != "Bearer "+s.Token {
		return n, errors.New("no token")
	}
	var m struct {
		Topic, Title, Message, Click string
		Sequence                     string `json:"sequence_id"`
		Priority                     int
		Actions                      []struct{ Action, Label, URL string }
	}
	if err := strict(body, &m); err != nil {
		return n, err
	}
	if m.Topic != Topic || m.Message == "" || m.Priority < 0 || m.Priority > 5 || len(m.Message) > 4096 {
		return n, fmt.Errorf("%+v", m)
	}
	for _, a := range m.Actions { // docs.ntfy.sh/publish/#action-buttons
		if a.Action != "view" || a.Label == "" || !strings.HasPrefix(a.URL, "https://") {
			return n, fmt.Errorf("the action %+v", a)
		}
	}
	return Notice{Way: "ntfy", ID: m.Sequence + " " + m.Title, Tag: m.Sequence, Title: m.Title, Text: m.Message, Link: m.Click, Raw: body}, nil
}

func (s *Server) hook(r *http.Request, body []byte) (n Notice, err error) {
	id, at := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
	sec, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" || time.Since(time.Unix(sec, 0)).Abs() > 5*time.Minute {
		return n, errors.New("no id, or not of now")
	}
	h := hmac.New(sha256.New, s.Secret)
	h.Write([]byte(id + "." + at + "."))
	h.Write(body)
	if r.Header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)) {
		return n, errors.New("the signature does not hold")
	}
	var m struct {
		Type, Timestamp string
		Data            struct {
			ID, State, Cell, Connector, Method, Title, Object, Link string
			MadeAt                                                  string `json:"made_at"`
			Count                                                   int
		}
	}
	if err := strict(body, &m); err != nil {
		return n, err
	}
	d := m.Data
	return Notice{Way: "hook", ID: id, Tag: d.ID, State: d.State, Title: d.Title, Text: d.Cell + ": " + d.Connector, Link: d.Link, Raw: body}, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
