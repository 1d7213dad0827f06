// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) createIssue(c *call) {
	issue := s.State.addIssue(c.repo, s.State.login, titleOf(c.body["title"]), c.text("body"), c.texts("labels"))
	issue.Assignees = c.texts("assignees")
	c.w.Header().Set("Location", fmt.Sprintf("%s/repos/%s/%s/issues/%d", s.base, c.repo.Owner, c.repo.Name, issue.Number))
	s.answer(c, http.StatusCreated, s.issueView(c.repo, issue))
}

// titleOf reads a title, which GitHub takes as text or number.
func titleOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (s *Server) updateIssue(c *call) {
	issue := c.issue("issue_number")
	if issue == nil {
		return
	}
	if v, ok := c.body["title"]; ok {
		issue.Title = titleOf(v)
	}
	if v, ok := c.body["body"].(string); ok {
		issue.Body = v
	}
	if v, ok := c.body["state"].(string); ok {
		issue.State = v
	}
	if _, ok := c.body["labels"]; ok {
		issue.Labels = c.texts("labels")
	}
	if _, ok := c.body["assignees"]; ok {
		issue.Assignees = c.texts("assignees")
	}
	issue.Updated = s.State.now()
	s.answer(c, http.StatusOK, s.issueView(c.repo, issue))
}

func (s *Server) createComment(c *call) {
	issue := c.issue("issue_number")
	if issue == nil {
		return
	}
	comment := s.State.addComment(issue, s.State.login, c.text("body"))
	s.answer(c, http.StatusCreated, s.commentView(c.repo, issue, comment))
}

func (s *Server) createPull(c *call) {
	head, base := c.text("head"), c.text("base")
	tip := c.repo.Branches[head[strings.IndexByte(head, ':')+1:]]
	if tip == nil || c.repo.Branches[base] == nil {
		c.invalid("PullRequest", "head", "invalid", "no such branch")
		return
	}
	for _, issue := range c.repo.Issues {
		if p := issue.Pull; p != nil && issue.State == "open" && p.Head == head && p.Base == base {
			c.invalid("PullRequest", "head", "custom", "A pull request already exists for "+c.repo.Owner+":"+head+".")
			return
		}
	}
	issue := s.State.addIssue(c.repo, s.State.login, c.text("title"), c.text("body"), nil)
	issue.Pull = &Pull{Head: head, Base: base, HeadSHA: tip.SHA, Draft: c.flag("draft")}
	s.answer(c, http.StatusCreated, s.pullView(c.repo, issue))
}

func (s *Server) createReview(c *call) {
	issue := c.issue("pull_number")
	if issue == nil {
		return
	}
	event, body := c.text("event"), c.text("body")
	if body == "" && event != "APPROVE" {
		c.invalid("PullRequestReview", "body", "missing_field", "a body is needed")
		return
	}
	if id := c.text("commit_id"); id != "" && id != issue.Pull.HeadSHA {
		c.invalid("PullRequestReview", "commit_id", "invalid", "commit is not part of the pull request")
		return
	}
	states := map[string]string{
		"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED", "": "PENDING",
	}
	review := &Review{ID: s.State.number(), Event: event, Body: body}
	issue.Pull.Reviews = append(issue.Pull.Reviews, review)
	s.answer(c, http.StatusOK, object{
		"id": review.ID, "body": body, "state": states[event], "user": s.user(s.State.login),
		"commit_id": issue.Pull.HeadSHA, "submitted_at": stamp(s.State.now()), "author_association": "OWNER",
		"html_url": fmt.Sprintf("https://github.com/%s/%s/pull/%d#pullrequestreview-%d", c.repo.Owner, c.repo.Name,
			issue.Number, review.ID),
	})
}

func (s *Server) mergePull(c *call) {
	issue := c.issue("pull_number")
	if issue == nil {
		return
	}
	p := issue.Pull
	if issue.State != "open" || p.Draft {
		c.refuse(http.StatusMethodNotAllowed, "Pull Request is not mergeable")
		return
	}
	if sha := c.text("sha"); sha != "" && sha != p.HeadSHA {
		c.refuse(http.StatusConflict, "Head branch was modified. Review and try the merge again.")
		return
	}
	tip := s.State.commit(c.repo, p.Base, "merge", func(tree map[string][]byte) {
		if head := c.repo.Branches[p.Head]; head != nil {
			for path, text := range head.Tree {
				tree[path] = text
			}
		}
	})
	issue.State, p.Merged, issue.Updated = "closed", true, s.State.now()
	s.answer(c, http.StatusOK, object{"sha": tip.SHA, "merged": true, "message": "Pull Request successfully merged"})
}

// branch returns the branch that a request to write a file names.
func (c *call) branch() string {
	if branch := c.text("branch"); branch != "" {
		return branch
	}
	return "main"
}

func (s *Server) putContents(c *call) {
	path, branch := c.m.params["path"], c.branch()
	tip := c.repo.Branches[branch]
	if tip == nil {
		c.refuse(http.StatusNotFound, "Branch "+branch+" not found")
		return
	}
	text, err := base64.StdEncoding.Strict().DecodeString(c.text("content"))
	if err != nil {
		c.invalid("Content", "content", "invalid", "content is not valid Base64")
		return
	}
	sha := c.text("sha")
	old, exists := tip.Tree[path]
	switch {
	case exists && sha == "":
		c.invalid("Content", "sha", "missing_field", `Invalid request. "sha" wasn't supplied.`)
		return
	case exists && sha != blobSHA(old):
		c.refuse(http.StatusConflict, path+" does not match "+sha)
		return
	case !exists && sha != "":
		c.refuse(http.StatusConflict, path+" does not match "+sha)
		return
	}
	tip = s.State.commit(c.repo, branch, c.text("message"), func(tree map[string][]byte) { tree[path] = text })
	status := http.StatusCreated
	if exists {
		status = http.StatusOK
	}
	s.answer(c, status, object{"content": s.contentView(c.repo, path, text), "commit": s.commitView(c, tip)})
}

func (s *Server) commitView(c *call, tip *Commit) object {
	return object{
		"sha": tip.SHA, "message": tip.Message,
		"html_url": fmt.Sprintf("https://github.com/%s/%s/commit/%s", c.repo.Owner, c.repo.Name, tip.SHA),
	}
}

func (s *Server) deleteContents(c *call) {
	path, branch := c.m.params["path"], c.branch()
	tip := c.repo.Branches[branch]
	if tip == nil || blobSHA(tip.Tree[path]) != c.text("sha") {
		c.refuse(http.StatusConflict, path+" does not match")
		return
	}
	tip = s.State.commit(c.repo, branch, c.text("message"), func(tree map[string][]byte) { delete(tree, path) })
	s.answer(c, http.StatusOK, object{"content": nil, "commit": s.commitView(c, tip)})
}

func (s *Server) createRef(c *call) {
	name, ok := strings.CutPrefix(c.text("ref"), "refs/heads/")
	if !ok || name == "" {
		c.invalid("Reference", "ref", "invalid", "Reference name must start with 'refs/heads/'")
		return
	}
	if c.repo.Branches[name] != nil {
		c.invalid("Reference", "ref", "custom", "Reference already exists")
		return
	}
	var from *Commit
	for _, tip := range c.repo.commits {
		if tip.SHA == c.text("sha") {
			from = tip
		}
	}
	if from == nil {
		c.invalid("Reference", "sha", "invalid", "Object does not exist")
		return
	}
	c.repo.Branches[name] = from
	s.answer(c, http.StatusCreated, object{
		"ref": "refs/heads/" + name, "object": object{"type": "commit", "sha": from.SHA},
	})
}

func (s *Server) deleteRef(c *call) {
	name := strings.TrimPrefix(c.m.params["ref"], "heads/")
	if c.repo.Branches[name] == nil {
		c.invalid("Reference", "ref", "missing", "Reference does not exist")
		return
	}
	delete(c.repo.Branches, name)
	c.w.WriteHeader(http.StatusNoContent)
}

func (s *Server) dispatch(c *call) {
	workflow := c.m.params["workflow_id"]
	if _, known := c.repo.Branches["main"].Tree[".github/workflows/"+workflow]; !known {
		c.refuse(http.StatusNotFound, "Not Found")
		return
	}
	if c.repo.at(c.text("ref")) == nil {
		c.invalid("Workflow", "ref", "invalid", "No ref found for: "+c.text("ref"))
		return
	}
	inputs := map[string]string{}
	given, _ := c.body["inputs"].(object)
	for name, value := range given {
		inputs[name] = fmt.Sprint(value)
	}
	c.repo.Dispatches = append(c.repo.Dispatches, &Dispatch{Workflow: workflow, Ref: c.text("ref"), Inputs: inputs})
	c.repo.Runs = append(c.repo.Runs, &Run{
		ID: s.State.number(), Name: workflow, Branch: c.text("ref"), Title: workflow, Status: "queued",
		Event: "workflow_dispatch", Created: s.State.now(),
	})
	c.w.WriteHeader(http.StatusNoContent)
}

func (s *Server) createGist(c *call) {
	gist := &Gist{
		ID: fmt.Sprintf("%032x", s.State.number()), Description: c.text("description"), Files: map[string]string{},
		Public: c.flag("public") || c.text("public") == "true",
	}
	files, _ := c.body["files"].(object)
	views := object{}
	for name, file := range files {
		content, _ := file.(object)["content"].(string)
		if content == "" {
			c.invalid("Gist", "files", "missing_field", "a file needs content")
			return
		}
		gist.Files[name] = content
		views[name] = object{"filename": name, "size": len(content), "content": content}
	}
	if len(views) == 0 {
		c.invalid("Gist", "files", "missing_field", "a gist needs files")
		return
	}
	s.State.gists = append(s.State.gists, gist)
	s.answer(c, http.StatusCreated, object{
		"id": gist.ID, "public": gist.Public, "description": gist.Description, "files": views,
		"html_url": "https://gist.github.com/" + gist.ID, "owner": s.user(s.State.login),
	})
}

func (s *Server) createRelease(c *call) {
	tag := c.text("tag_name")
	if slices.ContainsFunc(c.repo.Releases, func(r *Release) bool { return r.Tag == tag && !r.Draft }) {
		c.invalid("Release", "tag_name", "already_exists", "a release has that tag")
		return
	}
	release := &Release{
		ID: s.State.number(), Tag: tag, Title: c.text("name"), Notes: c.text("body"), Draft: c.flag("draft"),
	}
	c.repo.Releases = append(c.repo.Releases, release)
	s.answer(c, http.StatusCreated, object{
		"id": release.ID, "tag_name": tag, "name": release.Title, "body": release.Notes, "draft": release.Draft,
		"prerelease": false, "author": s.user(s.State.login), "created_at": stamp(s.State.now()),
		"html_url": fmt.Sprintf("https://github.com/%s/%s/releases/tag/%s", c.repo.Owner, c.repo.Name, tag),
	})
}

func (s *Server) createRepo(c *call) {
	name := c.text("name")
	if s.State.repo(s.State.login, name) != nil {
		c.invalid("Repository", "name", "custom", "name already exists on this account")
		return
	}
	repo := s.State.addRepo(s.State.login, name, c.flag("private"))
	repo.Description = c.text("description")
	s.answer(c, http.StatusCreated, s.repoView(repo))
}

func (s *Server) deleteRepo(c *call) {
	s.State.repos = slices.DeleteFunc(s.State.repos, func(r *Repo) bool { return r == c.repo })
	c.w.WriteHeader(http.StatusNoContent)
}

func (s *Server) updateRepo(c *call) {
	if v, ok := c.body["private"].(bool); ok {
		c.repo.Private = v
	}
	if v, ok := c.body["visibility"].(string); ok {
		c.repo.Private = v != "public"
	}
	s.answer(c, http.StatusOK, s.repoView(c.repo))
}

func (s *Server) createHook(c *call) {
	config, _ := c.body["config"].(object)
	url, _ := config["url"].(string)
	c.repo.Hooks = append(c.repo.Hooks, url)
	s.answer(c, http.StatusCreated, object{"id": s.State.number(), "active": true, "config": object{"url": url}})
}

func (s *Server) addCollaborator(c *call) {
	c.repo.Collaborators = append(c.repo.Collaborators, c.m.params["username"])
	c.w.WriteHeader(http.StatusNoContent)
}
