// SPDX-License-Identifier: Apache-2.0

package github

import (
	"context"
	"strconv"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// made is the answer of a write: what came of it, and nothing that others wrote.
type made struct {
	Repo    string `json:"repo,omitempty"`
	Number  int64  `json:"number,omitempty"`
	ID      string `json:"id,omitempty"`
	State   string `json:"state,omitempty"`
	SHA     string `json:"sha,omitempty"`    // of a file
	Commit  string `json:"commit,omitempty"` // that it is in
	Merged  bool   `json:"merged,omitempty"`
	Private *bool  `json:"private,omitempty"`
	URL     string `json:"url,omitempty"`
	Done    bool   `json:"done"`
}

// post sends the one request of a write, once, and decodes what GitHub made. An answer that is a success but cannot be
// read is a success all the same: the write ran, so the caller gets what is known without it.
func post(ctx context.Context, c *workers.Call, into any) error {
	r, err := c.Do(ctx, "send", workers.Accept(acceptJSON))
	if err != nil {
		return err
	}
	if err := refused(c, r); err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	_ = r.JSON(into) // see above
	return nil
}

// answer completes what a write made. object is the vendor's name for it, for the record.
func (m made) answer(object string) *workers.Answer {
	m.Done = true
	return &workers.Answer{Value: m, Object: object}
}

func bad(arg, problem string) error {
	return wire.Refuse(wire.CodeBadArgument, "--"+arg+": "+problem, "")
}

// numbered names an issue or pull request for the record.
func numbered(repo string, number int64) string {
	if number <= 0 {
		return repo
	}
	return repo + "#" + strconv.FormatInt(number, 10)
}

func issueCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in issueIn
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	m := made{Repo: repo, Number: in.Number, State: word(in.State), URL: link(in.URL, c.Base.Host)}
	return m.answer(numbered(repo, in.Number)), nil
}

func issueUpdate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	changes := 0
	for _, arg := range []string{"state", "title", "body", "label"} {
		changes += len(c.Values[arg])
	}
	if changes == 0 {
		return nil, bad("state", "name at least one of --state, --title, --body, --label")
	}
	var in issueIn
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo, n := c.Values.One("repo"), c.Values.Int("number")
	m := made{Repo: repo, Number: n, State: word(in.State), URL: link(in.URL, c.Base.Host)}
	return m.answer(numbered(repo, n)), nil
}

func comment(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in commentIn
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo, n := c.Values.One("repo"), c.Values.Int("number")
	m := made{Repo: repo, Number: n, ID: id(in.ID), URL: link(in.URL, c.Base.Host)}
	return m.answer(numbered(repo, n) + " comment " + m.ID), nil
}

// id is a number of the vendor's as text: numbers beyond 2^53 do not live in JSON.
func id(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func pullCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in pullIn
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	m := made{
		Repo: repo, Number: in.Number, State: word(in.State), Commit: sha(in.Head.SHA), URL: link(in.URL, c.Base.Host),
	}
	return m.answer(numbered(repo, in.Number)), nil
}

func review(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if c.Values.One("event") != "approve" && c.Values.One("body") == "" {
		return nil, bad("body", "needed unless the review approves")
	}
	var in struct {
		ID     int64  `json:"id"`
		State  string `json:"state"`
		Commit string `json:"commit_id"`
		URL    string `json:"html_url"`
	}
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo, n := c.Values.One("repo"), c.Values.Int("number")
	m := made{
		Repo: repo, Number: n, ID: id(in.ID), State: word(in.State), Commit: sha(in.Commit), URL: link(in.URL, c.Base.Host),
	}
	return m.answer(numbered(repo, n) + " review " + m.ID), nil
}

func pullMerge(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in struct {
		SHA    string `json:"sha"`
		Merged bool   `json:"merged"`
	}
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo, n := c.Values.One("repo"), c.Values.Int("number")
	return made{Repo: repo, Number: n, Commit: sha(in.SHA), Merged: in.Merged}.answer(numbered(repo, n)), nil
}

func filePut(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in struct {
		Content struct {
			SHA string `json:"sha"`
		} `json:"content"`
		Commit struct {
			SHA string `json:"sha"`
			URL string `json:"html_url"`
		} `json:"commit"`
	}
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	m := made{
		Repo: repo, SHA: sha(in.Content.SHA), Commit: sha(in.Commit.SHA), URL: link(in.Commit.URL, c.Base.Host),
	}
	return m.answer(repo + " " + c.Values.One("path") + " " + m.SHA), nil
}

func branchCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if err := post(ctx, c, nil); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	return made{Repo: repo, Commit: c.Values.One("from")}.answer(repo + " " + c.Values.One("name")), nil
}

func branchDelete(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if err := post(ctx, c, nil); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	return made{Repo: repo}.answer(repo + " " + c.Values.One("name")), nil
}

func workflowRun(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if err := post(ctx, c, nil); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo") // GitHub names no run: runs shows it
	return made{Repo: repo}.answer(repo + " " + c.Values.One("workflow")), nil
}

func gistCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	for _, file := range c.Files("file") {
		if file.Size == 0 {
			return nil, bad("file", "GitHub takes no empty file into a gist")
		}
	}
	var in struct {
		ID  string `json:"id"`
		URL string `json:"html_url"`
	}
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	m := made{ID: word(in.ID), URL: link(in.URL, c.Base.Host)}
	return m.answer("gist " + m.ID), nil
}

func releaseCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in struct {
		ID  int64  `json:"id"`
		URL string `json:"html_url"`
	}
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	repo := c.Values.One("repo")
	m := made{Repo: repo, ID: id(in.ID), URL: link(in.URL, c.Base.Host)}
	return m.answer(repo + " release " + c.Values.One("tag")), nil
}

func repoCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	var in repoIn
	if err := post(ctx, c, &in); err != nil {
		return nil, err
	}
	m := made{Private: in.Private}
	object := c.Values.One("name")
	if isRepo(in.FullName) {
		m.Repo, object = in.FullName, in.FullName
	}
	return m.answer(object), nil
}
