// SPDX-License-Identifier: Apache-2.0

package github

import (
	"crypto/hmac"
	"crypto/sha1" // git's own digest
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A State is what the stand-in holds. Its exported methods take the lock.
type State struct {
	mu            sync.Mutex // guards everything below
	login         string
	repos         []*Repo
	gists         []*Gist
	notifications []*Notification
	next          int64 // last number given out
	clock         func() time.Time
	signKey       []byte
}

// A Repo is a repository.
type Repo struct {
	Owner         string              `json:"owner"`
	Name          string              `json:"name"`
	Private       bool                `json:"private"`
	Description   string              `json:"description"`
	Homepage      string              `json:"homepage"`
	Topics        []string            `json:"topics"`
	Branches      map[string]*Commit  `json:"branches"`
	Issues        []*Issue            `json:"issues"`
	Releases      []*Release          `json:"releases"`
	Runs          []*Run              `json:"runs"`
	Jobs          map[int64][]byte    `json:"-"`
	Dispatches    []*Dispatch         `json:"dispatches"`
	Hooks         []string            `json:"hooks"`
	Collaborators []string            `json:"collaborators"`
	Files         map[string][]string `json:"files"` // for State's copy only: paths per branch

	id      int64
	commits []*Commit // all there ever were
}

// A Commit is the tip of a branch: all its files.
type Commit struct {
	SHA     string            `json:"sha"`
	Message string            `json:"message"`
	Tree    map[string][]byte `json:"-"`
}

// An Issue is an issue or, with Pull, a pull request.
type Issue struct {
	ID        int64      `json:"id"`
	Number    int        `json:"number"`
	Title     string     `json:"title"`
	Body      string     `json:"body"`
	Author    string     `json:"author"`
	State     string     `json:"state"`
	Labels    []string   `json:"labels"`
	Assignees []string   `json:"assignees"`
	Comments  []*Comment `json:"comments"`
	Created   time.Time  `json:"created"`
	Updated   time.Time  `json:"updated"`
	Pull      *Pull      `json:"pull,omitempty"`
}

// A Pull is what a pull request has beyond an issue.
type Pull struct {
	Head    string    `json:"head"`
	Base    string    `json:"base"`
	HeadSHA string    `json:"head_sha"`
	Draft   bool      `json:"draft"`
	Merged  bool      `json:"merged"`
	Diff    string    `json:"-"`
	Files   []File    `json:"-"`
	Reviews []*Review `json:"reviews"`
}

// A File is one changed file of a pull request.
type File struct {
	Name      string
	Status    string
	Additions int
	Deletions int
	Patch     string
}

// A Comment is a comment on an issue.
type Comment struct {
	ID      int64     `json:"id"`
	Body    string    `json:"body"`
	Author  string    `json:"author"`
	Created time.Time `json:"created"`
}

// A Review is a review of a pull request.
type Review struct {
	ID    int64  `json:"id"`
	Event string `json:"event"`
	Body  string `json:"body"`
}

// A Release is a release.
type Release struct {
	ID    int64  `json:"id"`
	Tag   string `json:"tag"`
	Title string `json:"title"`
	Notes string `json:"notes"`
	Draft bool   `json:"draft"`
}

// A Run is a run of a workflow.
type Run struct {
	ID         int64     `json:"id"`
	Name       string    `json:"name"`
	Branch     string    `json:"branch"`
	Title      string    `json:"title"`
	Status     string    `json:"status"`
	Conclusion string    `json:"conclusion"`
	Event      string    `json:"event"`
	Created    time.Time `json:"created"`
}

// A Dispatch is a started workflow.
type Dispatch struct {
	Workflow string            `json:"workflow"`
	Ref      string            `json:"ref"`
	Inputs   map[string]string `json:"inputs"`
}

// A Gist is a gist.
type Gist struct {
	ID          string            `json:"id"`
	Public      bool              `json:"public"`
	Description string            `json:"description"`
	Files       map[string]string `json:"files"`
}

// A Notification is a notification of the account.
type Notification struct {
	ID      int64     `json:"id"`
	Repo    string    `json:"repo"`
	Title   string    `json:"title"`
	Kind    string    `json:"kind"`
	Reason  string    `json:"reason"`
	Unread  bool      `json:"unread"`
	Updated time.Time `json:"updated"`
}

func newState(login string) *State {
	return &State{login: login, clock: time.Now, next: 1000, signKey: []byte("the stand-in's log signing key")}
}

// SetClock makes the stand-in read the time from clock.
func (s *State) SetClock(clock func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock
}

// now needs no lock: the clock is set before requests come.
func (s *State) now() time.Time { return s.clock().UTC().Truncate(time.Second) }

func (s *State) number() int64 {
	s.next++
	return s.next
}

// repo finds a repository. Preconditions: the lock is held.
func (s *State) repo(owner, name string) *Repo {
	for _, r := range s.repos {
		if strings.EqualFold(r.Owner, owner) && strings.EqualFold(r.Name, name) {
			return r
		}
	}
	return nil
}

// Repo returns a copy of what a test may look at; nil when there is no such repository.
func (s *State) Repo(owner, name string) *Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.repo(owner, name); r != nil {
		return r.copied()
	}
	return nil
}

// File returns a file's bytes at a branch, and whether it is there.
func (s *State) File(owner, name, branch, path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repo(owner, name)
	if r == nil || r.Branches[branch] == nil {
		return nil, false
	}
	text, ok := r.Branches[branch].Tree[path]
	return text, ok
}

// Edit changes a repository under the lock.
func (s *State) Edit(owner, name string, edit func(*Repo)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repo(owner, name)
	if r == nil {
		return fmt.Errorf("edit %s/%s: no such repository", owner, name)
	}
	edit(r)
	return nil
}

// A View is a copy of the whole state, as the control socket shows it.
type View struct {
	Repos []*Repo `json:"repos"`
	Gists []*Gist `json:"gists"`
}

// View returns a copy of the whole state.
func (s *State) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := View{Repos: []*Repo{}, Gists: []*Gist{}}
	for _, r := range s.repos {
		view.Repos = append(view.Repos, r.copied())
	}
	for _, g := range s.gists {
		one := *g
		view.Gists = append(view.Gists, &one)
	}
	return view
}

func (r *Repo) copied() *Repo {
	out := *r
	out.Branches = maps.Clone(r.Branches)
	out.Files = map[string][]string{}
	for name, commit := range r.Branches {
		out.Files[name] = sortedKeys(commit.Tree)
	}
	out.Issues = nil
	for _, issue := range r.Issues {
		one := *issue
		one.Comments = append([]*Comment(nil), issue.Comments...)
		out.Issues = append(out.Issues, &one)
	}
	return &out
}

// AddRepo adds a repository with an empty main branch.
func (s *State) AddRepo(owner, name string, private bool) *Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addRepo(owner, name, private)
}

func (s *State) addRepo(owner, name string, private bool) *Repo {
	r := &Repo{
		Owner: owner, Name: name, Private: private, Branches: map[string]*Commit{}, Jobs: map[int64][]byte{},
		id: s.number(),
	}
	s.commit(r, "main", "first", func(map[string][]byte) {})
	s.repos = append(s.repos, r)
	return r
}

// AddIssue adds an issue and returns its number.
func (s *State) AddIssue(owner, name, author, title, body string, labels ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repo(owner, name)
	if r == nil {
		return 0
	}
	return s.addIssue(r, author, title, body, labels).Number
}

func (s *State) addIssue(r *Repo, author, title, body string, labels []string) *Issue {
	now := s.now()
	issue := &Issue{
		ID: s.number(), Number: len(r.Issues) + 1, Title: title, Body: body, Author: author, State: "open",
		Labels: labels, Created: now, Updated: now,
	}
	r.Issues = append(r.Issues, issue)
	return issue
}

func (s *State) addComment(issue *Issue, author, body string) *Comment {
	comment := &Comment{ID: s.number(), Body: body, Author: author, Created: s.now()}
	issue.Comments = append(issue.Comments, comment)
	issue.Updated = comment.Created
	return comment
}

func (s *State) commitSHA() string {
	sum := sha1.Sum([]byte("commit " + strconv.FormatInt(s.number(), 10)))
	return hex.EncodeToString(sum[:])
}

// commit puts a new tip on a branch.
func (s *State) commit(r *Repo, branch, message string, edit func(tree map[string][]byte)) *Commit {
	tree := map[string][]byte{}
	if old := r.Branches[branch]; old != nil {
		tree = maps.Clone(old.Tree)
	}
	edit(tree)
	tip := &Commit{SHA: s.commitSHA(), Message: message, Tree: tree}
	r.Branches[branch] = tip
	r.commits = append(r.commits, tip)
	return tip
}

// at finds a branch or commit; empty is main.
func (r *Repo) at(ref string) *Commit {
	if ref == "" || ref == "HEAD" {
		ref = "main"
	}
	ref = strings.TrimPrefix(ref, "refs/")
	if tip := r.Branches[strings.TrimPrefix(ref, "heads/")]; tip != nil {
		return tip
	}
	for _, tip := range r.commits {
		if tip.SHA == ref || treeSHA(tip.Tree) == ref {
			return tip
		}
	}
	return nil
}

func (r *Repo) issue(number int) *Issue {
	for _, issue := range r.Issues {
		if issue.Number == number {
			return issue
		}
	}
	return nil
}

// blobSHA is git's digest of a file.
func blobSHA(text []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(text))
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// treeSHA stands for git's digest of a tree: it is equal when the files are.
func treeSHA(tree map[string][]byte) string {
	h := sha1.New()
	for _, path := range sortedKeys(tree) {
		fmt.Fprintf(h, "%s %s\n", blobSHA(tree[path]), path)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// signLog returns the path and query of a job's log that is good for a minute.
func (s *State) signLog(r *Repo, job int64) string {
	until := s.now().Add(time.Minute).Unix()
	path := fmt.Sprintf("/logs/%d/%d/%d.txt", r.id, job, until)
	return path + "?sig=" + s.logSignature(path)
}

func (s *State) logSignature(path string) string {
	h := hmac.New(sha256.New, s.signKey)
	h.Write([]byte(path))
	return hex.EncodeToString(h.Sum(nil))
}

// signedLog returns the log that a signed address points at.
func (s *State) signedLog(path, signature string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !hmac.Equal([]byte(signature), []byte(s.logSignature(path))) {
		return nil, false
	}
	var repo, job, until int64
	if _, err := fmt.Sscanf(path, "/logs/%d/%d/%d.txt", &repo, &job, &until); err != nil || s.now().Unix() > until {
		return nil, false
	}
	for _, r := range s.repos {
		if text, ok := r.Jobs[job]; ok && r.id == repo {
			return text, true
		}
	}
	return nil, false
}

// AddFile puts a file on the main branch.
func (s *State) AddFile(owner, name, path string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.repo(owner, name); r != nil {
		s.commit(r, "main", "add "+path, func(tree map[string][]byte) { tree[path] = text })
	}
}
