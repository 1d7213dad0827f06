// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

const (
	surOne  = "ghp_DoorWard0123456789abcdefghijABCDEFGHIJ"
	realOne = "ghp_realREALrealREALrealREALrealREAL0001"
)

func basicOf(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

func fields(kv ...string) (f []head.Field) {
	for i := 0; i < len(kv); i += 2 {
		f = append(f, head.Field{Name: kv[i], Value: kv[i+1]})
	}
	return f
}

var (
	inBearer = wire.Placement{Kind: Header, Name: "Authorization", Prefix: "Bearer "}
	apiKey   = wire.Placement{Kind: Header, Name: "X-Api-Key"}
	anyUser  = wire.Placement{Kind: Basic}
	oneUser  = wire.Placement{Kind: Basic, User: "x-access-token"}
	keyParam = wire.Placement{Kind: Query, Name: "key"}
	botPath  = wire.Placement{Kind: Path, Prefix: "bot"}
)

func TestLocate(t *testing.T) {
	if !surrogate.Marked([]byte(surOne)) {
		t.Fatal("no surrogate to test with")
	}
	for name, c := range map[string]struct {
		place wire.Placement
		h     Head
		want  Head // after Put; zero: refused
		err   error
	}{
		"header":              {inBearer, Head{"/a", "", fields("accept", "x", "authorization", "Bearer "+surOne)}, Head{"/a", "", fields("accept", "x", "authorization", "Bearer "+realOne)}, nil},
		"scheme as written":   {inBearer, Head{"/a", "", fields("Authorization", "bearer "+surOne)}, Head{"/a", "", fields("Authorization", "bearer "+realOne)}, nil},
		"own header":          {apiKey, Head{"/a", "", fields("x-api-key", surOne)}, Head{"/a", "", fields("x-api-key", realOne)}, nil},
		"basic, me":           {anyUser, Head{"/a", "", fields("Authorization", basicOf("me:"+surOne))}, Head{"/a", "", fields("Authorization", basicOf("me:"+realOne))}, nil},
		"basic, empty user":   {anyUser, Head{"/a", "", fields("Authorization", basicOf(":"+surOne))}, Head{"/a", "", fields("Authorization", basicOf(":"+realOne))}, nil},
		"basic, as user":      {anyUser, Head{"/a", "", fields("Authorization", basicOf(surOne+":"))}, Head{"/a", "", fields("Authorization", basicOf(realOne+":"))}, nil},
		"basic, declared":     {oneUser, Head{"/a", "", fields("Authorization", basicOf("me:"+surOne))}, Head{"/a", "", fields("Authorization", basicOf("x-access-token:"+realOne))}, nil},
		"basic, declared, as": {oneUser, Head{"/a", "", fields("Authorization", basicOf(surOne+":"))}, Head{"/a", "", fields("Authorization", basicOf("x-access-token:"+realOne))}, nil},
		"query":               {keyParam, Head{"/a", "x=1&key=" + surOne + "&y=2", nil}, Head{"/a", "x=1&key=" + realOne + "&y=2", nil}, nil},
		"path":                {botPath, Head{"/bot" + surOne + "/send", "", nil}, Head{"/bot" + realOne + "/send", "", nil}, nil},

		"beside what is no key": {inBearer, Head{"/a", "page_token=x&monkey=1&token_type=a", fields("x-csrf-token", "x", "authorization", "Bearer "+surOne)}, Head{"/a", "page_token=x&monkey=1&token_type=a", fields("x-csrf-token", "x", "authorization", "Bearer "+realOne)}, nil},

		"none":                    {inBearer, Head{"/a", "", fields("accept", "x")}, Head{}, ErrNone},
		"another's key":           {inBearer, Head{"/a", "", fields("authorization", "Bearer evil-key")}, Head{}, ErrNone},
		"none in query":           {keyParam, Head{"/a", "key=AIzaEvil", nil}, Head{}, ErrNone},
		"twice":                   {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne, "Authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"two values":              {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne+", Bearer "+surOne)}, Head{}, ErrSurrogate},
		"other header":            {inBearer, Head{"/a", "", fields("x-api-key", surOne)}, Head{}, ErrSurrogate},
		"other header too":        {inBearer, Head{"/a", "", fields("x-api-key", surOne, "authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"in query too":            {inBearer, Head{"/a", "q=" + surOne, fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"in query, encoded":       {inBearer, Head{"/a", "q=" + surOne[:5] + "%6F" + surOne[6:], fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"in path too":             {inBearer, Head{"/x/" + surOne, "", fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"inside basic":            {inBearer, Head{"/a", "", fields("authorization", basicOf("me:"+surOne))}, Head{}, ErrSurrogate},
		"key twice":               {keyParam, Head{"/a", "key=" + surOne + "&key=1", nil}, Head{}, ErrSurrogate},
		"key twice, encoded":      {keyParam, Head{"/a", "key=" + surOne + "&k%65y=1", nil}, Head{}, ErrSurrogate},
		"two segments":            {botPath, Head{"/bot" + surOne + "/bot" + surOne, "", nil}, Head{}, ErrSurrogate},
		"beside another's":        {apiKey, Head{"/a", "", fields("x-api-key", surOne, "authorization", "Bearer evil")}, Head{}, ErrSurrogate},
		"EG-15 another key":       {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne, "x-api-key", "evil")}, Head{}, ErrSurrogate},
		"EG-15 Google's":          {apiKey, Head{"/a", "", fields("x-api-key", surOne, "X-Goog-Api-Key", "evil")}, Head{}, ErrSurrogate},
		"EG-15 GitLab's":          {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne, "PRIVATE-TOKEN", "evil")}, Head{}, ErrSurrogate},
		"EG-15 by CGI's name":     {apiKey, Head{"/a", "", fields("x-api-key", surOne, "X_Api_Key", "evil")}, Head{}, ErrSurrogate},
		"EG-15 in the query":      {inBearer, Head{"/a", "access_token=evil", fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"EG-15 in it, encoded":    {inBearer, Head{"/a", "a=1&acces%73_token=evil", fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"EG-15 behind ;":          {inBearer, Head{"/a", "a=1;access_token=evil", fields("authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"EG-15 key in capitals":   {keyParam, Head{"/a", "key=" + surOne + "&KEY=evil", nil}, Head{}, ErrSurrogate},
		"EG-15 key as a list":     {keyParam, Head{"/a", "key=" + surOne + "&key[]=evil", nil}, Head{}, ErrSurrogate},
		"EG-15 key behind ;":      {keyParam, Head{"/a", "key=" + surOne + "&a=1;key=evil", nil}, Head{}, ErrSurrogate},
		"EG-15 beside basic":      {anyUser, Head{"/a", "", fields("authorization", basicOf("me:"+surOne), "private-token", "evil")}, Head{}, ErrSurrogate},
		"EG-15 beside a path":     {botPath, Head{"/bot" + surOne + "/send", "", fields("x-api-key", "evil")}, Head{}, ErrSurrogate},
		"SW-09 key of websocket":  {wire.Placement{Kind: Header, Name: "Sec-WebSocket-Key"}, Head{"/a", "", fields("Sec-WebSocket-Key", surOne)}, Head{}, ErrSurrogate},
		"SW-09 elsewhere":         {inBearer, Head{"/a", "", fields("Sec-WebSocket-Key", surOne, "authorization", "Bearer "+surOne)}, Head{}, ErrSurrogate},
		"SW-09 conditional":       {inBearer, Head{"/a", "", fields("If-None-Match", `"`+surOne+`"`)}, Head{}, ErrSurrogate},
		"SW-06 SigV4":             {apiKey, Head{"/a", "", fields("Authorization", "AWS4-HMAC-SHA256 Credential="+surOne+"/x, Signature=0")}, Head{}, ErrSigned},
		"SW-06 presigned":         {apiKey, Head{"/a", "X-Amz-Signature=00", nil}, Head{}, ErrSigned},
		"SW-06 digest":            {anyUser, Head{"/a", "", fields("Authorization", `Digest username="`+surOne+`"`)}, Head{}, ErrSigned},
		"SW-06 message signature": {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne, "Signature-Input", "sig1=()")}, Head{}, ErrSigned},
		"SW-06 webhook":           {inBearer, Head{"/a", "", fields("authorization", "Bearer "+surOne, "X-Hub-Signature-256", "sha256=00")}, Head{}, ErrSigned},
	} {
		l, err := Locate(c.h, c.place)
		if c.want.Path == "" {
			if !errors.Is(err, c.err) || errors.Is(c.err, ErrSurrogate) && c.err == ErrSurrogate && (errors.Is(err, ErrNone) || errors.Is(err, ErrSigned)) {
				t.Errorf("%s: %v, want %v", name, err, c.err)
			}
			continue
		}
		if err != nil || l.Surrogate != surOne {
			t.Errorf("%s: %v", name, err)
			continue
		}
		h := Head{c.h.Path, c.h.Query, append([]head.Field(nil), c.h.Fields...)}
		if err := l.Put(&h, realOne); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h.Path != c.want.Path || h.Query != c.want.Query || len(h.Fields) != len(c.want.Fields) {
			t.Errorf("%s: %+v", name, h)
		}
		for i := range h.Fields {
			if h.Fields[i] != c.want.Fields[i] {
				t.Errorf("%s: %+v, want %+v", name, h.Fields[i], c.want.Fields[i])
			}
		}
		l.Mask(&h)
		if strings.Contains(h.Path+h.Query, surOne) || Elsewhere(h) {
			t.Errorf("%s: the mask shows it: %+v", name, h)
		}
	}
}

// SW-02: a credential that would break out of its place is encoded, or refused where that cannot be.
func TestSW02PutKeepsToItsPlace(t *testing.T) {
	nasty := `a"b&c=d%/?#`
	for _, c := range []struct {
		p    wire.Placement
		h    Head
		want Head
	}{
		{keyParam, Head{"/a", "key=" + surOne + "&y=2", nil}, Head{"/a", "key=a%22b%26c%3Dd%25%2F%3F%23&y=2", nil}},
		{botPath, Head{"/bot" + surOne + "/x", "", nil}, Head{"/bota%22b%26c%3Dd%25%2F%3F%23/x", "", nil}},
	} {
		l, err := Locate(c.h, c.p)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Put(&c.h, nasty); err != nil || c.h.Path != c.want.Path || c.h.Query != c.want.Query {
			t.Errorf("%+v, %v", c.h, err)
		}
		if err := l.Put(&c.h, nasty+"\r\nX-Evil: 1"); !errors.Is(err, ErrPlace) {
			t.Errorf("a line end was placed in %s: %v", c.p.Kind, err)
		}
	}
	h := Head{"/a", "", fields("authorization", "Bearer "+surOne)}
	l, err := Locate(h, inBearer)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Put(&h, "real\r\nX-Evil: 1"); !errors.Is(err, ErrPlace) || h.Fields[0].Value != "Bearer "+surOne {
		t.Errorf("a line end was placed: %v %+v", err, h)
	}
}

func FuzzLocate(f *testing.F) {
	f.Add("/bot"+surOne, "key="+surOne, "Bearer "+surOne, 0)
	f.Add("/%62ot"+surOne, "k%65y="+surOne+"&", basicOf("me:"+surOne), 3)
	places := []wire.Placement{inBearer, apiKey, anyUser, oneUser, keyParam, botPath}
	f.Fuzz(func(t *testing.T, path, query, value string, which int) {
		p := places[uint(which)%uint(len(places))]
		h := Head{path, query, fields("Authorization", value)}
		if p == apiKey {
			h.Fields[0].Name = "X-Api-Key"
		}
		l, err := Locate(h, p)
		if err != nil {
			if l != nil {
				t.Fatal("a place in spite of an error")
			}
			return
		}
		before := surrogate.Within(h.Path) + surrogate.Within(h.Query) + len(h.Fields)
		if err := l.Put(&h, realOne); err != nil {
			t.Fatal(err)
		}
		if Elsewhere(h) || before == 0 {
			t.Fatalf("one is left in %+v", h)
		}
	})
}
