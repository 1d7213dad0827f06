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

// written sends the one request of a write, once, and answers what came of it; tell takes that from what GitHub made, and
// names it for the record. An answer that is a success but cannot be read is a success all the same: the write ran, so
// the caller gets what is known without it.
func written[In any](ctx context.Context, c *workers.Call, tell func(*In, *made) string) (*workers.Answer, error) {
	r, err := c.Do(ctx, "send", workers.Accept(acceptJSON))
	if err != nil {
		return nil, err
	}
	if err := refused(c, r); err != nil {
		return nil, err
	}
	m := made{Repo: c.Values.One("repo"), Number: c.Values.Int("number"), Done: true}
	var in In
	if _, none := any(in).(struct{}); !none { // else it is not even read
		_ = r.JSON(&in) // see above
	}
	object := tell(&in, &m)
	return &workers.Answer{Value: m, Object: object}, nil
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

// id is a number of the vendor's as text: numbers beyond 2^53 do not live in JSON.
func id(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func issueCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(in *issueIn, m *made) string {
		m.Number, m.State, m.URL = in.Number, word(in.State), link(in.URL, c.Base.Host)
		return numbered(m.Repo, in.Number)
	})
}

func issueUpdate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	changes := 0
	for _, arg := range []string{"state", "title", "body", "label"} {
		changes += len(c.Values[arg])
	}
	if changes == 0 {
		return nil, bad("state", "name at least one of --state, --title, --body, --label")
	}
	return written(ctx, c, func(in *issueIn, m *made) string {
		m.State, m.URL = word(in.State), link(in.URL, c.Base.Host)
		return numbered(m.Repo, m.Number)
	})
}

func comment(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(in *commentIn, m *made) string {
		m.ID, m.URL = id(in.ID), link(in.URL, c.Base.Host)
		return numbered(m.Repo, m.Number) + " comment " + m.ID
	})
}

func pullCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(in *pullIn, m *made) string {
		m.Number, m.State, m.Commit = in.Number, word(in.State), sha(in.Head.SHA)
		m.URL = link(in.URL, c.Base.Host)
		return numbered(m.Repo, in.Number)
	})
}

func review(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	if c.Values.One("event") != "approve" && c.Values.One("body") == "" {
		return nil, bad("body", "needed unless the review approves")
	}
	type verdict struct {
		ID     int64  `json:"id"`
		State  string `json:"state"`
		Commit string `json:"commit_id"`
		URL    string `json:"html_url"`
	}
	return written(ctx, c, func(in *verdict, m *made) string {
		m.ID, m.State, m.Commit, m.URL = id(in.ID), word(in.State), sha(in.Commit), link(in.URL, c.Base.Host)
		return numbered(m.Repo, m.Number) + " review " + m.ID
	})
}

func pullMerge(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	type merge struct {
		SHA    string `json:"sha"`
		Merged bool   `json:"merged"`
	}
	return written(ctx, c, func(in *merge, m *made) string {
		m.Commit, m.Merged = sha(in.SHA), in.Merged
		return numbered(m.Repo, m.Number)
	})
}

func filePut(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	type put struct {
		Content struct {
			SHA string `json:"sha"`
		} `json:"content"`
		Commit struct {
			SHA string `json:"sha"`
			URL string `json:"html_url"`
		} `json:"commit"`
	}
	return written(ctx, c, func(in *put, m *made) string {
		m.SHA, m.Commit, m.URL = sha(in.Content.SHA), sha(in.Commit.SHA), link(in.Commit.URL, c.Base.Host)
		return m.Repo + " " + c.Values.One("path") + " " + m.SHA
	})
}

func branchCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(_ *struct{}, m *made) string {
		m.Commit = c.Values.One("from")
		return m.Repo + " " + c.Values.One("name")
	})
}

func branchDelete(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(_ *struct{}, m *made) string { return m.Repo + " " + c.Values.One("name") })
}

// workflowRun: GitHub names no run; runs shows it.
func workflowRun(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(_ *struct{}, m *made) string { return m.Repo + " " + c.Values.One("workflow") })
}

func releaseCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	type release struct {
		ID  int64  `json:"id"`
		URL string `json:"html_url"`
	}
	return written(ctx, c, func(in *release, m *made) string {
		m.ID, m.URL = id(in.ID), link(in.URL, c.Base.Host)
		return m.Repo + " release " + c.Values.One("tag")
	})
}

func gistCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	for _, file := range c.Files("file") {
		if file.Size == 0 {
			return nil, bad("file", "GitHub takes no empty file into a gist")
		}
	}
	type gist struct {
		ID  string `json:"id"`
		URL string `json:"html_url"`
	}
	return written(ctx, c, func(in *gist, m *made) string {
		m.ID, m.URL = word(in.ID), link(in.URL, c.Base.Host)
		return "gist " + m.ID
	})
}

func repoCreate(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return written(ctx, c, func(in *repoIn, m *made) string {
		m.Private = in.Private
		if !isRepo(in.FullName) {
			return c.Values.One("name")
		}
		m.Repo = in.FullName
		return in.FullName
	})
}
