// SPDX-License-Identifier: Apache-2.0

package github

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (s *Server) user(login string) object {
	h := fnv.New32a()
	_, _ = h.Write([]byte(login)) // never fails
	return object{
		"login": login, "id": int64(h.Sum32()), "type": "User", "site_admin": false,
		"url": s.base + "/users/" + login, "html_url": "https://github.com/" + login,
	}
}

func (s *Server) repoView(r *Repo) object {
	visibility := "public"
	if r.Private {
		visibility = "private"
	}
	topics := []any{}
	for _, topic := range r.Topics {
		topics = append(topics, topic)
	}
	full := r.Owner + "/" + r.Name
	return object{
		"id": r.id, "name": r.Name, "full_name": full, "private": r.Private, "owner": s.user(r.Owner),
		"html_url": "https://github.com/" + full, "url": s.base + "/repos/" + full, "description": r.Description,
		"homepage": r.Homepage, "fork": false, "topics": topics, "visibility": visibility,
		"default_branch": "main", "archived": false, "open_issues_count": len(r.Issues),
		"permissions": object{"admin": r.Owner == s.State.login, "push": r.Owner == s.State.login, "pull": true},
	}
}

// association is GitHub's hint of who wrote something.
func (s *Server) association(r *Repo, author string) string {
	if author == r.Owner {
		return "OWNER"
	}
	return "NONE"
}

func (s *Server) labels(names []string) []any {
	out := []any{}
	for i, name := range names {
		out = append(out, object{"id": i + 1, "name": name, "color": "ededed", "default": false})
	}
	return out
}

func (s *Server) issueView(r *Repo, issue *Issue) object {
	assignees := []any{}
	for _, login := range issue.Assignees {
		assignees = append(assignees, s.user(login))
	}
	path := fmt.Sprintf("/repos/%s/%s/issues/%d", r.Owner, r.Name, issue.Number)
	view := object{
		"id": issue.ID, "number": issue.Number, "title": issue.Title, "body": issue.Body, "state": issue.State,
		"user": s.user(issue.Author), "labels": s.labels(issue.Labels), "assignees": assignees,
		"comments": len(issue.Comments), "created_at": stamp(issue.Created), "updated_at": stamp(issue.Updated),
		"author_association": s.association(r, issue.Author), "url": s.base + path, "locked": false,
		"html_url":       fmt.Sprintf("https://github.com/%s/%s/issues/%d", r.Owner, r.Name, issue.Number),
		"repository_url": fmt.Sprintf("%s/repos/%s/%s", s.base, r.Owner, r.Name),
	}
	if issue.State == "closed" {
		view["closed_at"] = stamp(issue.Updated)
	}
	if issue.Pull != nil {
		url := fmt.Sprintf("%s/repos/%s/%s/pulls/%d", s.base, r.Owner, r.Name, issue.Number)
		view["pull_request"] = object{"url": url, "html_url": url, "diff_url": url, "patch_url": url}
	}
	return view
}

func (s *Server) commentView(r *Repo, issue *Issue, comment *Comment) object {
	return object{
		"id": comment.ID, "body": comment.Body, "user": s.user(comment.Author),
		"created_at": stamp(comment.Created), "updated_at": stamp(comment.Created),
		"author_association": s.association(r, comment.Author),
		"url":                fmt.Sprintf("%s/repos/%s/%s/issues/comments/%d", s.base, r.Owner, r.Name, comment.ID),
		"html_url": fmt.Sprintf("https://github.com/%s/%s/issues/%d#issuecomment-%d", r.Owner, r.Name,
			issue.Number, comment.ID),
	}
}

func (s *Server) pullView(r *Repo, issue *Issue) object {
	p := issue.Pull
	side := func(branch, sha string) object {
		return object{
			"ref": branch, "label": r.Owner + ":" + branch, "sha": sha, "user": s.user(r.Owner),
			"repo": s.repoView(r),
		}
	}
	base := ""
	if tip := r.Branches[p.Base]; tip != nil {
		base = tip.SHA
	}
	view := object{
		"id": issue.ID, "number": issue.Number, "title": issue.Title, "body": issue.Body, "state": issue.State,
		"user": s.user(issue.Author), "labels": s.labels(issue.Labels), "head": side(p.Head, p.HeadSHA),
		"base": side(p.Base, base), "draft": p.Draft, "merged": p.Merged, "mergeable": nil,
		"mergeable_state": "unknown", "created_at": stamp(issue.Created), "updated_at": stamp(issue.Updated),
		"author_association": s.association(r, issue.Author), "changed_files": len(p.Files),
		"html_url": fmt.Sprintf("https://github.com/%s/%s/pull/%d", r.Owner, r.Name, issue.Number),
		"url":      fmt.Sprintf("%s/repos/%s/%s/pulls/%d", s.base, r.Owner, r.Name, issue.Number),
		"assignee": nil, "milestone": nil, "auto_merge": nil,
	}
	return view
}

func (s *Server) contentView(r *Repo, path string, text []byte) object {
	name := path[strings.LastIndexByte(path, '/')+1:]
	url := fmt.Sprintf("%s/repos/%s/%s/contents/%s", s.base, r.Owner, r.Name, path)
	return object{
		"type": "file", "name": name, "path": path, "sha": blobSHA(text), "size": len(text), "url": url,
		"git_url": url, "html_url": url, "download_url": url,
		"_links": object{"self": url, "git": url, "html": url},
	}
}
