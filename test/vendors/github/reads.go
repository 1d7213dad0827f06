// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxJSONFile is the size in bytes up to which GitHub puts a file's content into JSON.
const maxJSONFile = 1 << 20

func (s *Server) getUser(c *call) {
	s.answer(c, http.StatusOK, object{
		"login": s.State.login, "id": 1, "type": "User", "user_view_type": "private",
	})
}

func (s *Server) rateLimit(c *call) {
	limit := object{"limit": 5000, "remaining": 4987, "used": 13, "reset": s.State.now().Unix() + 3600}
	s.answer(c, http.StatusOK, object{"resources": object{"core": limit, "search": limit}, "rate": limit})
}

func (s *Server) listRepos(c *call) {
	want := c.query.Get("visibility")
	var all []any
	for _, r := range s.State.repos {
		mine := r.Owner == s.State.login || slices.Contains(r.Collaborators, s.State.login)
		if mine && (want == "" || want == "all" || (want == "private") == r.Private) {
			all = append(all, s.repoView(r))
		}
	}
	s.answer(c, http.StatusOK, s.page(c, all))
}

func (s *Server) getRepo(c *call) { s.answer(c, http.StatusOK, s.repoView(c.repo)) }

func (s *Server) getContents(c *call) {
	tip := c.repo.at(c.query.Get("ref"))
	if tip == nil {
		c.refuse(http.StatusNotFound, "No commit found for the ref "+c.query.Get("ref"))
		return
	}
	path := strings.Trim(c.m.params["path"], "/")
	raw := c.r.Header.Get("Accept") == "application/vnd.github.raw+json"
	if text, ok := tip.Tree[path]; ok {
		if raw {
			c.bytes(http.StatusOK, "application/vnd.github.raw+json; charset=utf-8", text)
			return
		}
		view := s.contentView(c.repo, path, text)
		view["encoding"], view["content"] = "none", ""
		if len(text) <= maxJSONFile {
			view["encoding"], view["content"] = "base64", lines(base64.StdEncoding.EncodeToString(text))
		}
		s.answer(c, http.StatusOK, view)
		return
	}
	list := []any{}
	dirs := map[string]bool{}
	for _, name := range sortedKeys(tip.Tree) {
		below, ok := strings.CutPrefix(name, path+"/")
		if !ok {
			continue
		}
		dir, _, deep := strings.Cut(below, "/")
		switch {
		case !deep:
			list = append(list, s.contentView(c.repo, name, tip.Tree[name]))
		case !dirs[dir]:
			dirs[dir] = true
			view := s.contentView(c.repo, path+"/"+dir, nil)
			view["type"], view["download_url"] = "dir", nil
			list = append(list, view)
		}
	}
	if len(list) == 0 {
		c.refuse(http.StatusNotFound, "Not Found")
		return
	}
	s.answer(c, http.StatusOK, list[:min(len(list), 1000)])
}

// lines breaks base64 text as GitHub does.
func lines(text string) string {
	var b strings.Builder
	for len(text) > 60 {
		b.WriteString(text[:60] + "\n")
		text = text[60:]
	}
	b.WriteString(text + "\n")
	return b.String()
}

func (s *Server) getTree(c *call) {
	tip := c.repo.at(c.m.params["tree_sha"])
	if tip == nil {
		c.refuse(http.StatusNotFound, "Not Found")
		return
	}
	// GitHub takes any value, "0" and "false" too, as a wish to recurse.
	recursive := c.query.Has("recursive")
	list := []any{}
	dirs := map[string]bool{}
	for _, name := range sortedKeys(tip.Tree) {
		for i, letter := range name {
			if dir := name[:i]; letter == '/' && !dirs[dir] && (recursive || !strings.Contains(dir, "/")) {
				dirs[dir] = true
				list = append(list, object{
					"path": dir, "mode": "040000", "type": "tree", "sha": treeSHA(map[string][]byte{dir: nil}),
				})
			}
		}
		if recursive || !strings.Contains(name, "/") {
			list = append(list, object{
				"path": name, "mode": "100644", "type": "blob", "sha": blobSHA(tip.Tree[name]),
				"size": len(tip.Tree[name]),
			})
		}
	}
	s.answer(c, http.StatusOK, object{
		"sha": treeSHA(tip.Tree), "url": s.base + c.r.URL.EscapedPath(), "tree": list, "truncated": false,
	})
}

// qualifiers splits a search query into words and name:value pairs.
func qualifiers(q string) (words []string, named map[string]string) {
	named = map[string]string{}
	for _, field := range strings.Fields(q) {
		if name, value, ok := strings.Cut(field, ":"); ok && !strings.HasPrefix(name, `"`) {
			named[name] = value
			continue
		}
		words = append(words, strings.ToLower(strings.Trim(field, `"`)))
	}
	return words, named
}

func containsAll(text string, words []string) bool {
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// visible says whether the account may see a repository.
func (s *Server) visible(r *Repo, named map[string]string) bool {
	want := named["repo"]
	return (!r.Private || r.Owner == s.State.login) && (want == "" || want == r.Owner+"/"+r.Name)
}

func (s *Server) searchCode(c *call) {
	words, named := qualifiers(c.query.Get("q"))
	if len(words) == 0 {
		c.invalid("Search", "q", "missing", "a search needs words")
		return
	}
	all := []any{}
	for _, r := range s.State.repos {
		if !s.visible(r, named) {
			continue
		}
		tree := r.Branches["main"].Tree
		for _, path := range sortedKeys(tree) {
			if containsAll(string(tree[path])+" "+path, words) {
				view := s.contentView(r, path, tree[path])
				view["repository"], view["score"] = s.repoView(r), 1
				all = append(all, view)
			}
		}
	}
	s.found(c, all)
}

func (s *Server) searchIssues(c *call) {
	words, named := qualifiers(c.query.Get("q"))
	all := []any{}
	for _, r := range s.State.repos {
		if !s.visible(r, named) {
			continue
		}
		for _, issue := range r.Issues {
			kind := "issue"
			if issue.Pull != nil {
				kind = "pr"
			}
			want := named["is"]
			isKind := want == "" || want == kind || want == issue.State
			if isKind && containsAll(issue.Title+" "+issue.Body, words) {
				view := s.issueView(r, issue)
				view["score"] = 1
				all = append(all, view)
			}
		}
	}
	s.found(c, all)
}

func (s *Server) found(c *call, all []any) {
	total := len(all)
	if size, page := number(c.query.Get("per_page"), 30), number(c.query.Get("page"), 1); size*page > 1000 {
		c.invalid("Search", "page", "invalid", "Only the first 1000 search results are available")
		return
	}
	c.w.Header().Set("X-Ratelimit-Resource", "search")
	s.answer(c, http.StatusOK, object{"total_count": total, "incomplete_results": false, "items": s.page(c, all)})
}

func (s *Server) listIssues(c *call) {
	state := c.query.Get("state")
	if state == "" {
		state = "open"
	}
	since, _ := time.Parse(time.RFC3339, c.query.Get("since"))
	all := []any{}
	for _, issue := range slices.Backward(c.repo.Issues) { // newest first
		if (state != "all" && issue.State != state) || issue.Updated.Before(since) {
			continue
		}
		if creator := c.query.Get("creator"); creator != "" && creator != issue.Author {
			continue
		}
		fits := true
		for _, label := range strings.Split(c.query.Get("labels"), ",") {
			fits = fits && (label == "" || slices.Contains(issue.Labels, label))
		}
		if fits {
			all = append(all, s.issueView(c.repo, issue))
		}
	}
	if c.query.Get("direction") == "asc" {
		slices.Reverse(all)
	}
	s.answer(c, http.StatusOK, s.page(c, all))
}

// issue finds the issue of the path and answers when there is none.
func (c *call) issue(param string) *Issue {
	number, _ := strconv.Atoi(c.m.params[param])
	issue := c.repo.issue(number)
	if issue == nil || (param == "pull_number" && issue.Pull == nil) {
		c.refuse(http.StatusNotFound, "Not Found")
		return nil
	}
	return issue
}

func (s *Server) getIssue(c *call) {
	if issue := c.issue("issue_number"); issue != nil {
		s.answer(c, http.StatusOK, s.issueView(c.repo, issue))
	}
}

func (s *Server) listComments(c *call) {
	issue := c.issue("issue_number")
	if issue == nil {
		return
	}
	since, _ := time.Parse(time.RFC3339, c.query.Get("since"))
	all := []any{}
	for _, comment := range issue.Comments {
		if !comment.Created.Before(since) {
			all = append(all, s.commentView(c.repo, issue, comment))
		}
	}
	s.answer(c, http.StatusOK, s.page(c, all))
}

func (s *Server) getPull(c *call) {
	issue := c.issue("pull_number")
	if issue == nil {
		return
	}
	if c.r.Header.Get("Accept") == "application/vnd.github.diff" {
		c.bytes(http.StatusOK, "application/vnd.github.diff; charset=utf-8", []byte(issue.Pull.Diff))
		return
	}
	s.answer(c, http.StatusOK, s.pullView(c.repo, issue))
}

func (s *Server) listPulls(c *call) {
	all := []any{}
	for _, issue := range slices.Backward(c.repo.Issues) {
		if issue.Pull != nil && (c.query.Get("state") == "all" || issue.State == "open") {
			all = append(all, s.pullView(c.repo, issue))
		}
	}
	s.answer(c, http.StatusOK, s.page(c, all))
}

func (s *Server) pullFiles(c *call) {
	issue := c.issue("pull_number")
	if issue == nil {
		return
	}
	all := []any{}
	for _, file := range issue.Pull.Files {
		url := s.base + "/" + file.Name
		all = append(all, object{
			"sha": blobSHA([]byte(file.Patch)), "filename": file.Name, "status": file.Status,
			"additions": file.Additions, "deletions": file.Deletions, "changes": file.Additions + file.Deletions,
			"patch": file.Patch, "blob_url": url, "raw_url": url, "contents_url": url,
		})
	}
	s.answer(c, http.StatusOK, s.page(c, all))
}

func (s *Server) listRuns(c *call) {
	all := []any{}
	for _, run := range slices.Backward(c.repo.Runs) {
		branch, status := c.query.Get("branch"), c.query.Get("status")
		if (branch != "" && branch != run.Branch) || (status != "" && status != run.Status && status != run.Conclusion) {
			continue
		}
		view := object{
			"id": run.ID, "name": run.Name, "head_branch": run.Branch, "display_title": run.Title,
			"status": run.Status, "conclusion": run.Conclusion, "event": run.Event, "run_number": 1,
			"created_at": stamp(run.Created), "updated_at": stamp(run.Created),
			"html_url": "https://github.com/" + c.repo.Owner + "/" + c.repo.Name + "/actions/runs/" +
				strconv.FormatInt(run.ID, 10),
		}
		all = append(all, view)
	}
	total := len(all)
	s.answer(c, http.StatusOK, object{"total_count": total, "workflow_runs": s.page(c, all)})
}

func (s *Server) jobLog(c *call) {
	job, _ := strconv.ParseInt(c.m.params["job_id"], 10, 64)
	if _, ok := c.repo.Jobs[job]; !ok {
		c.refuse(http.StatusNotFound, "Not Found")
		return
	}
	c.w.Header().Set("Location", s.logBase+s.State.signLog(c.repo, job))
	c.w.WriteHeader(http.StatusFound)
}

func (s *Server) listNotifications(c *call) {
	if strings.Contains(c.r.Header.Get("Authorization"), "github_pat_") {
		c.refuse(http.StatusForbidden, "Resource not accessible by personal access token")
		return
	}
	since, _ := time.Parse(time.RFC3339, c.query.Get("since"))
	all := []any{}
	for _, n := range s.State.notifications {
		owner, name, _ := strings.Cut(n.Repo, "/")
		r := s.State.repo(owner, name)
		if r == nil || (!n.Unread && c.query.Get("all") != "true") || n.Updated.Before(since) {
			continue
		}
		all = append(all, object{
			"id": strconv.FormatInt(n.ID, 10), "repository": s.repoView(r), "reason": n.Reason, "unread": n.Unread,
			"updated_at": stamp(n.Updated), "last_read_at": nil,
			"subject": object{"title": n.Title, "type": n.Kind, "url": s.base + "/x", "latest_comment_url": s.base + "/x"},
		})
	}
	c.w.Header().Set("X-Poll-Interval", "60")
	s.answer(c, http.StatusOK, s.page(c, all))
}
