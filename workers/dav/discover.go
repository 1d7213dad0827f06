// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

const nameBytes = 300 // of a collection's name

// collection is a calendar or an address book as it is listed.
type collection struct {
	Calendar string        `json:"calendar,omitempty"`
	Book     string        `json:"book,omitempty"`
	Name     *workers.Text `json:"name,omitempty"`
	ReadOnly bool          `json:"read_only,omitempty"`
}

// calendars finds the collections (RFC 6764 section 6): who am I, where are my homes, what is in them. Homes on another
// server are refused, and so is a principal there.
func calendars(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	who, err := principal(ctx, c)
	if err != nil {
		return nil, err
	}
	resp, err := found(c.Do(ctx, "principal", workers.Path(describe.EscapePath(who))))
	if err != nil {
		return nil, err
	}
	homes, err := homesOf(c.Base, resp)
	if err != nil {
		return nil, err
	}
	answer := struct {
		Calendars []collection `json:"calendars"`
		Books     []collection `json:"books"`
	}{[]collection{}, []collection{}}
	for _, home := range homes {
		in, err := found(c.Do(ctx, "home", workers.Path(describe.EscapePath(home))))
		if err != nil {
			return nil, err
		}
		for i := range in.Responses {
			r := &in.Responses[i]
			p := r.props()
			if p == nil || p.Type.Calendar == nil && p.Type.Book == nil {
				continue
			}
			path, err := local(c.Base, r.Href)
			if err != nil {
				return nil, foreign()
			}
			if path[len(path)-1] != '/' {
				path += "/"
			}
			it := collection{Name: workers.Untrusted(p.Name, "dav collection "+path, "", nameBytes), ReadOnly: readOnly(p)}
			switch {
			case p.Type.Book != nil:
				it.Book = path
				answer.Books = append(answer.Books, it)
			case holdsEvents(p):
				it.Calendar = path
				answer.Calendars = append(answer.Calendars, it)
			}
		}
	}
	return &workers.Answer{Value: answer}, nil
}

// principal is the path of the account's own principal. Where the account's address does not tell, the server's
// well-known address does.
func principal(ctx context.Context, c *workers.Call) (string, error) {
	resp, err := c.Do(ctx, "root")
	if err != nil {
		return "", err
	}
	if resp.Status == 401 {
		return "", resp.Refused("check the user name and password of the account")
	}
	if resp.Status == 207 {
		if m, err := parse(resp.Body); err == nil {
			if p, err := principalOf(c.Base, m); p != "" || err != nil {
				return p, err
			}
		}
	}
	known, err := c.Do(ctx, "well-known")
	if err != nil {
		return "", err
	}
	if known.Status/100 == 3 {
		if known, err = c.Follow(ctx, "well-known-at", known); err != nil {
			return "", err
		}
	}
	m, err := found(known, nil)
	if err != nil {
		return "", err
	}
	p, err := principalOf(c.Base, m)
	if p == "" && err == nil {
		err = wire.Refuse(wire.CodeVendorRefused, "the server does not say which principal the account has",
			"check the account's address: doorward account show "+c.Account)
	}
	return p, err
}

func principalOf(base wire.Base, m *multistatus) (string, error) {
	for i := range m.Responses {
		if p := m.Responses[i].props(); p != nil && len(p.Principal.Href) > 0 {
			path, err := local(base, p.Principal.Href[0])
			if err != nil {
				return "", foreign()
			}
			return path, nil
		}
	}
	return "", nil
}

// homesOf are the collections that hold calendars and address books, none twice.
func homesOf(base wire.Base, m *multistatus) ([]string, error) {
	var homes []string
	for i := range m.Responses {
		p := m.Responses[i].props()
		if p == nil {
			continue
		}
		for _, h := range slices.Concat(p.Calendars.Href, p.Books.Href) {
			path, err := local(base, h)
			if err != nil {
				return nil, foreign()
			}
			if !slices.Contains(homes, path) {
				homes = append(homes, path)
			}
		}
	}
	switch {
	case len(homes) == 0:
		return nil, wire.Refuse(wire.CodeVendorRefused, "the server has no calendars or address books for this account", "")
	case len(homes) > maxHomes:
		return nil, wire.Refuse(wire.CodeTooMany, "the account has more homes of calendars than are looked at", "")
	}
	return homes, nil
}

func foreign() error {
	return wire.Refuse(wire.CodeVendorRefused, "the server points at another server, which is not followed",
		"give the account the address that it points at")
}

func readOnly(p *prop) bool {
	for _, x := range p.Privileges {
		if x.Write != nil || x.Content != nil || x.All != nil || x.Bind != nil {
			return false
		}
	}
	return len(p.Privileges) > 0
}

func holdsEvents(p *prop) bool {
	return len(p.Components) == 0 || slices.Contains(p.Components, component{"VEVENT"})
}

// found reads a multistatus that must be there.
func found(resp *workers.Response, err error) (*multistatus, error) {
	if err != nil {
		return nil, err
	}
	if err := resp.Refused("check the account's address and the path"); err != nil {
		return nil, err
	}
	if resp.Status != 207 {
		return nil, wire.Refuse(wire.CodeVendorDown, "the server does not speak WebDAV there", "check the path")
	}
	return parse(resp.Body)
}
