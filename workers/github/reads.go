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

// page answers the items of a list, each turned by out. whole is what GitHub's answer is decoded into, and in, total
// and incomplete, of which the last two may be nil, stand in it. GitHub gives no more than was asked for; a server that
// does is cut.
func page[In, Out any](ctx context.Context, c *workers.Call, whole any, in *[]In, total *int, incomplete *bool,
	out func(*In) (*Out, error)) (*workers.Answer, error) {
	r, raw, err := fetchJSON(ctx, c, whole)
	if err != nil || raw != nil {
		return raw, err
	}
	items, err := each(*in, int(c.Values.Int("max")), out)
	if err != nil {
		return nil, err
	}
	l := list[*Out]{Items: items, Total: total, Repo: c.Values.One("repo")}
	a := &workers.Answer{Next: nextPage(r, c)}
	if incomplete != nil && *incomplete {
		l.Incomplete, a.Truncated = true, "GitHub did not search everything in time"
	}
	a.Value = l
	return a, nil
}

// search is page for GitHub's searches.
func search[In, Out any](ctx context.Context, c *workers.Call, out func(*In) (*Out, error)) (*workers.Answer, error) {
	var in foundIn[In]
	return page(ctx, c, &in, &in.Items, &in.Total, &in.Incomplete, out)
}

// plain is page for an answer that is nothing but the list.
func plain[In, Out any](ctx context.Context, c *workers.Call, out func(*In) (*Out, error)) (*workers.Answer, error) {
	var in []In
	return page(ctx, c, &in, &in, nil, nil, out)
}

// single answers one object.
func single[In, Out any](ctx context.Context, c *workers.Call, out func(*In) (*Out, error)) (*workers.Answer, error) {
	var in In
	if _, raw, err := fetchJSON(ctx, c, &in); err != nil || raw != nil {
		return raw, err
	}
	o, err := out(&in)
	if err != nil {
		return nil, err
	}
	return &workers.Answer{Value: o}, nil
}

func repos(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return plain(ctx, c, (*repoIn).out)
}

func repoGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return single(ctx, c, (*repoIn).out)
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
	return search(ctx, c, (*codeIn).out)
}

func issueSearch(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return search(ctx, c, func(i *issueIn) (*issueOut, error) { return i.out("", shownShort) })
}

func issues(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	repo := c.Values.One("repo")
	return plain(ctx, c, func(i *issueIn) (*issueOut, error) { return i.out(repo, shownShort) })
}

func issueGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return single(ctx, c, func(i *issueIn) (*issueOut, error) {
		if i.Number != c.Values.Int("number") {
			return nil, unlike("another issue came")
		}
		return i.out(c.Values.One("repo"), shownBody)
	})
}

func comments(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	source := "github issue " + c.Values.One("repo") + "#" + c.Values.One("number")
	return plain(ctx, c, func(i *commentIn) (*commentOut, error) { return i.out(source) })
}

func pullGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if c.Values.One("diff") == "true" {
		r, err := fetch(ctx, c, acceptDiff)
		if err != nil {
			return nil, err
		}
		return first(r, maxRaw, "text/x-diff"), nil
	}
	return single(ctx, c, func(p *pullIn) (*pullOut, error) {
		if p.Number != c.Values.Int("number") {
			return nil, unlike("another pull request came")
		}
		return p.out(c.Values.One("repo"), shownBody)
	})
}

func pullFiles(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	source := "github pull request " + c.Values.One("repo") + "#" + c.Values.One("number")
	return plain(ctx, c, func(f *fileIn) (*fileOut, error) { return f.out(source) })
}

func runs(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in runsIn
	repo := c.Values.One("repo")
	return page(ctx, c, &in, &in.Runs, &in.Total, nil, func(r *runIn) (*runOut, error) { return r.out(repo) })
}

func notifications(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return plain(ctx, c, (*noticeIn).out)
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
