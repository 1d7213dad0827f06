// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of an answer in XML, besides its bytes.
const (
	maxNesting  = 24
	maxElements = 200_000
	maxHomes    = 4
)

// multistatus is the answer of RFC 4918 section 14.16.
type multistatus struct {
	Responses []response `xml:"DAV: response"`
	SyncToken string     `xml:"DAV: sync-token"`
}

type response struct {
	Href     string     `xml:"DAV: href"`
	Status   string     `xml:"DAV: status"`
	Propstat []propstat `xml:"DAV: propstat"`
}

type propstat struct {
	Status string `xml:"DAV: status"`
	Prop   prop   `xml:"DAV: prop"`
}

type prop struct {
	Principal  hrefs       `xml:"DAV: current-user-principal"`
	Calendars  hrefs       `xml:"urn:ietf:params:xml:ns:caldav calendar-home-set"`
	Books      hrefs       `xml:"urn:ietf:params:xml:ns:carddav addressbook-home-set"`
	Type       types       `xml:"DAV: resourcetype"`
	Name       string      `xml:"DAV: displayname"`
	ETag       string      `xml:"DAV: getetag"`
	Calendar   string      `xml:"urn:ietf:params:xml:ns:caldav calendar-data"`
	Card       string      `xml:"urn:ietf:params:xml:ns:carddav address-data"`
	Components []component `xml:"urn:ietf:params:xml:ns:caldav supported-calendar-component-set>comp"`
	Privileges []privilege `xml:"DAV: current-user-privilege-set>privilege"`
}

type hrefs struct {
	Href []string `xml:"DAV: href"`
}

type types struct {
	Calendar *struct{} `xml:"urn:ietf:params:xml:ns:caldav calendar"`
	Book     *struct{} `xml:"urn:ietf:params:xml:ns:carddav addressbook"`
}

type component struct {
	Name string `xml:"name,attr"`
}

type privilege struct {
	Write   *struct{} `xml:"DAV: write"`
	Content *struct{} `xml:"DAV: write-content"`
	All     *struct{} `xml:"DAV: all"`
	Bind    *struct{} `xml:"DAV: bind"`
}

// props are the properties that the server found.
func (r *response) props() *prop {
	for i := range r.Propstat {
		if code(r.Propstat[i].Status) == 200 {
			return &r.Propstat[i].Prop
		}
	}
	return nil
}

// code is the number of a status line; 0 where there is none.
func code(line string) int {
	f := strings.Fields(line)
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil || n < 100 || n > 599 {
		return 0
	}
	return n
}

// parse reads a multistatus. Its errors are *wire.Error.
func parse(r io.Reader) (*multistatus, error) {
	in := &guarded{d: xml.NewDecoder(r)}
	var out struct {
		XMLName xml.Name
		multistatus
	}
	err := xml.NewTokenDecoder(in).Decode(&out)
	if err == nil && out.XMLName != (xml.Name{Space: "DAV:", Local: "multistatus"}) {
		err = errors.New("it is no multistatus")
	}
	if err == nil { // nothing may follow
		err = in.end()
	}
	var refusal *wire.Error
	switch {
	case errors.As(err, &refusal):
		return nil, refusal
	case err != nil:
		return nil, wire.Refuse(wire.CodeVendorDown, "the server's answer cannot be read: "+plain(err), "")
	}
	return &out.multistatus, nil
}

// plain is an error's text without what the server wrote beyond ASCII letters.
func plain(err error) string {
	s := err.Error()
	if len(s) > 120 {
		s = s[:120]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// guarded reads XML tokens and refuses what a DAV answer never needs: a DTD, and with it every entity beyond the five
// of XML; processing instructions; deep nesting; endless elements. Encodings other than UTF-8 the decoder refuses.
type guarded struct {
	d        *xml.Decoder
	depth    int
	elements int
}

func (g *guarded) Token() (xml.Token, error) {
	t, err := g.d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case xml.Directive:
		return nil, errors.New("it has a DTD")
	case xml.ProcInst:
		if t.Target != "xml" {
			return nil, errors.New("it has a processing instruction")
		}
	case xml.StartElement:
		g.depth++
		g.elements++
		if g.depth > maxNesting || g.elements > maxElements {
			return nil, wire.Refuse(wire.CodeTooLarge, "the server's answer nests too deep or has too many parts",
				"ask for less")
		}
	case xml.EndElement:
		g.depth--
	}
	return t, nil
}

func (g *guarded) end() error {
	for {
		t, err := g.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.Comment:
		case xml.CharData:
			if strings.TrimSpace(string(t)) != "" {
				return errors.New("text follows its end")
			}
		default:
			return errors.New("something follows its end")
		}
	}
}

// errForeign is a path that is not one on the account's server.
var errForeign = errors.New("the address is on another server, or has more than one reading")

// local turns an href of the server into a path on that server, unescaped. An address of another host, and a path that
// an argument of type href could not be, are errForeign.
func local(base wire.Base, href string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(href))
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", errForeign
	}
	if strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return "", errForeign
	}
	if u.Host != "" {
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
		}
		if u.Scheme != base.Scheme || !strings.EqualFold(u.Hostname(), strings.Trim(base.Host, "[]")) ||
			port != strconv.Itoa(base.Port) {
			return "", errForeign
		}
	} else if u.Scheme != "" {
		return "", errForeign
	}
	a := describe.Arg{Name: "href", Type: describe.TypeHref}
	p, err := a.Canon(u.Path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errForeign, err)
	}
	return p, nil
}
