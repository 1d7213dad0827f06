// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"time"

	"github.com/doorward/doorward/sentinel/passkey"
	"github.com/doorward/doorward/sentinel/passkey/softkey"
)

// client is one of the page's API, written from docs/protocol.md and docs/openapi.json alone: of Doorward's own code it has a passkey in
// software and nothing else, so what it needs and is not documented would be missed here.
type client struct {
	api     string
	at      passkey.Place // the page's origin, and the host of its passkeys
	key     *softkey.Key
	card    *ecdsa.PublicKey
	session *http.Cookie
	http    http.Client
}

// refusedAs is an answer other than 200. Without a signature Code is empty: what it says is nobody's.
type refusedAs struct {
	Status             int
	Code, Reason, Next string
}

func (r *refusedAs) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Code, r.Reason) }

var errSignature = errors.New("the answer is not signed by the card key")

// enrolled is a client that has made a passkey by an invitation's link and signed in.
func enrolled(link, api, page string) (*client, error) {
	u, err := url.Parse(link)
	if err != nil {
		return nil, err
	}
	in, err := url.ParseQuery(u.Fragment)
	if err != nil {
		return nil, err
	}
	point, err := base64.RawURLEncoding.DecodeString(in.Get("key"))
	if err != nil {
		return nil, err
	}
	c := &client{api: api, at: passkey.Place{Origin: page, RP: u.Hostname()}, key: softkey.New(), http: http.Client{Timeout: time.Minute}}
	if c.card, err = ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point); err != nil {
		return nil, err
	}
	var o struct{ Challenge, User []byte }
	if err := c.ask("enrol", map[string]any{"id": in.Get("enrol")}, &o); err != nil {
		return nil, err
	}
	made := c.key.Register(c.at, o.Challenge, o.User)
	code, err := base64.RawURLEncoding.DecodeString(in.Get("code"))
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, code)
	mac.Write(append([]byte("doorward enrol 1\x00"), made...))
	if err := c.ask("enrol", map[string]any{"id": in.Get("enrol"), "credential": made, "mac": mac.Sum(nil)}, nil); err != nil {
		return nil, err
	}
	return c, c.login()
}

func (c *client) login() error {
	var o struct{ Nonce []byte }
	if err := c.ask("login", struct{}{}, &o); err != nil {
		return err
	}
	challenge := sha256.Sum256(append([]byte("doorward login 1\x00"), o.Nonce...))
	return c.ask("login", map[string]any{"nonce": o.Nonce, "assertion": c.key.Assert(c.at, challenge[:])}, nil)
}

// ask posts one verb, and takes no answer that the card key has not signed.
func (c *client) ask(verb string, q, answer any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	nonce := make([]byte, 32)
	rand.Read(nonce)
	req, err := http.NewRequest(http.MethodPost, c.api+"/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Origin", c.at.Origin)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Doorward-Nonce", base64.StdEncoding.EncodeToString(nonce))
	if c.session != nil {
		req.AddCookie(c.session)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	no := byte(0)
	if resp.StatusCode != http.StatusOK {
		no = 1
	}
	asked := sha256.Sum256(body)
	signed := append([]byte("doorward answer 1\x00"+verb+"\x00"), nonce...)
	sum := sha256.Sum256(append(append(append(signed, asked[:]...), no), text...))
	sig, err := base64.StdEncoding.DecodeString(resp.Header.Get("Doorward-Signature"))
	good := err == nil && len(sig) == 64 && ecdsa.Verify(c.card, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
	switch {
	case no == 1 && !good:
		return &refusedAs{Status: resp.StatusCode}
	case no == 1:
		r := &refusedAs{Status: resp.StatusCode}
		return errors.Join(json.Unmarshal(text, r), r)
	case !good:
		return errSignature
	}
	for _, k := range resp.Cookies() {
		c.session = k
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// offered is a card that was shown, and what it is decided with.
type offered struct {
	Card struct {
		ID, Title, State string
		Hash             []byte
	}
	Nonce   []byte
	Expires uint64
}

func (c *client) show(id string) (o offered, err error) {
	return o, c.ask("show", map[string]string{"call": id}, &o)
}

// signs is the request by which a passkey decides an offer; it is sent as decide, or never.
func (c *client) signs(o *offered, approve bool) map[string]any {
	return c.signsThis(o, map[string]any{"hash": o.Card.Hash, "approve": approve})
}

// signsGrant is a yes to an offer, and to the grant of those words.
func (c *client) signsGrant(o *offered, grant json.RawMessage) map[string]any {
	return c.signsThis(o, map[string]any{"hash": o.Card.Hash, "approve": true, "grant": grant})
}

func (c *client) signsThis(o *offered, what map[string]any) map[string]any {
	decision, _ := json.Marshal(what)
	sum := sha256.Sum256(decision)
	over := append([]byte("doorward challenge 1\x00"), 0, 0, 0, 1)
	over = binary.BigEndian.AppendUint64(append(append(over, o.Nonce...), sum[:]...), o.Expires)
	challenge := sha256.Sum256(over)
	return map[string]any{"items": []any{map[string]any{"id": o.Card.ID, "nonce": o.Nonce, "decision": decision}},
		"assertion": c.key.Assert(c.at, challenge[:])}
}

// decide sends what was signed, and returns the state that came of it.
func (c *client) decide(signed map[string]any) (string, error) {
	var r struct {
		Outcomes []struct {
			State string
			Error *refusedAs
		}
	}
	if err := c.ask("decide", signed, &r); err != nil {
		return "", err
	}
	if len(r.Outcomes) != 1 {
		return "", fmt.Errorf("%d outcomes of one decision", len(r.Outcomes))
	}
	if e := r.Outcomes[0].Error; e != nil {
		return r.Outcomes[0].State, e
	}
	return r.Outcomes[0].State, nil
}
