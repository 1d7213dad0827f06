// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// Facts is what requests are read for. All of it is set where requests are to be read; without, every one is refused.
type Facts struct {
	// Path brings a path as written into the one form that is judged, or says that it can be read in two ways.
	Path func(raw string) (canonical string, err error)
	// Match says whether a canonical path is one of a pattern's (wire.Reading.Path).
	Match func(pattern, path string) bool
	// Read says what a request does whose whole body is at hand, without Content-Encoding; as is wire.Reading.As, media its
	// Content-Type.
	Read func(as, method, path, query, media string, body []byte) (does []string, model *wire.ModelUse)
	// Git says what a request of git over HTTP does, media its Content-Type; need, where it is not 0, is how many bytes of its body
	// it has to see for that, without Content-Encoding, and all that start is all of it: then need is 0. What is no such request
	// does nothing.
	Git func(method, path, query, media string, start []byte, all bool) (does []string, need int)
	// Override says that a field of that name gives a request another method, path or host in some servers. Nil: none does.
	Override func(name string) bool
	// Shape is a refusal of that status in the error shape of that kind; nil: as {code, reason, next}.
	Shape func(kind string, status int, e *wire.Error) (media string, body []byte)
}

func (f *Facts) whole() bool {
	return f != nil && f.Path != nil && f.Match != nil && f.Read != nil && f.Git != nil
}

// session is one intercepted connection.
type session struct {
	k       *conn
	to      target
	resp    *wire.ConnectResp
	clear   bool // without TLS
	permits []netip.AddrPort
	// broken is why the server cannot be reached; each request is told.
	broken  *wire.Error
	out, in atomic.Int64 // bytes of heads and bodies
	left    atomic.Bool  // something may have reached the server
}

// request is one as it is judged, of either protocol.
type request struct {
	method string
	swap.Head
	upgrade bool
	// start reads the beginning of the body, at most n bytes, and puts it back; whole says that this is all of it.
	start func(n int) (b []byte, whole bool, err error)
}

func (r *request) get(name string) string {
	for _, f := range r.Fields {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

func (r *request) grpc() bool { return strings.HasPrefix(r.get("Content-Type"), "application/grpc") }

// refusal is an answer of ours.
type refusal struct {
	*wire.Error
	status    int
	challenge string // of a 401
}

func refuse(e *wire.Error) *refusal { return &refusal{Error: e, status: status(e.Code)} }

// text is a refusal's body.
func (s *session) text(ref *refusal) (media string, body []byte) {
	if f := s.k.s.Facts; f.Shape != nil {
		return f.Shape(s.resp.Shape, ref.status, ref.Error)
	}
	body, err := json.Marshal(ref.Error)
	if err != nil {
		body = []byte("{}")
	}
	return "application/json", append(body, '\n')
}

// verdict is a request that may go.
type verdict struct {
	id     string
	under  []string
	fresh  *server // of the same authority without a credential
	server *server
	// Of a request with a surrogate.
	scrub *swap.Scrubber
	shown string // what stands in answers where the credential did
	sent  wire.SentReq
}

// misplaced refuses a request whose surrogate is not where it belongs, and says where that is.
func (s *session) misplaced(why string) *wire.Error {
	name := s.resp.Surrogate
	if name == "" {
		name = "NAME"
	}
	return wire.Refuse(wire.CodeBadSurrogate, why+"; the place of "+name+" is "+s.resp.Credential.Words(),
		"send what `connector surrogate "+name+"` prints there, and nowhere else")
}

// judge holds a request to what is known here, asks sentinel, and with its grant puts the credential in the surrogate's place of
// r. Whoever gets a verdict calls settle.
func (s *session) judge(ctx context.Context, r *request) (*verdict, *refusal) {
	v, ref := s.decide(ctx, r)
	if ref != nil && ref.Code != wire.CodeUnavailable {
		s.k.s.warn("refused a request", "to", s.to.String(), "method", r.method, daemon.KeyReason, ref.Error.Error())
	}
	return v, ref
}

func (s *session) decide(ctx context.Context, r *request) (*verdict, *refusal) {
	if s.broken != nil {
		return nil, s.local(r, refuse(s.broken))
	}
	for _, f := range r.Fields {
		if s.overrides(f.Name) {
			return nil, s.local(r, refuse(wire.Refuse(wire.CodeUsage, f.Name+" gives a request another method or address than it says",
				"send it with those")))
		}
	}
	if e := plainFields(r.Fields); e != nil {
		return nil, s.local(r, refuse(e))
	}
	path, err := s.k.s.Facts.Path(r.Path)
	if err != nil {
		return nil, s.local(r, refuse(wire.Refuse(wire.CodeUsage, "the path cannot be read in one way only", "write it plainly")))
	}
	found, ref := s.surrogate(r)
	if ref != nil {
		return nil, s.local(r, ref)
	}
	if e := s.k.s.budget.request(s.to.String()); e != nil {
		return nil, s.local(r, refuse(e))
	}
	req := &wire.RequestReq{Conn: s.resp.ID, Name: s.to.host.String(), Port: s.to.port, Clear: s.clear, Method: r.method,
		Path: path, Query: r.Query, Upgrade: r.upgrade, Surrogate: found != nil, Task: s.k.task}
	if found != nil {
		masked := swap.Head{Path: r.Path, Query: r.Query, Fields: slices.Clone(r.Fields)}
		found.Mask(&masked)
		req.Query = masked.Query
		if masked.Path != r.Path {
			if strings.Count(path, found.Surrogate) != 1 {
				return nil, s.local(r, refuse(s.misplaced("the surrogate in the path is written in another form")))
			}
			req.Path = strings.Replace(path, found.Surrogate, wire.SurrogateMark, 1)
		}
	}
	if req.Does, req.Model, err = s.facts(r, path); err != nil {
		return nil, refuse(wire.Refuse(wire.CodeUsage, "the request's body broke off", ""))
	}
	resp, e := s.ask(ctx, req)
	if e != nil {
		return nil, refuse(e)
	}
	v := &verdict{id: resp.ID, under: resp.Under,
		sent: wire.SentReq{Conn: resp.ID, Host: s.to.host.String(), Method: r.method}}
	if ref := s.credential(ctx, r, v, found, resp.Grant); ref != nil {
		v.sent.Err = ref.Error
		s.settle(v)
		return nil, ref
	}
	return v, nil
}

// once are fields by which a request is judged, or its end found: with two of them, or one in a spelling that some servers take for
// it (those that hand fields on by CGI's names read Content_Type as Content-Type), the server may act on another than was read.
var once = []string{"authorization", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}

func plainFields(fields []head.Field) *wire.Error {
	seen := map[string]bool{}
	for _, f := range fields {
		name := wire.Spelling(f.Name)
		switch {
		case !slices.Contains(once, name):
		case !strings.EqualFold(name, f.Name):
			return wire.Refuse(wire.CodeUsage, f.Name+" is "+name+" to some servers", "write it with a hyphen")
		case seen[name]:
			return wire.Refuse(wire.CodeUsage, f.Name+" stands twice", "send it once")
		default:
			seen[name] = true
		}
	}
	return nil
}

func (s *session) overrides(field string) bool {
	f := s.k.s.Facts.Override
	return f != nil && f(field)
}

// late says that a field must not come behind a body: some servers put those fields among the head's, which was judged without.
func (s *session) late(field string) bool {
	return slices.Contains(once, wire.Spelling(field)) || s.overrides(field) ||
		s.resp.Credential != nil && swap.Key(field, *s.resp.Credential)
}

// bodiless are methods whose request has no body that means anything (RFC 9110 9.3). Some servers act on one all the same, and
// with whatever it holds such a request would be a read.
var bodiless = []string{http.MethodGet, http.MethodHead, http.MethodOptions}

// local is a refusal of which sentinel knows nothing.
func (s *session) local(r *request, ref *refusal) *refusal {
	if s.k.s.tells.ok() {
		s.k.s.Report(wire.SentReq{Conn: s.resp.ID, Host: s.to.host.String(), Method: r.method, Err: ref.Error})
	}
	s.k.s.refused.add(s.to.String(), ref.Error)
	return ref
}

// surrogate finds it, or refuses one where none may be.
func (s *session) surrogate(r *request) (*swap.Located, *refusal) {
	p := s.resp.Credential
	if p == nil {
		if !swap.Elsewhere(r.Head) {
			return nil, nil
		}
		why := "a surrogate is of no use at " + s.to.host.String()
		if swap.Signed(r.Head) {
			why = "signing is not supported here, and " + why
		}
		return nil, refuse(wire.Refuse(wire.CodeBadSurrogate, why,
			"`connector surrogate` lists those that are issued, and for which hosts; ask the person to issue one for this site"))
	}
	if s.clear {
		return nil, refuse(wire.Refuse(wire.CodeBadSurrogate, "a surrogate is of use over TLS only", "use https"))
	}
	found, err := swap.Locate(r.Head, *p)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, swap.ErrNone):
		return nil, &refusal{s.misplaced("no surrogate on this request"), http.StatusUnauthorized, challenge(p)}
	case errors.Is(err, swap.ErrSigned):
		return nil, refuse(wire.Refuse(wire.CodeBadSurrogate,
			"signing is not supported here: a signature made with a surrogate is not one of the credential",
			"use a credential that is sent as it is"))
	}
	return nil, refuse(s.misplaced(err.Error()))
}

// challenge is what a client is told in WWW-Authenticate (RFC 9110 11.6.1) of how to send a surrogate.
func challenge(p *wire.Placement) string {
	scheme := "Surrogate"
	switch {
	case p.Kind == swap.Basic:
		scheme = "Basic"
	case p.Kind == swap.Header && head.Canonical(p.Name) == "Authorization" && head.IsToken(strings.TrimSuffix(p.Prefix, " ")):
		scheme = strings.TrimSuffix(p.Prefix, " ")
	}
	return scheme + ` realm="doorward"`
}

// facts reads what the request's body says, where that has to be known.
func (s *session) facts(r *request, path string) (does []string, model *wire.ModelUse, err error) {
	f := s.k.s.Facts
	unreadable := []string{wire.Unreadable}
	if slices.Contains(bodiless, r.method) {
		if b, whole, err := r.start(0); err != nil {
			return nil, nil, err
		} else if len(b) > 0 || !whole {
			return unreadable, nil, nil
		}
	}
	for _, reading := range s.resp.Read {
		if !slices.Contains(reading.Methods, r.method) || !f.Match(reading.Path, path) {
			continue
		}
		b, whole, err := r.start(wire.MaxRead)
		if err != nil {
			return nil, nil, err
		}
		b, all, ok := plainOf(r.get("Content-Encoding"), b, wire.MaxRead)
		if !whole || !all || !ok {
			return unreadable, nil, nil
		}
		does, model = f.Read(reading.As, r.method, path, r.Query, r.get("Content-Type"), b)
		return does, model, nil
	}
	media := r.get("Content-Type")
	does, need := f.Git(r.method, path, r.Query, media, nil, false)
	if need == 0 {
		return does, nil, nil
	}
	start, err := r.plain()
	if err != nil {
		return nil, nil, err
	}
	for have := 0; need > 0; {
		// Twice as much each time: what a push of many refs says would be read anew for each of them.
		b, all, err := start(min(max(need, 2*have), wire.MaxRead))
		if err != nil {
			return nil, nil, err
		}
		if !all && len(b) <= have { // as much as there is was not enough
			return unreadable, nil, nil
		}
		have = len(b)
		if does, need = f.Git(r.method, path, r.Query, media, b, all); need > 0 && all {
			return unreadable, nil, nil
		}
	}
	return does, nil, nil
}

// plain is start of the body without its Content-Encoding. What cannot be read so begins with nothing. What is compressed is held as
// far as MaxRead, and inflated once, as far as is asked for.
func (r *request) plain() (start func(n int) (b []byte, all bool, err error), err error) {
	switch strings.ToLower(strings.TrimSpace(r.get("Content-Encoding"))) {
	case "", "identity":
		return r.start, nil
	case "gzip", "x-gzip":
	default:
		return nothing, nil
	}
	packed, whole, err := r.start(wire.MaxRead)
	if err != nil {
		return nil, err
	}
	in := bytes.NewReader(packed)
	z, err := gzip.NewReader(in)
	if err != nil || z.Name != "" || z.Comment != "" || len(z.Extra) > 0 { // which say more than the body does
		return nothing, nil
	}
	z.Multistream(false) // what stands behind the first some servers do not read
	var b []byte
	return func(n int) ([]byte, bool, error) {
		more, err := io.ReadAll(io.LimitReader(z, int64(n-len(b))))
		b = append(b, more...)
		return b, len(b) < n && err == nil && whole && in.Len() == 0, nil
	}, nil
}

func nothing(int) ([]byte, bool, error) { return nil, false, nil }

// plainOf is a body's beginning, at most so many bytes, without its Content-Encoding; all says that there is no more of it.
func plainOf(coding string, b []byte, most int) (plain []byte, all, ok bool) {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return b, true, true
	case "gzip", "x-gzip":
	default:
		return nil, false, false
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, false, false
	}
	plain, err = io.ReadAll(io.LimitReader(z, int64(most)+1))
	if len(plain) > most {
		return plain[:most], false, true
	}
	return plain, err == nil, err == nil || errors.Is(err, io.ErrUnexpectedEOF)
}

// noAnswer is of a request that left.
func (s *session) noAnswer() *wire.Error {
	return wire.Refuse(wire.CodeVendorDown, "the server "+s.to.host.String()+" gave no answer that can be read",
		"the request was sent; look before repeating it")
}

// ask asks sentinel. Whatever is no clear yes is a refusal.
func (s *session) ask(ctx context.Context, req *wire.RequestReq) (*wire.RequestResp, *wire.Error) {
	k := s.k
	if k.s.Full() {
		return nil, wire.Refuse(wire.CodeUnavailable, "sentinel is behind with what it was told", "try again")
	}
	k.asks()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	resp, err := k.s.Request(ctx, req)
	var under []string
	if err == nil && resp != nil && resp.ID != "" {
		under = append(slices.Clone(resp.Under), resp.ID)
	}
	whole := k.goes(under)
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case err != nil:
		k.s.warn("sentinel was asked and did not answer", daemon.KeyErr, err.Error())
		return nil, wire.Refuse(wire.CodeUnavailable, "sentinel gave no answer", "try again")
	case under == nil:
		return nil, wire.Refuse(wire.CodeInternal, "sentinel's answer cannot be used", "")
	case !whole:
		k.ended(under)
		return nil, wire.Refuse(wire.CodeRevoked, "the request was cut", "")
	}
	return resp, nil
}

// credential resolves the grant, and puts the credential into r.
func (s *session) credential(ctx context.Context, r *request, v *verdict, found *swap.Located, grant string) *refusal {
	to := guard.Authority{Host: s.to.host, Port: s.to.port}
	key := poolKey{to: to, clear: s.clear}
	base, err := s.k.s.server(key, s.permits, nil)
	if err != nil {
		return refuse(wire.Refuse(wire.CodeTooMany, err.Error(), "try again later"))
	}
	v.server = base
	unusable := func(why string) *refusal {
		s.k.s.warn("a credential cannot be used", "to", s.to.String(), daemon.KeyReason, why)
		return refuse(wire.Refuse(wire.CodeInternal, "the credential of "+s.to.host.String()+" cannot be used", ""))
	}
	if found == nil || grant == "" {
		if found != nil || grant != "" {
			return unusable("sentinel's grant and the surrogate do not go together")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	res, err := s.k.s.Resolve(ctx, &wire.ResolveReq{Grant: grant, Surrogate: found.Surrogate})
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		return refuse(refused)
	case err != nil || res == nil:
		return refuse(wire.Refuse(wire.CodeUnavailable, "authd gave no answer", "try again"))
	case s.k.isCut(): // while authd was asked
		return refuse(wire.Refuse(wire.CodeRevoked, "the request was cut", ""))
	case res.Placement != *s.resp.Credential:
		return unusable("its place is another one than was decided")
	case res.Entry.Host != s.to.host.String() || res.Entry.Port != int(s.to.port) || res.Entry.Scheme != "https":
		return unusable("it is of another host")
	}
	permits := slices.Clone(s.permits)
	for _, p := range res.Permit {
		a, err := netip.ParseAddrPort(p)
		if err != nil {
			return unusable("what is permitted cannot be read")
		}
		if !slices.Contains(permits, a) {
			permits = append(permits, a)
		}
	}
	all := res.Scrub
	if !slices.Contains(all, res.Secret) {
		all = append(slices.Clone(all), res.Secret)
	}
	if v.scrub, err = swap.NewScrubber(all...); err != nil {
		return unusable("answers could not be searched for it")
	}
	v.shown = found.Surrogate
	if err := found.Put(&r.Head, res.Secret); err != nil {
		return refuse(wire.Refuse(wire.CodeBadCredential, "the credential does not fit its place", "have the person store it anew"))
	}
	key.account, key.generation = res.Account, res.Generation
	if key.account == "" {
		return unusable("it is of no account")
	}
	v.server, err = s.k.s.server(key, permits, res.CA)
	if err != nil {
		return unusable(err.Error())
	}
	if len(res.CA) == 0 && len(permits) == len(s.permits) {
		v.fresh = base
	}
	return nil
}

// settle reports what became of a request.
func (s *session) settle(v *verdict) {
	s.k.ended(append(slices.Clone(v.under), v.id))
	s.out.Add(v.sent.Out)
	s.in.Add(v.sent.In)
	if v.sent.Left {
		s.left.Store(true)
	}
	if s.k.isCut() && v.sent.Err == nil && !v.sent.Complete {
		v.sent.Err = wire.Refuse(wire.CodeRevoked, "the request was cut", "")
	}
	s.k.s.Report(v.sent)
}

// spend counts bytes that are about to leave.
func (s *session) spend(n int) *wire.Error { return s.k.s.budget.send(s.to.String(), int64(n)) }

// isWrite says that a request may change something by what HTTP says, which decides only how fresh its connection has to be.
func isWrite(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// narrowed is an Accept-Encoding by which the answer can be searched for the credential.
func narrowed(accept string) string {
	for c := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(c, ";")
		_, q, weighed := strings.Cut(params, "=")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") && (!weighed || strings.Trim(strings.TrimSpace(q), "0.") != "") {
			return "gzip"
		}
	}
	return "identity"
}

// compressesMessages says that a field names the codings that single messages of an answer may have: gRPC's and Connect's are
// compressed apart from what Accept-Encoding says.
func compressesMessages(name string) bool {
	return strings.EqualFold(name, "Grpc-Accept-Encoding") || strings.EqualFold(name, "Connect-Accept-Encoding")
}

// messageFlags gives the first bytes that a message may have in a body of that Content-Type, which is empty where it is not one of
// messages: gRPC's, gRPC-Web's with its trailers, Connect's with its end. None of them says that a message is compressed. What
// gRPC-Web sends as text is searched as text.
func messageFlags(media string) string {
	media, _, _ = strings.Cut(media, ";")
	media, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(media)), "+")
	switch media {
	case "application/grpc":
		return "\x00"
	case "application/grpc-web":
		return "\x00\x80"
	case "application/connect":
		return "\x00\x02"
	}
	return ""
}

// ours says that an answer's field is one of Doorward's own, which no server may say.
func ours(name string) bool { return len(name) >= 9 && strings.EqualFold(name[:9], "Doorward-") }

// untrue are fields that are not true any more of an answer that was searched: its bytes may be others, or as many.
func untrue(name string) bool {
	switch strings.ToLower(name) {
	case "content-length", "content-digest", "repr-digest", "digest", "content-md5":
		return true
	}
	return false
}

// uncharted is an Accept without wishes for an alphabet: an answer in one that cannot be searched is refused.
func uncharted(accept string) string {
	if !strings.Contains(strings.ToLower(accept), "charset") {
		return accept
	}
	var out []string
	for kind := range strings.SplitSeq(accept, ",") {
		parts := slices.DeleteFunc(strings.Split(kind, ";"), func(p string) bool {
			name, _, _ := strings.Cut(p, "=")
			return strings.EqualFold(strings.TrimSpace(name), "charset")
		})
		out = append(out, strings.Join(parts, ";"))
	}
	return strings.Join(out, ",")
}

// charsets begin the names of those in which a byte of ASCII stands for itself, so that a credential in it can be found.
var charsets = []string{"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-", "iso8859-", "latin", "windows-125", "cp125", "windows-874",
	"koi8-", "gb2312", "gbk", "gb18030", "big5", "euc-", "shift_jis", "shift-jis", "windows-31j", "macintosh", "tis-620"}

// charset is what a Content-Type says of it that cannot be searched, or empty.
func charset(media string) string {
	for p := range strings.FieldsFuncSeq(media, func(r rune) bool { return r == ';' || r == ',' }) {
		name, value, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "charset") {
			continue
		}
		value = strings.ToLower(strings.Trim(strings.TrimSpace(value), `"'`))
		if !slices.ContainsFunc(charsets, func(begin string) bool { return strings.HasPrefix(value, begin) }) {
			return value[:min(len(value), 40)]
		}
	}
	return ""
}

// searchable says how a body of that Content-Type can be searched that has a Content-Encoding: as it is, or unzipped. messages is the
// coding of those in it.
func searchable(coding, media, messages string, code int) (zipped bool, e *wire.Error) {
	if c := charset(media); c != "" {
		return false, unsearchable("text in " + c)
	}
	if messages != "" && !strings.EqualFold(strings.TrimSpace(messages), "identity") {
		return false, unsearchable("its messages are compressed, which")
	}
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		if code == http.StatusPartialContent {
			return false, unsearchable("a part of a compressed answer")
		}
		return true, nil
	}
	return false, unsearchable("it is compressed in a way that")
}

func unsearchable(what string) *wire.Error {
	return wire.Refuse(wire.CodeUnknown, "the server's answer cannot be used: "+what+" cannot be searched for the credential",
		"the request was made; look before repeating it")
}
