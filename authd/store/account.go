// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/authd/guarded"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of what an account holds, in bytes unless they say otherwise.
const (
	// MinSecret: a shorter credential cannot be scrubbed from answers without tearing holes into them.
	MinSecret = 8
	// MaxSecret bounds credentials: a header of common servers takes 8 KiB in all.
	MaxSecret   = 4096
	MaxCA       = 64 << 10
	MaxAccounts = 200 // in number
	maxUser     = 255
	maxHost     = 253
	maxPath     = 512
	maxList     = 64 // entries of workers and scopes
	maxWord     = 128
)

// Custom is the vendor of accounts whose surrogates are issued into cells, for hosts that no worker speaks to. No worker may
// borrow one.
const Custom = "custom"

// Settings are what an account is besides its credential.
type Settings struct {
	Name      string         `json:"name"`   // unique in the store, [a-z0-9-]{1,32}
	Vendor    string         `json:"vendor"` // [a-z0-9]{1,32}
	Base      wire.Base      `json:"base"`
	Placement wire.Placement `json:"placement"`
	CA        string         `json:"ca,omitempty"`     // PEM; empty is the system's roots
	Permit    []string       `json:"permit,omitempty"` // ip:port that may be reached though they are not public
	Also      []string       `json:"also,omitempty"`   // host:port of the vendor's second hosts, without credential
	// Of a custom account Also are further hosts of its credential, and "*.x:port" stands for all names below x, but not x; there
	// are no Workers.
	Workers []string  `json:"workers"`          // vendors whose workers may borrow it, sorted
	Scopes  []string  `json:"scopes,omitempty"` // as the vendor names them
	Owner   string    `json:"owner,omitempty"`  // the person's address or login at the vendor
	Health  wire.Code `json:"health,omitempty"` // empty is well
	// Generation is of the login: it rises with each new credential, and none is ever used twice in a store.
	Generation int64 `json:"generation"`
	Created    int64 `json:"created"` // seconds
	Changed    int64 `json:"changed"` // seconds
}

// Account is an account with its credential. It is not changed once it is in a store: a change is a new Account.
type Account struct {
	Settings
	Digest wire.Digest     // of what a person decides about it; see decided
	Shape  surrogate.Shape // of its surrogates
	Secret *guarded.Value  // the token, or Basic's password
}

// record is the plaintext of an account's record.
type record struct {
	Settings
	Secret []byte `json:"secret"`
}

// decided is the digest over what widens: where the credential may go, how, and for whom. A change of any of it makes
// the account unusable until sentinel has had it decided anew.
func (s *Settings) decided() (wire.Digest, error) {
	b, err := wire.Marshal(struct {
		Tag       string         `msgpack:"0"`
		Vendor    string         `msgpack:"v"`
		Base      wire.Base      `msgpack:"b"`
		Placement wire.Placement `msgpack:"p"`
		CA        string         `msgpack:"c"`
		Permit    []string       `msgpack:"t"`
		Also      []string       `msgpack:"a"`
		Workers   []string       `msgpack:"w"`
	}{"doorward account 1", s.Vendor, s.Base, s.Placement, s.CA, s.Permit, s.Also, s.Workers}) // custom: workers are nil
	if err != nil {
		return wire.Digest{}, fmt.Errorf("digest account: %w", err)
	}
	return wire.Sum(b), nil
}

// Public is what others may know of the account.
func (a *Account) Public() wire.Account {
	return wire.Account{
		Name: a.Name, Vendor: a.Vendor, Base: a.Base, Placement: a.Placement, Generation: a.Generation,
		Digest: a.Digest, Permit: slices.Clone(a.Permit), Also: slices.Clone(a.Also), PrivateCA: a.CA != "",
		Workers: slices.Clone(a.Workers),
		Scopes:  slices.Clone(a.Scopes), Owner: a.Owner, Health: a.Health, Unix: a.Changed,
	}
}

// Allows says whether the worker of a vendor may borrow the account.
func (a *Account) Allows(vendor string) bool {
	return a.Vendor != Custom && slices.Contains(a.Workers, vendor)
}

// Holds says whether an entry that carries the credential stays within the account's base; of a custom account, on one of its
// hosts.
func (a *Account) Holds(e *wire.Entry) bool {
	if a.Vendor == Custom {
		return a.holdsCustom(e)
	}
	if len(e.Also) > 0 || e.Scheme != a.Base.Scheme || e.Host != a.Base.Host || e.Port != a.Base.Port {
		return false
	}
	if e.Follow != "" || a.Base.Path == "" {
		return true
	}
	rest, under := strings.CutPrefix(e.Path, a.Base.Path)
	return under && (rest == "" || rest[0] == '/')
}

// holdsCustom is Holds of a custom account. The entry's host is one host: it is never a pattern itself, nor where a redirect leads.
func (a *Account) holdsCustom(e *wire.Entry) bool {
	if e.Scheme != "https" || e.Follow != "" || len(e.Also) > 0 || !isHost(e.Host) {
		return false
	}
	if e.Host == a.Base.Host && e.Port == a.Base.Port {
		return true
	}
	return slices.ContainsFunc(a.Also, func(also string) bool {
		host, port, err := net.SplitHostPort(also)
		if err != nil || port != strconv.Itoa(e.Port) {
			return false
		}
		if below, ok := strings.CutPrefix(host, "*"); ok { // .x, and isHost has seen that a label is before it
			return strings.HasSuffix(e.Host, below)
		}
		return host == e.Host
	})
}

// credentialRefusal is a refusal of a credential, in words that do not show it.
func credentialRefusal(reason, next string) error {
	return wire.Refuse(wire.CodeBadCredential, reason, next)
}

func settingRefusal(reason, next string) error {
	return wire.Refuse(wire.CodeBadArgument, reason, next)
}

// validate reports the first thing about s that cannot be stored. It runs at import and again on all that is read back.
func (s *Settings) validate() error {
	switch {
	case !isName(s.Name, true):
		return settingRefusal("the account's name is not of 1 to 32 of a-z, 0-9 and inner -", "choose another name")
	case !isName(s.Vendor, false):
		return settingRefusal("the vendor is not of 1 to 32 of a-z and 0-9", "see `doorward account add --help`")
	case s.Vendor == Custom && len(s.Workers) > 0:
		return settingRefusal("no worker may use a custom account", "leave the workers out")
	case s.Vendor == Custom && (s.Base.Scheme != "https" || s.Base.Path != ""):
		return settingRefusal("a custom account is for whole hosts, by https", "write its address as https://host")
	case s.Vendor != Custom && len(s.Workers) == 0 || len(s.Workers) > maxList || !slices.IsSorted(s.Workers):
		return settingRefusal("the list of workers is empty or too long", "name the vendors whose workers may use it")
	case len(slices.Compact(slices.Clone(s.Workers))) != len(s.Workers):
		return settingRefusal("a worker is named twice", "name each worker once")
	case slices.ContainsFunc(s.Workers, func(w string) bool { return !isName(w, false) }):
		return settingRefusal("a worker is not of 1 to 32 of a-z and 0-9", "name the vendors whose workers may use it")
	case len(s.Scopes) > maxList || slices.ContainsFunc(s.Scopes, func(w string) bool { return !isText(w, maxWord) }):
		return settingRefusal("the scopes are too many or hold control bytes", "give at most 64, each as the vendor names it")
	case s.Owner != "" && !isText(s.Owner, maxUser):
		return settingRefusal("the owner is too long or holds control bytes", "give the address or login at the vendor")
	case s.Health != "" && !isName(strings.ReplaceAll(string(s.Health), "_", "-"), true):
		return settingRefusal("the health is no reason code", "")
	}
	if err := s.validateBase(); err != nil {
		return err
	}
	if err := validatePlacement(&s.Placement); err != nil {
		return err
	}
	return validateCA(s.CA)
}

func (s *Settings) validateBase() error {
	b := &s.Base
	if len(s.Permit) > maxList || len(s.Also) > maxList {
		return settingRefusal("the permitted addresses or second hosts are too many", "give at most 64")
	}
	loopback := len(s.Permit) > 0
	for _, permit := range s.Permit {
		addr, ok := parsePermit(permit)
		if !ok {
			return settingRefusal("a permitted address is not one address and port",
				"write it as 192.0.2.7:443 or [2001:db8::7]:443")
		}
		loopback = loopback && addr.IsLoopback()
	}
	for _, also := range s.Also {
		host, port, err := net.SplitHostPort(also)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || net.JoinHostPort(host, strconv.FormatUint(n, 10)) != also ||
			!isHost(host) && !(s.Vendor == Custom && isPattern(host)) {
			return settingRefusal("a second host is not one host and port", "write it as logs.example.org:443")
		}
	}
	switch {
	case b.Scheme == "https":
	case b.Scheme == "http" && loopback:
	case b.Scheme == "http":
		return settingRefusal("http would send the credential in clear",
			"use https; http is for permitted loopback addresses only")
	default:
		return settingRefusal("the base address is not https", "write it as https://host/path")
	}
	switch {
	case !isHost(b.Host):
		return settingRefusal("the host is not a name in lower case or an address",
			"write it as it stands in the certificate")
	case b.Port < 1 || b.Port > 65535:
		return settingRefusal("the port is not between 1 and 65535", "leave it out for 443")
	case !isBasePath(b.Path):
		return settingRefusal("the path of the base address is not canonical",
			"begin it with /, end it without, and use no .., //, %, ; or backslash")
	}
	return nil
}

// parsePermit reads ip:port in its one canonical spelling.
func parsePermit(s string) (netip.Addr, bool) {
	p, err := netip.ParseAddrPort(s)
	addr := p.Addr()
	if err != nil || p.String() != s || p.Port() == 0 || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() ||
		addr.IsMulticast() {
		return netip.Addr{}, false
	}
	return addr, true
}

// reserved are headers that frame or route a request; a credential in them would change what the request is.
var reserved = [...]string{
	"connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "host", "keep-alive",
	"origin", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "via",
}

func validatePlacement(p *wire.Placement) error {
	const next = "a manifest says it in [placement]: doorward surrogate check FILE reads one, doorward surrogate manifest has examples"
	switch p.Kind {
	case "header":
		if !isToken(p.Name) || slices.Contains(reserved[:], strings.ToLower(p.Name)) {
			return settingRefusal("the header that carries the credential is no header name, or one that frames requests", next)
		}
		if p.Prefix != "" && (!isText(p.Prefix, maxWord) || !isASCII(p.Prefix)) {
			return settingRefusal("what stands before the credential in its header holds control bytes", next)
		}
	case "basic":
		if !isText(p.User, maxUser) || strings.Contains(p.User, ":") {
			return settingRefusal("the user name is empty, too long, or holds a colon or control bytes", next)
		}
	case "query":
		if !isToken(p.Name) || strings.ContainsAny(p.Name, "&+%#'`|^!*$~") {
			return settingRefusal("the query parameter that carries the credential has no usable name", next)
		}
	case "path":
		if p.Prefix != "" && (!isText(p.Prefix, maxWord) || !isBasePath("/"+p.Prefix) || strings.Contains(p.Prefix, "/")) {
			return settingRefusal("what stands before the credential in its path segment is not canonical", next)
		}
	default:
		return settingRefusal("the credential's place is not header, basic, query or path", next)
	}
	if (p.Name != "" && p.Kind != "header" && p.Kind != "query") || (p.User != "" && p.Kind != "basic") ||
		(p.Prefix != "" && p.Kind != "header" && p.Kind != "path") {
		return settingRefusal("a setting does not belong to this placement of the credential", next)
	}
	return nil
}

// validateSecret refuses what cannot stand in its place unaltered: a line break in a header would be a header of the
// vendor's choice, or of whoever gave the credential.
func validateSecret(secret []byte, p *wire.Placement) error {
	switch {
	case len(secret) < MinSecret:
		return credentialRefusal(fmt.Sprintf("the credential is shorter than %d bytes", MinSecret),
			"a shorter one cannot be kept out of answers; have the vendor issue a longer one")
	case len(secret) > MaxSecret:
		return credentialRefusal(fmt.Sprintf("the credential is longer than %d bytes", MaxSecret),
			"give the credential alone")
	case surrogate.Marked(secret):
		return credentialRefusal("this is one of Doorward's own surrogates, not a credential", "give what the vendor issued")
	}
	for _, c := range secret {
		if c < ' ' || c == 0x7f {
			return credentialRefusal("the credential holds a control byte or a line break",
				"give it on one line, without what stands around it")
		}
	}
	switch {
	case !utf8.Valid(secret):
		return credentialRefusal("the credential is not text", "give it as the vendor shows it")
	case p.Kind == "basic":
		return nil
	case bytes.ContainsRune(secret, ' ') || slices.ContainsFunc(secret, func(c byte) bool { return c > 0x7e }):
		return credentialRefusal("the credential holds a space or a character outside ASCII",
			"give the token alone, without a word before it")
	}
	return nil
}

func validateCA(ca string) error {
	if ca == "" {
		return nil
	}
	const next = "give the certificate of the authority in PEM form"
	if len(ca) > MaxCA {
		return settingRefusal(fmt.Sprintf("the CA is larger than %d bytes", MaxCA), next)
	}
	for rest := []byte(ca); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return settingRefusal("the CA is not a list of certificates in PEM form", next)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return settingRefusal("the CA holds a certificate that cannot be read", next)
		}
	}
	return nil
}

// isName: 1 to 32 of a-z and 0-9, with dashes inside where dash.
func isName(s string, dash bool) bool {
	if len(s) < 1 || len(s) > 32 {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && dash && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// isText: 1 to limit bytes of UTF-8 without control characters.
func isText(s string, limit int) bool {
	if s == "" || len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || (r >= 0x7f && r <= 0x9f) })
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7e })
}

// isToken: a token of RFC 9110 section 5.6.2, of at most 128 bytes.
func isToken(s string) bool {
	if s == "" || len(s) > maxWord {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// isHost: a DNS name in lower case without a trailing dot, or an address in its one canonical spelling.
func isHost(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.String() == s && addr.Zone() == "" && !addr.Is4In6()
	}
	if s == "" || len(s) > maxHost {
		return false
	}
	numeric := false
	for label := range strings.SplitSeq(s, ".") {
		if len(label) < 1 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		numeric = true
		for _, c := range []byte(label) {
			switch {
			case c >= '0' && c <= '9':
			case c >= 'a' && c <= 'z', c == '-', c == '_':
				numeric = false
			default:
				return false
			}
		}
	}
	return !numeric // a name whose last label is a number is an address in some other spelling
}

// isPattern: "*." and a name of two labels or more. One label is a whole domain of strangers.
func isPattern(s string) bool {
	below, ok := strings.CutPrefix(s, "*.")
	return ok && strings.Contains(below, ".") && isHost("a."+below) && isHost(below)
}

// isBasePath: empty, or a canonical path without a trailing slash. Only characters that need no escape.
func isBasePath(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != '/' || len(s) > maxPath {
		return false
	}
	for segment := range strings.SplitSeq(s[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
		for _, c := range []byte(segment) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			case strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0:
			default:
				return false
			}
		}
	}
	return true
}
