// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// accepted is the media type of GitHub's JSON; others name a file's or a diff's own bytes.
const (
	acceptJSON = "application/vnd.github+json"
	acceptRaw  = "application/vnd.github.raw+json"
	acceptDiff = "application/vnd.github.diff"
)

// maxEntries bounds the entries of a folder or tree in an answer.
const maxEntries = 10_000

// fetch sends the one request of a read and returns GitHub's answer where it is a success.
func fetch(ctx context.Context, c *workers.Call, accept string) (*workers.Response, error) {
	r, err := c.Do(ctx, "get", workers.Accept(accept))
	if err != nil {
		return nil, err
	}
	if err := refused(c, r); err != nil {
		return nil, err
	}
	return r, nil
}

// fetchJSON also decodes it. The answer it returns is set for a call that wants GitHub's own bytes.
func fetchJSON(ctx context.Context, c *workers.Call, into any) (*workers.Response, *workers.Answer, error) {
	r, err := fetch(ctx, c, acceptJSON)
	if err != nil {
		return nil, nil, err
	}
	if c.Raw {
		b, err := r.Bytes()
		if err != nil {
			return nil, nil, err
		}
		return r, &workers.Answer{
			Raw: bytes.NewReader(b), Media: "application/json", Object: r.Header.Get("ETag"), Next: nextPage(r, c),
		}, nil
	}
	return r, nil, r.JSON(into)
}

// nextPage is the number of the page that follows, if GitHub links one. Only the number is taken from the link.
func nextPage(r *workers.Response, c *workers.Call) string {
	if !hasNext(r.Header.Get("Link")) {
		return ""
	}
	page := c.Values.Int("page") + 1
	if page > maxPages {
		return ""
	}
	return strconv.FormatInt(page, 10)
}

// hasNext says whether a Link header (RFC 8288) has a link of relation next.
func hasNext(header string) bool {
	for _, one := range strings.Split(header, ",") {
		_, params, ok := strings.Cut(one, ">")
		if !ok {
			continue
		}
		for _, param := range strings.Split(params, ";") {
			if strings.EqualFold(strings.TrimSpace(param), `rel="next"`) {
				return true
			}
		}
	}
	return false
}

// listed answers a page of items.
func listed[T any](r *workers.Response, c *workers.Call, l list[T]) *workers.Answer {
	a := &workers.Answer{Value: l, Next: nextPage(r, c)}
	if l.Incomplete {
		a.Truncated = "GitHub did not search everything in time"
	}
	return a
}

// mostItems is what a list answers at most. GitHub gives no more than was asked for; a server that does is cut.
func mostItems(c *workers.Call) int { return int(c.Values.Int("max")) }

func repos(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in []repoIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	items, err := each(in, mostItems(c), (*repoIn).out)
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*repoOut]{Items: items}), nil
}

func repoGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in repoIn
	_, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	out, err := in.out()
	if err != nil {
		return nil, err
	}
	return &workers.Answer{Value: out}, nil
}

// fileGet asks for the file's own bytes, so that none is changed on the way; a folder comes as JSON all the same.
func fileGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	r, err := fetch(ctx, c, acceptRaw)
	if err != nil {
		return nil, err
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !c.Raw && strings.TrimSpace(media) == "application/json" {
		var in []entryIn
		if err := r.JSON(&in); err != nil {
			return nil, err
		}
		return folder(c.Values.One("repo"), in)
	}
	return first(r, c.Values.Int("max-bytes"), "application/octet-stream"), nil
}

func folder(repo string, in []entryIn) (*workers.Answer, error) {
	source := "github repository " + repo
	items, err := each(in, maxEntries, func(e *entryIn) (*entryOut, error) { return e.out(source) })
	if err != nil {
		return nil, err
	}
	a := &workers.Answer{Value: list[*entryOut]{Repo: repo, Items: items}}
	if len(in) >= 1000 {
		a.Truncated = "GitHub lists at most 1,000 entries of a folder; use tree"
	}
	return a, nil
}

// first answers the first limit bytes of a body, as they are and as they come.
func first(r *workers.Response, limit int64, media string) *workers.Answer {
	return &workers.Answer{Media: media, Raw: &beginning{r: r.Body, left: limit}}
}

func tree(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in treeIn
	_, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	a, err := folder(c.Values.One("repo"), in.Tree)
	if err != nil {
		return nil, err
	}
	a.Truncated = ""
	switch {
	case len(in.Tree) > maxEntries:
		a.Truncated = strconv.Itoa(maxEntries) + " of " + strconv.Itoa(len(in.Tree)) + " entries shown; list a folder " +
			"with file-get"
	case in.Truncated:
		a.Truncated = "GitHub does not list all of so large a tree; list folders with file-get"
	}
	return a, nil
}

func codeSearch(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in foundIn[codeIn]
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	items, err := each(in.Items, mostItems(c), (*codeIn).out)
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*codeOut]{Items: items, Total: &in.Total, Incomplete: in.Incomplete}), nil
}

func issueSearch(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in foundIn[issueIn]
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	items, err := each(in.Items, mostItems(c), func(i *issueIn) (*issueOut, error) { return i.out("", shownShort) })
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*issueOut]{Items: items, Total: &in.Total, Incomplete: in.Incomplete}), nil
}

func issues(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in []issueIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	repo := c.Values.One("repo")
	items, err := each(in, mostItems(c), func(i *issueIn) (*issueOut, error) { return i.out(repo, shownShort) })
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*issueOut]{Repo: repo, Items: items}), nil
}

func issueGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in issueIn
	_, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	if in.Number != c.Values.Int("number") {
		return nil, unlike("another issue came")
	}
	out, err := in.out(c.Values.One("repo"), shownBody)
	if err != nil {
		return nil, err
	}
	return &workers.Answer{Value: out}, nil
}

func comments(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in []commentIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	repo := c.Values.One("repo")
	source := "github issue " + repo + "#" + c.Values.One("number")
	items, err := each(in, mostItems(c), func(i *commentIn) (*commentOut, error) { return i.out(source) })
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*commentOut]{Repo: repo, Items: items}), nil
}

func pullGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if c.Values.One("diff") == "true" {
		r, err := fetch(ctx, c, acceptDiff)
		if err != nil {
			return nil, err
		}
		return first(r, maxRaw, "text/x-diff"), nil
	}
	var in pullIn
	_, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	if in.Number != c.Values.Int("number") {
		return nil, unlike("another pull request came")
	}
	out, err := in.out(c.Values.One("repo"), shownBody)
	if err != nil {
		return nil, err
	}
	return &workers.Answer{Value: out}, nil
}

func pullFiles(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in []fileIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	repo := c.Values.One("repo")
	source := "github pull request " + repo + "#" + c.Values.One("number")
	items, err := each(in, mostItems(c), func(f *fileIn) (*fileOut, error) { return f.out(source) })
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*fileOut]{Repo: repo, Items: items}), nil
}

func runs(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in runsIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	repo := c.Values.One("repo")
	items, err := each(in.Runs, mostItems(c), func(r *runIn) (*runOut, error) { return r.out(repo) })
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*runOut]{Repo: repo, Items: items, Total: &in.Total}), nil
}

func notifications(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in []noticeIn
	r, raw, err := fetchJSON(ctx, c, &in)
	if err != nil || raw != nil {
		return raw, err
	}
	items, err := each(in, mostItems(c), (*noticeIn).out)
	if err != nil {
		return nil, err
	}
	return listed(r, c, list[*noticeOut]{Items: items}), nil
}

// jobLog follows GitHub's redirect to the log's signed address, without the credential, and keeps the last lines.
func jobLog(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	r, err := c.Do(ctx, "get", workers.Accept(acceptJSON))
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusFound {
		if err := refused(c, r); err != nil {
			return nil, err
		}
		return nil, unlike("a log without a redirect")
	}
	r, err = c.Follow(ctx, "log", r)
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusOK {
		return nil, wire.Refuse(wire.CodeVendorDown, "the log is not at the address that GitHub gave (HTTP "+
			strconv.Itoa(r.Status)+")", "try again; such an address lives about a minute")
	}
	kept, more, err := tail(r.Body, int(c.Values.Int("tail")))
	if err != nil {
		return nil, err
	}
	a := &workers.Answer{Raw: bytes.NewReader(kept), Media: "text/plain"}
	if more {
		a.Truncated = "only the last lines; ask for more with --tail"
	}
	return a, nil
}
