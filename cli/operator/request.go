// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/url"
	"strconv"

	"github.com/doorward/doorward/internal/wire"
)

// requestOf reads `GET https://example.org/path?query` as a request to be explained. The path is taken as it is written:
// sentinel says of one that can be read in two ways.
func requestOf(words []string) (*wire.RequestReq, error) {
	wrong := func(what string) (*wire.RequestReq, error) {
		return nil, wire.Refuse(wire.CodeUsage, what, "doorward policy explain request GET https://example.org/path")
	}
	if len(words) != 2 {
		return wrong("a request is a method and an address")
	}
	u, err := url.Parse(words[1])
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return wrong(quote(words[1]) + " is no address of a request")
	}
	r := &wire.RequestReq{Method: words[0], Name: u.Hostname(), Port: 443, Path: u.EscapedPath(), Query: u.RawQuery,
		Clear: u.Scheme == "http"}
	if r.Clear {
		r.Port = 80
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return wrong(quote(words[1]) + " has no port of 1 to 65535")
		}
		r.Port = uint16(n)
	}
	if r.Path == "" {
		r.Path = "/"
	}
	return r, nil
}
