// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/vendors/standin"
)

const token = "ghp_standinTokenForTests0000000000000000"

type sent struct {
	verb, target, body string
	header             map[string]string
}

func do(t *testing.T, s *Server, client *http.Client, q sent) (*http.Response, []byte) {
	t.Helper()
	base := s.Base()
	if strings.HasPrefix(q.target, "https:") {
		base = ""
	}
	r, err := http.NewRequestWithContext(t.Context(), q.verb, base+q.target, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("User-Agent", "doorward")
	r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

// good has one right request for each route, in the order of routes.
var good = []struct {
	q      sent
	status int
}{
	{sent{verb: "GET", target: "/user/repos?visibility=private&per_page=10&page=1"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/contents/docs%2Fguide.md?ref=main"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/git/trees/main?recursive=1"}, 200},
	{sent{verb: "GET", target: "/search/code?q=hello+repo%3Aada%2Fsite&per_page=10"}, 200},
	{sent{verb: "GET", target: "/search/issues?q=typo&per_page=10"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/issues?state=all&labels=bug&since=2026-01-01T00:00:00Z"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/issues/1"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/issues/2/comments"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/pulls/3"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/pulls/3/files"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/actions/runs?branch=main&status=success"}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/actions/jobs/7001/logs"}, 302},
	{sent{verb: "GET", target: "/notifications?all=true"}, 200},
	{sent{verb: "POST", target: "/repos/ada/site/issues",
		body: `{"title":"T","body":"B","labels":["bug"],"assignees":["ada"]}`}, 201},
	{sent{verb: "PATCH", target: "/repos/ada/site/issues/1", body: `{"state":"closed"}`}, 200},
	{sent{verb: "POST", target: "/repos/ada/site/issues/1/comments", body: `{"body":"x"}`}, 201},
	{sent{verb: "POST", target: "/repos/ada/notes/pulls",
		body: `{"title":"T","head":"main","base":"main","body":"B","draft":false}`}, 201},
	{sent{verb: "POST", target: "/repos/ada/site/pulls/3/reviews", body: `{"event":"COMMENT","body":"B"}`}, 200},
	{sent{verb: "PUT", target: "/repos/ada/site/pulls/3/merge", body: `{"merge_method":"squash"}`}, 200},
	{sent{verb: "PUT", target: "/repos/ada/site/contents/new.txt",
		body: `{"message":"m","content":"aGk=","branch":"main"}`}, 201},
	{sent{verb: "POST", target: "/repos/ada/site/git/refs", body: `{"ref":"refs/heads/next","sha":"SHA"}`}, 201},
	{sent{verb: "DELETE", target: "/repos/ada/site/git/refs/heads/feature"}, 204},
	{sent{verb: "POST", target: "/repos/ada/site/actions/workflows/build.yml/dispatches",
		body: `{"ref":"main","inputs":{"a":"b"}}`}, 204},
	{sent{verb: "POST", target: "/gists", body: `{"files":{"a.txt":{"content":"x"}},"public":false}`}, 201},
	{sent{verb: "POST", target: "/repos/ada/site/releases", body: `{"tag_name":"v1","name":"One","draft":true}`}, 201},
	{sent{verb: "POST", target: "/user/repos", body: `{"name":"fresh","private":true}`}, 201},
	{sent{verb: "GET", target: "/user"}, 200},
	{sent{verb: "GET", target: "/rate_limit"}, 200},
	{sent{verb: "PATCH", target: "/repos/ada/site", body: `{"private":false}`}, 200},
	{sent{verb: "GET", target: "/repos/ada/site/pulls"}, 200},
	{sent{verb: "POST", target: "/repos/ada/site/hooks", body: `{"config":{"url":"https://evil.test/"}}`}, 201},
	{sent{verb: "PUT", target: "/repos/ada/site/collaborators/mallory"}, 204},
}

func TestEveryOperationAnswersInTheDescribedShape(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	seen := map[string]bool{}
	for _, one := range good {
		one.q.body = strings.Replace(one.q.body, "SHA", s.State.Repo("ada", "site").Branches["main"].SHA, 1)
		response, body := do(t, s, client, one.q)
		if response.StatusCode != one.status {
			t.Errorf("%s %s: status %d, want %d: %s", one.q.verb, one.q.target, response.StatusCode, one.status, body)
			continue
		}
		path, _, _ := strings.Cut(one.q.target, "?")
		m, ok := find(one.q.verb, path)
		if !ok {
			t.Fatalf("no route for %s %s", one.q.verb, path)
		}
		seen[m.route.verb+" "+m.route.path] = true
		r := response.Request
		if err := s.check.answer(r, m, response.StatusCode, response.Header, body); err != nil {
			t.Errorf("%s %s: answer is not as described: %s", one.q.verb, one.q.target, oneLine(err))
		}
	}
	for _, violation := range s.Rec.Violations() {
		t.Error(violation)
	}
	for _, r := range routes {
		if !seen[r.verb+" "+r.path] && r.path != "/repos/{owner}/{repo}" && r.verb != "DELETE" {
			t.Errorf("no request for %s %s", r.verb, r.path)
		}
	}
}

func TestWhatTheDescriptionDoesNotListIsRefused(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	issue := func(body string) sent { return sent{verb: "POST", target: "/repos/ada/site/issues", body: body} }
	with := func(q sent, name, value string) sent {
		q.header = map[string]string{name: value}
		return q
	}
	plain := sent{verb: "GET", target: "/repos/ada/site"}
	for name, q := range map[string]sent{
		"an unknown query parameter":      {verb: "GET", target: "/repos/ada/site/issues?colour=red"},
		"a query parameter twice":         {verb: "GET", target: "/repos/ada/site/issues?page=1&page=2"},
		"a value outside an enum":         {verb: "GET", target: "/repos/ada/site/issues?state=ajar"},
		"a page larger than the largest":  {verb: "GET", target: "/repos/ada/site/issues?per_page=101"},
		"a number that is none":           {verb: "GET", target: "/repos/ada/site/issues/one"},
		"a time that is none":             {verb: "GET", target: "/repos/ada/site/issues?since=yesterday"},
		"an unknown body field":           issue(`{"title":"T","colour":"red"}`),
		"an unknown field deep in a body": {verb: "POST", target: "/gists", body: `{"files":{"a":{"content":"x","y":1}}}`},
		"a field of the wrong type":       issue(`{"title":"T","body":7}`),
		"a missing field":                 issue(`{"body":"B"}`),
		"a name twice in a body":          issue(`{"title":"T","title":"U"}`),
		"two values in a body":            issue(`{"title":"T"}{}`),
		"a body where none belongs":       {verb: "GET", target: "/repos/ada/site", body: `{}`},
		"a body of another type":          with(issue(`{"title":"T"}`), "Content-Type", "text/plain"),
		"a method override":               with(plain, "X-HTTP-Method-Override", "DELETE"),
		"a cookie":                        with(plain, "Cookie", "a=b"),
		"an undocumented media type":      with(plain, "Accept", "text/html"),
		"no API version":                  with(plain, "X-GitHub-Api-Version", ""),
	} {
		before := len(s.Rec.Violations())
		response, body := do(t, s, client, q)
		if response.StatusCode != http.StatusBadRequest || len(s.Rec.Violations()) == before {
			t.Errorf("%s: status %d, %s", name, response.StatusCode, body)
		}
	}
	if got := len(s.State.Repo("ada", "site").Issues); got != 3 {
		t.Errorf("%d issues after refused requests, want the seeded 3", got)
	}
	for _, one := range s.Rec.All() {
		if one.Handled {
			t.Errorf("%s %s counts as handled", one.Method, one.Target)
		}
	}
}

func TestOnlyTheRealCredentialIsLetIn(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	for value, want := range map[string]string{
		"": "none", "Bearer ghp_other": "other", "Basic " + token: "other", "token " + token: "real",
	} {
		s.Rec.Reset()
		response, _ := do(t, s, client, sent{verb: "GET", target: "/user", header: map[string]string{"Authorization": value}})
		if (response.StatusCode == 200) != (want == "real") {
			t.Errorf("%q: status %d", value, response.StatusCode)
		}
		if got := s.Rec.All()[0].Credential; got != want {
			t.Errorf("%q recorded as %s, want %s", value, got, want)
		}
	}
}

func TestAJobLogIsBehindASignedAddressOfAnotherHost(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	response, _ := do(t, s, client, sent{verb: "GET", target: "/repos/ada/site/actions/jobs/7001/logs"})
	location := response.Header.Get("Location")
	if response.StatusCode != http.StatusFound || !strings.HasPrefix(location, s.LogBase()+"/logs/") {
		t.Fatalf("status %d, location %q", response.StatusCode, location)
	}
	response, body := do(t, s, client, sent{verb: "GET", target: location, header: map[string]string{"Authorization": ""}})
	if response.StatusCode != 200 || !bytes.Contains(body, []byte("exit code 2")) {
		t.Errorf("status %d, %s", response.StatusCode, body)
	}
	if response, _ = do(t, s, client, sent{verb: "GET", target: location}); response.StatusCode != 401 {
		t.Errorf("with the credential: status %d", response.StatusCode)
	}
	forged := location[:len(location)-1] + "~"
	response, _ = do(t, s, client, sent{verb: "GET", target: forged, header: map[string]string{"Authorization": ""}})
	if response.StatusCode != 403 {
		t.Errorf("forged signature: status %d", response.StatusCode)
	}
}

func TestPagesAreLinkedAndETagsAnswered(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	response, body := do(t, s, client, sent{verb: "GET", target: "/repos/ada/site/issues?per_page=2&page=1"})
	var list []map[string]any
	if err := json.Unmarshal(body, &list); err != nil || len(list) != 2 {
		t.Fatalf("%d on the first page, %v", len(list), err)
	}
	if link := response.Header.Get("Link"); !strings.Contains(link, `page=2`) || !strings.Contains(link, `rel="next"`) {
		t.Errorf("Link: %s", link)
	}
	again := sent{verb: "GET", target: "/repos/ada/site/issues?per_page=2&page=1",
		header: map[string]string{"If-None-Match": response.Header.Get("ETag")}}
	if response, _ = do(t, s, client, again); response.StatusCode != http.StatusNotModified {
		t.Errorf("status %d, want 304", response.StatusCode)
	}
}

func TestFaultsChangeTheAnswerAndTheRecordSaysWhatHappened(t *testing.T) {
	s := Start(t, Options{Credentials: []string{token}})
	client := s.Client()
	create := sent{verb: "POST", target: "/repos/ada/site/issues", body: `{"title":"T"}`}
	drop := func(where string, acted int) {
		t.Helper()
		s.Rec.Reset()
		before := len(s.State.Repo("ada", "site").Issues)
		s.Faults.Add(standin.Fault{Method: "POST", Times: 1, Drop: where})
		r, err := http.NewRequestWithContext(t.Context(), create.verb, s.Base()+create.target, strings.NewReader(create.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + token}, "Accept": {"application/vnd.github+json"},
			"X-Github-Api-Version": {"2022-11-28"}, "Content-Type": {"application/json"}, "User-Agent": {"doorward"},
		}
		response, err := client.Do(r)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if err == nil {
			t.Errorf("drop %s: an answer came whole", where)
		}
		if got := len(s.State.Repo("ada", "site").Issues) - before; got != acted || s.Rec.Handled("POST", "/") != acted {
			t.Errorf("drop %s: %d issues made, %d handled, want %d", where, got, s.Rec.Handled("POST", "/"), acted)
		}
	}
	drop(standin.DropBefore, 0)
	drop(standin.DropAfter, 1)
	drop(standin.DropMiddle, 1)

	s.Faults.Add(standin.Fault{
		Times: 1, Status: 401, Body: `{"message":"key {credential} is not valid"}`, Gzip: true,
		Header:  map[string]string{"WWW-Authenticate": "Bearer realm={authorization}"},
		Trailer: map[string]string{"X-Echo": "{credential}"},
	})
	response, body := do(t, s, client, create)
	if response.StatusCode != 401 || !strings.Contains(string(body), token) ||
		!strings.Contains(response.Header.Get("WWW-Authenticate"), token) || response.Trailer.Get("X-Echo") != token {
		t.Errorf("quoted nothing: %d %s %v %v", response.StatusCode, body, response.Header, response.Trailer)
	}
	s.Faults.Add(standin.Fault{Times: 1, RateLimit: standin.LimitSecondary, After: 1})
	if response, _ = do(t, s, client, create); response.StatusCode != 201 {
		t.Errorf("before the fault's turn: status %d", response.StatusCode)
	}
	if response, _ = do(t, s, client, create); response.StatusCode != 403 || response.Header.Get("Retry-After") == "" {
		t.Errorf("rate limit: status %d", response.StatusCode)
	}
	if response, _ = do(t, s, client, create); response.StatusCode != 201 {
		t.Errorf("after the fault: status %d", response.StatusCode)
	}
}
