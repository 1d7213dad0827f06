// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"context"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

const maxChanges = 5000

// change is one object that was made, altered or deleted.
type change struct {
	Event   string `json:"event"`
	ETag    string `json:"etag,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// changes asks what changed since a token of an earlier answer (RFC 6578). A token that the server no longer knows is
// said to be stale, and never taken for "nothing changed".
func changes(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	resp, err := c.Do(ctx, "sync")
	if err != nil {
		return nil, err
	}
	if resp.Status/100 == 4 && c.Values.One("since") != "" && precondition(resp, "valid-sync-token") {
		return nil, wire.Refuse(wire.CodeConflict, "--since is stale: the server no longer knows what changed after it",
			"leave --since out, and take the list you get as all there is")
	}
	m, err := found(resp, nil)
	if err != nil {
		return nil, err
	}
	items := []change{}
	var cut string
	for i := range m.Responses {
		r := &m.Responses[i]
		path, err := local(c.Base, r.Href)
		if err != nil {
			return nil, foreign()
		}
		if code(r.Status) == http.StatusInsufficientStorage { // RFC 6578 section 3.6
			cut = "the server cut the list; ask again with --since=next"
			continue
		}
		if path == c.Values.One("calendar") || path+"/" == c.Values.One("calendar") {
			continue
		}
		x := change{Event: path, Deleted: code(r.Status) == http.StatusNotFound}
		if p := r.props(); p != nil {
			x.ETag = etag(p.ETag)
		}
		items = append(items, x)
	}
	if len(items) > maxChanges { // a cut list must not come with a token that skips what was cut
		return nil, wire.Refuse(wire.CodeTooMany, "more changes than one answer holds", "list the events by time instead")
	}
	next := strings.TrimSpace(m.SyncToken)
	if next == "" || len(next) > 1024 || strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r > '~' }) {
		next = ""
		cut = strings.TrimPrefix(cut+"; the server gave no token to go on from", "; ")
	}
	return &workers.Answer{Value: map[string]any{"items": items}, Next: next, Truncated: cut}, nil
}

// precondition says whether an error answer names a precondition of WebDAV (RFC 4918 section 16).
func precondition(resp *workers.Response, name string) bool {
	in := &guarded{d: xml.NewDecoder(resp.Body)}
	for {
		t, err := in.Token()
		if err != nil {
			return false
		}
		if e, ok := t.(xml.StartElement); ok && e.Name.Local == name {
			return true
		}
	}
}
