// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// sound checks what must be true of all that is read.
func sound(t *testing.T, does []string, model *wire.ModelUse) {
	if slices.Contains(does, wire.Unreadable) && (len(does) != 1 || model != nil) {
		t.Fatalf("%q, %+v", does, model)
	}
	for _, d := range does {
		if d != wire.Unreadable && !strings.Contains(d, " ") || strings.HasSuffix(d, " ") || len(d) > 3*maxRef {
			t.Fatalf("%q", does)
		}
	}
}

func FuzzGraphQL(f *testing.F) {
	for _, c := range graphqlBodies {
		if len(c.body) < 4096 {
			f.Add([]byte(c.body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		does, model := Read(wire.ReadGraphQL, "application/json", body)
		sound(t, does, model)
		if model != nil || len(does) == 0 {
			t.Fatalf("%q, %+v", does, model)
		}
		// A mutation cannot be written without its word; what another decoder finds must have it, and be told.
		var loose struct{ Query string }
		if json.Unmarshal(body, &loose) == nil && slices.Contains(does, "graphql mutation") && !strings.Contains(loose.Query, "mutation") {
			t.Fatalf("%q of %q", does, loose.Query)
		}
		ReadQuery(string(body))
	})
}

func FuzzJSONRPC(f *testing.F) {
	for _, c := range rpcBodies {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		does, model := Read(wire.ReadJSONRPC, "application/json", body)
		sound(t, does, model)
		// Go's own decoder, which takes keys in any case and the last of two, must come to the same method.
		var loose struct{ Method string }
		if len(does) == 1 && does[0] != wire.Unreadable && body[0] == '{' {
			if err := json.Unmarshal(body, &loose); err != nil || "jsonrpc "+loose.Method != does[0] {
				t.Fatalf("%q, and %q by another decoder: %v", does, loose.Method, err)
			}
		}
	})
}

func FuzzModel(f *testing.F) {
	for _, c := range models {
		f.Add(c.path, []byte(c.body))
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		does, u := Of(wire.ReadModel, &Asked{Method: "POST", Path: path, Media: "application/json", Body: body})
		sound(t, does, u)
		if u == nil {
			return
		}
		if u.Model == "" || u.Most < 0 || len(u.Tools) > maxTools || !slices.IsSorted(u.Tools) {
			t.Fatalf("%+v", u)
		}
		var loose struct {
			Model string `json:"model"`
			Max   any    `json:"max_tokens"`
			Tools []any  `json:"tools"`
		}
		if json.Unmarshal(body, &loose) == nil && loose.Model != "" && strings.TrimPrefix(loose.Model, "models/") != strings.TrimPrefix(u.Model, "models/") &&
			strings.TrimPrefix(loose.Model, "tunedModels/") != u.Model {
			t.Fatalf("%+v, and %q by another decoder", u, loose.Model)
		}
	})
}

func FuzzGit(f *testing.F) {
	upload, receive := media("/git-upload-pack"), media("/git-receive-pack")
	for _, c := range pushes {
		f.Add("POST", "/r/git-receive-pack", "", receive, []byte(c.body), true)
	}
	for _, c := range fetches {
		if len(c.body) < 4096 {
			f.Add("POST", "/r/git-upload-pack", "", upload, []byte(c.body), true)
		}
	}
	f.Add("POST", "/r/git-upload-pack", "publish=true", upload, []byte(pkt("command=fetch", flush)), true)
	f.Add("POST", "/r/git-receive-pack", "", receive, []byte(flush), false)
	f.Add("GET", "/r/info/refs", "service=git-upload-pack", "", []byte{}, true)
	f.Fuzz(func(t *testing.T, method, path, query, media string, start []byte, all bool) {
		does, need := Git(method, path, query, media, start, all)
		sound(t, does, nil)
		if need != 0 && (all || does != nil || need <= len(start) || need > wire.MaxRead) || len(does) > maxRefs {
			t.Fatalf("%q, and %d of %d bytes", does, need, len(start))
		}
		if need != 0 || does == nil {
			return
		}
		if method == "POST" && (query != "" || media != upload && media != receive) {
			t.Fatalf("%q of a POST with the query %q, of %q", does, query, media)
		}
		// What follows what a push says changes nothing, nor does it make readable what is not. A fetch has nothing behind it.
		more, need := Git(method, path, query, media, append(slices.Clone(start), "more"...), all)
		switch {
		case method == "POST" && slices.Contains(does, fetch):
			if need != 0 || !slices.Equal(more, unreadable()) {
				t.Fatalf("%q, and with more behind it %q", does, more)
			}
			if !all || words(string(start)) > maxWords+maxRef {
				t.Fatalf("%q is said of %d bytes, all %v, of which %d are words", does, len(start), all, words(string(start)))
			}
		case all && slices.Equal(does, unreadable()):
		case need != 0 || !slices.Equal(more, does):
			t.Fatalf("%q, and with more behind it %q", does, more)
		}
	})
}

var pktLine = regexp.MustCompile(`^(?s:[0-9a-fA-F]{4}(want|have|shallow) [0-9a-f]{40}([0-9a-f]{24})?\n?)`)

// words is how many bytes of pkt-lines are neither their lengths nor name an object.
func words(s string) (n int) {
	for len(s) >= 4 {
		size, err := strconv.ParseUint(s[:4], 16, 16)
		if err != nil || int(size) > len(s) {
			return n + len(s)
		}
		size = max(size, 4)
		if one := s[:size]; pktLine.FindString(one) != one {
			n += len(one) - 4
		}
		s = s[size:]
	}
	return n + len(s)
}
