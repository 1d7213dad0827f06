// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"context"
	"net/http"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// write sends the one request of a write, whichever entry its arguments select.
func write(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	for _, entry := range []string{"put", "create", "replace", "delete", "delete-all", "put-one", "put-following"} {
		if c.Has(entry) {
			return send(ctx, c, entry)
		}
	}
	return nil, wire.Refuse(wire.CodeInternal, "no request fits these arguments", "")
}

// send sends one change and says where it stands now.
func send(ctx context.Context, c *workers.Call, entry string) (*workers.Answer, error) {
	resp, err := c.Do(ctx, entry)
	if err != nil {
		return nil, err
	}
	switch resp.Status {
	case http.StatusNotFound, http.StatusGone:
		return nil, wire.Refuse(wire.CodeVendorRefused, "there is nothing there (any more)", "look the path up again")
	case http.StatusPreconditionFailed:
		return nil, wire.Refuse(wire.CodeConflict,
			"it changed at the server meanwhile, or exists already; nothing was changed", "read it again, then decide anew")
	}
	if err := resp.Refused("look at the path, and whether the calendar may be written to"); err != nil {
		return nil, err
	}
	if _, err := resp.Bytes(); err != nil {
		return nil, err
	}
	name, path := "event", c.Values.One("event")
	switch c.Method.Name {
	case "event-create":
		path = c.Values.One("calendar") + c.Mark + ".ics"
	case "contact-put", "contact-delete":
		name, path = "contact", c.Values.One("contact")
		if path == "" {
			path = c.Values.One("book") + c.Mark + ".vcf"
		}
	}
	value := map[string]any{name: path}
	if tag := etag(resp.Header.Get("ETag")); tag != "" {
		value["etag"] = tag
	}
	if entry == "delete" || entry == "delete-all" {
		value["deleted"] = true
	}
	return &workers.Answer{Value: value, Object: path}, nil
}
