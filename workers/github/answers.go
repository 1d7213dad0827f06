// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// Bounds of texts in answers, in bytes.
const (
	shownName  = 1 << 10   // titles, names, paths, labels
	shownShort = 4 << 10   // a body where many are listed, or a patch
	shownBody  = 128 << 10 // the body of one issue
)

// unlike is what an answer is called that GitHub's description does not allow.
func unlike(what string) error {
	return wire.Refuse(wire.CodeVendorDown, "GitHub's answer is not what its description says: "+what, "")
}

// user is a login as GitHub gives it.
type user struct {
	Login string `json:"login"`
}

// login is the login when it has the form of one. Anything else is left out: it stands unquoted in answers.
func (u *user) login() string {
	if u == nil || !isLogin(u.Login) {
		return ""
	}
	return u.Login
}

// isLogin takes GitHub's own rule with the endings of apps and managed users ("x[bot]", "x_corp").
func isLogin(s string) bool {
	s = strings.TrimSuffix(s, "[bot]")
	return isName(s, 64)
}

func isName(s string, limit int) bool {
	if s == "" || len(s) > limit || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// isRepo says whether s is owner/name.
func isRepo(s string) bool {
	owner, name, ok := strings.Cut(s, "/")
	return ok && isName(owner, 100) && isName(name, 100)
}

func isSHA(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// sha is s when it is a digest; it stands unquoted.
func sha(s string) string {
	if isSHA(s) {
		return s
	}
	return ""
}

// word is s when it is one of GitHub's own words (a state, a kind): lower or upper case, digits, - and _.
func word(s string) string {
	if isName(s, 40) {
		return s
	}
	return ""
}

// stamp is a time when s is one.
func stamp(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// link is an address that a person can open: https, without user, on host or a name below it; else "".
func link(s, host string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("<>\"'`\\{}|^", r) }
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.User != nil || len(s) > 2048 || strings.ContainsFunc(s, odd) {
		return ""
	}
	name := strings.ToLower(u.Hostname())
	web := strings.TrimPrefix(host, "api.")
	if name != web && !strings.HasSuffix(name, "."+web) {
		return ""
	}
	return u.String()
}

// untrusted is a name or line that others wrote.
func untrusted(s, source, author string) *workers.Text {
	return workers.Untrusted(s, source, author, shownName)
}

// joined puts a list of names into one text.
func joined(names []string, source, author string) *workers.Text {
	return untrusted(strings.Join(names, ", "), source, author)
}

// list is the answer of a method that lists.
type list[T any] struct {
	Items      []T    `json:"items"`
	Total      *int   `json:"total,omitempty"`
	Incomplete bool   `json:"incomplete,omitempty"`
	Repo       string `json:"repo,omitempty"`
}

// A repository, as GitHub gives it and as it is answered.
type (
	repoIn struct {
		FullName      string   `json:"full_name"`
		Private       *bool    `json:"private"`
		Visibility    string   `json:"visibility"`
		Description   string   `json:"description"`
		Homepage      string   `json:"homepage"`
		Topics        []string `json:"topics"`
		DefaultBranch string   `json:"default_branch"`
		Archived      bool     `json:"archived"`
		Fork          bool     `json:"fork"`
		OpenIssues    int      `json:"open_issues_count"`
		Updated       string   `json:"updated_at"`
	}
	repoOut struct {
		Repo          string        `json:"repo"`
		Private       bool          `json:"private"`
		Visibility    string        `json:"visibility,omitempty"`
		Archived      bool          `json:"archived,omitempty"`
		Fork          bool          `json:"fork,omitempty"`
		OpenIssues    int           `json:"open_issues"`
		Updated       string        `json:"updated,omitempty"`
		DefaultBranch *workers.Text `json:"default_branch,omitempty"`
		Description   *workers.Text `json:"description,omitempty"`
		Homepage      *workers.Text `json:"homepage,omitempty"`
		Topics        *workers.Text `json:"topics,omitempty"`
	}
)

func (in *repoIn) out() (*repoOut, error) {
	if !isRepo(in.FullName) || in.Private == nil || in.OpenIssues < 0 {
		return nil, unlike("a repository")
	}
	owner, _, _ := strings.Cut(in.FullName, "/")
	source := "github repository " + in.FullName
	return &repoOut{
		Repo: in.FullName, Private: *in.Private, Visibility: word(in.Visibility), Archived: in.Archived, Fork: in.Fork,
		OpenIssues: in.OpenIssues, Updated: stamp(in.Updated),
		DefaultBranch: untrusted(in.DefaultBranch, source, owner),
		Description:   workers.Untrusted(in.Description, source, owner, shownShort),
		Homepage:      untrusted(in.Homepage, source, owner),
		Topics:        joined(in.Topics, source, owner),
	}, nil
}

// An issue or pull request in lists and by itself.
type (
	labelIn struct{ Name string }
	issueIn struct {
		Number      int64     `json:"number"`
		Title       string    `json:"title"`
		Body        string    `json:"body"`
		State       string    `json:"state"`
		User        *user     `json:"user"`
		Labels      []labelIn `json:"labels"`
		Assignees   []user    `json:"assignees"`
		Comments    int       `json:"comments"`
		Created     string    `json:"created_at"`
		Updated     string    `json:"updated_at"`
		Association string    `json:"author_association"`
		PullRequest *struct{} `json:"pull_request"`
		Repository  string    `json:"repository_url"`
		URL         string    `json:"html_url"`
	}
	issueOut struct {
		Repo        string        `json:"repo,omitempty"` // of a search
		Number      int64         `json:"number"`
		Kind        string        `json:"kind"` // issue or pull
		State       string        `json:"state"`
		Author      string        `json:"author,omitempty"`
		Association string        `json:"author_association,omitempty"`
		Comments    int           `json:"comments"`
		Created     string        `json:"created,omitempty"`
		Updated     string        `json:"updated,omitempty"`
		Assignees   []string      `json:"assignees,omitempty"`
		Title       *workers.Text `json:"title,omitempty"`
		Labels      *workers.Text `json:"labels,omitempty"`
		Body        *workers.Text `json:"body,omitempty"`
	}
)

// UnmarshalJSON takes both forms that GitHub's description allows: a name, or an object with one.
func (l *labelIn) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &l.Name)
	}
	var in struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(b, &in)
	l.Name = in.Name
	return err
}

// out is the issue of repo with at most limit bytes of its body. An empty repo is read from the answer, of a search.
func (in *issueIn) out(repo string, limit int) (*issueOut, error) {
	out := &issueOut{}
	if repo == "" {
		if i := strings.LastIndex(in.Repository, "/repos/"); i >= 0 {
			repo = in.Repository[i+len("/repos/"):]
		}
		if !isRepo(repo) {
			return nil, unlike("the repository of an issue")
		}
		out.Repo = repo
	}
	if in.Number <= 0 || (in.State != "open" && in.State != "closed") || in.Comments < 0 {
		return nil, unlike("an issue")
	}
	author := in.User.login()
	source := "github issue " + repo + "#" + strconv.FormatInt(in.Number, 10)
	out.Number, out.Kind, out.State, out.Author, out.Comments = in.Number, "issue", in.State, author, in.Comments
	if in.PullRequest != nil {
		out.Kind = "pull"
	}
	out.Association = word(in.Association)
	out.Created, out.Updated = stamp(in.Created), stamp(in.Updated)
	for i := range in.Assignees {
		if login := in.Assignees[i].login(); login != "" && len(out.Assignees) < 20 {
			out.Assignees = append(out.Assignees, login)
		}
	}
	var labels []string
	for _, label := range in.Labels {
		labels = append(labels, label.Name)
	}
	out.Title = untrusted(in.Title, source, author)
	out.Labels = joined(labels, source, "")
	out.Body = workers.Untrusted(in.Body, source, author, limit)
	return out, nil
}

// A comment.
type (
	commentIn struct {
		ID          int64  `json:"id"`
		Body        string `json:"body"`
		User        *user  `json:"user"`
		Created     string `json:"created_at"`
		Association string `json:"author_association"`
		URL         string `json:"html_url"`
	}
	commentOut struct {
		ID          int64         `json:"id"`
		Author      string        `json:"author,omitempty"`
		Association string        `json:"author_association,omitempty"`
		Created     string        `json:"created,omitempty"`
		Body        *workers.Text `json:"body,omitempty"`
	}
)

func (in *commentIn) out(source string) (*commentOut, error) {
	if in.ID <= 0 {
		return nil, unlike("a comment")
	}
	author := in.User.login()
	source += " comment " + strconv.FormatInt(in.ID, 10)
	return &commentOut{
		ID: in.ID, Author: author, Association: word(in.Association), Created: stamp(in.Created),
		Body: workers.Untrusted(in.Body, source, author, shownBody/4),
	}, nil
}

// A pull request.
type (
	sideIn struct {
		Ref  string `json:"ref"`
		SHA  string `json:"sha"`
		Repo *struct {
			FullName string `json:"full_name"`
		} `json:"repo"`
	}
	pullIn struct {
		issueIn
		Head      sideIn `json:"head"`
		Base      sideIn `json:"base"`
		Draft     bool   `json:"draft"`
		Merged    bool   `json:"merged"`
		Mergeable *bool  `json:"mergeable"`
		Commits   int    `json:"commits"`
		Files     int    `json:"changed_files"`
		Additions int    `json:"additions"`
		Deletions int    `json:"deletions"`
	}
	pullOut struct {
		issueOut
		Draft     bool          `json:"draft"`
		Merged    bool          `json:"merged"`
		Mergeable *bool         `json:"mergeable"` // null: GitHub is still working it out
		Sha       string        `json:"sha"`       // of the head: for pull-merge and review
		HeadRepo  string        `json:"head_repo,omitempty"`
		Commits   int           `json:"commits"`
		Files     int           `json:"changed_files"`
		Additions int           `json:"additions"`
		Deletions int           `json:"deletions"`
		Head      *workers.Text `json:"head,omitempty"`
		Base      *workers.Text `json:"base,omitempty"`
	}
)

func (in *pullIn) out(repo string, limit int) (*pullOut, error) {
	issue, err := in.issueIn.out(repo, limit)
	if err != nil {
		return nil, err
	}
	if !isSHA(in.Head.SHA) {
		return nil, unlike("the head of a pull request")
	}
	issue.Kind = "pull"
	source := "github pull request " + repo + "#" + strconv.FormatInt(in.Number, 10)
	out := &pullOut{
		issueOut: *issue, Draft: in.Draft, Merged: in.Merged, Mergeable: in.Mergeable, Sha: in.Head.SHA,
		Commits: in.Commits, Files: in.Files, Additions: in.Additions, Deletions: in.Deletions,
		Head: untrusted(in.Head.Ref, source, issue.Author), Base: untrusted(in.Base.Ref, source, ""),
	}
	if in.Head.Repo != nil && isRepo(in.Head.Repo.FullName) {
		out.HeadRepo = in.Head.Repo.FullName
	}
	return out, nil
}

// A changed file.
type (
	fileIn struct {
		Name      string `json:"filename"`
		Previous  string `json:"previous_filename"`
		Status    string `json:"status"`
		SHA       string `json:"sha"`
		Additions int    `json:"additions"`
		Deletions int    `json:"deletions"`
		Patch     string `json:"patch"`
	}
	fileOut struct {
		Status    string        `json:"status,omitempty"`
		SHA       string        `json:"sha,omitempty"`
		Additions int           `json:"additions"`
		Deletions int           `json:"deletions"`
		Path      *workers.Text `json:"path"`
		Previous  *workers.Text `json:"previous_path,omitempty"`
		Patch     *workers.Text `json:"patch,omitempty"`
	}
)

func (in *fileIn) out(source string) (*fileOut, error) {
	if in.Name == "" || in.Additions < 0 || in.Deletions < 0 {
		return nil, unlike("a changed file")
	}
	return &fileOut{
		Status: word(in.Status), SHA: sha(in.SHA), Additions: in.Additions, Deletions: in.Deletions,
		Path: untrusted(in.Name, source, ""), Previous: untrusted(in.Previous, source, ""),
		Patch: workers.Untrusted(in.Patch, source, "", shownShort*2),
	}, nil
}

// An entry of a folder or tree.
type (
	entryIn struct {
		Path string `json:"path"`
		Type string `json:"type"`
		SHA  string `json:"sha"`
		Size int64  `json:"size"`
	}
	treeIn struct {
		SHA       string    `json:"sha"`
		Tree      []entryIn `json:"tree"`
		Truncated bool      `json:"truncated"`
	}
	entryOut struct {
		Type string        `json:"type"`
		SHA  string        `json:"sha,omitempty"`
		Size int64         `json:"size,omitempty"`
		Path *workers.Text `json:"path"`
	}
)

func (in *entryIn) out(source string) (*entryOut, error) {
	kind := word(in.Type)
	if in.Path == "" || kind == "" || in.Size < 0 {
		return nil, unlike("an entry of a folder")
	}
	return &entryOut{Type: kind, SHA: sha(in.SHA), Size: in.Size, Path: untrusted(in.Path, source, "")}, nil
}

// A place that a code search found.
type (
	codeIn struct {
		Path       string `json:"path"`
		SHA        string `json:"sha"`
		Repository struct {
			FullName string `json:"full_name"`
			Private  bool   `json:"private"`
		} `json:"repository"`
	}
	codeOut struct {
		Repo    string        `json:"repo"`
		Private bool          `json:"private"`
		SHA     string        `json:"sha,omitempty"`
		Path    *workers.Text `json:"path"`
	}
	foundIn[T any] struct {
		Total      int  `json:"total_count"`
		Incomplete bool `json:"incomplete_results"`
		Items      []T  `json:"items"`
	}
)

func (in *codeIn) out() (*codeOut, error) {
	repo := in.Repository.FullName
	if in.Path == "" || !isRepo(repo) {
		return nil, unlike("a place in code")
	}
	return &codeOut{
		Repo: repo, Private: in.Repository.Private, SHA: sha(in.SHA),
		Path: untrusted(in.Path, "github repository "+repo, ""),
	}, nil
}

// A workflow run.
type (
	runIn struct {
		ID         int64  `json:"id"`
		Name       string `json:"name"`
		Branch     string `json:"head_branch"`
		SHA        string `json:"head_sha"`
		Title      string `json:"display_title"`
		Status     string `json:"status"`
		Conclusion string `json:"conclusion"`
		Event      string `json:"event"`
		Created    string `json:"created_at"`
	}
	runsIn struct {
		Total int     `json:"total_count"`
		Runs  []runIn `json:"workflow_runs"`
	}
	runOut struct {
		ID         int64         `json:"id"`
		Status     string        `json:"status,omitempty"`
		Conclusion string        `json:"conclusion,omitempty"`
		Event      string        `json:"event,omitempty"`
		SHA        string        `json:"sha,omitempty"`
		Created    string        `json:"created,omitempty"`
		Workflow   *workers.Text `json:"workflow,omitempty"`
		Branch     *workers.Text `json:"branch,omitempty"`
		Title      *workers.Text `json:"title,omitempty"`
	}
)

func (in *runIn) out(repo string) (*runOut, error) {
	if in.ID <= 0 {
		return nil, unlike("a workflow run")
	}
	source := "github run " + repo + " " + strconv.FormatInt(in.ID, 10)
	return &runOut{
		ID: in.ID, Status: word(in.Status), Conclusion: word(in.Conclusion), Event: word(in.Event), SHA: sha(in.SHA),
		Created: stamp(in.Created), Workflow: untrusted(in.Name, source, ""),
		Branch: untrusted(in.Branch, source, ""), Title: untrusted(in.Title, source, ""),
	}, nil
}

// A notification.
type (
	noticeIn struct {
		ID         string `json:"id"`
		Reason     string `json:"reason"`
		Unread     bool   `json:"unread"`
		Updated    string `json:"updated_at"`
		Repository struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
		Subject struct {
			Title string `json:"title"`
			Type  string `json:"type"`
			URL   string `json:"url"`
		} `json:"subject"`
	}
	noticeOut struct {
		ID      string        `json:"id"`
		Repo    string        `json:"repo"`
		Kind    string        `json:"kind,omitempty"`
		Number  int64         `json:"number,omitempty"`
		Reason  string        `json:"reason,omitempty"`
		Unread  bool          `json:"unread"`
		Updated string        `json:"updated,omitempty"`
		Title   *workers.Text `json:"title,omitempty"`
	}
)

func (in *noticeIn) out() (*noticeOut, error) {
	repo := in.Repository.FullName
	if !isName(in.ID, 40) || !isRepo(repo) {
		return nil, unlike("a notification")
	}
	out := &noticeOut{
		ID: in.ID, Repo: repo, Kind: word(in.Subject.Type), Reason: word(in.Reason), Unread: in.Unread,
		Updated: stamp(in.Updated), Title: untrusted(in.Subject.Title, "github notification of "+repo, ""),
	}
	if i := strings.LastIndexByte(in.Subject.URL, '/'); i >= 0 {
		if n, err := strconv.ParseInt(in.Subject.URL[i+1:], 10, 64); err == nil && n > 0 {
			out.Number = n
		}
	}
	return out, nil
}

// each turns every item of a list; one that is unlike its description fails the answer.
func each[In any, Out any](in []In, limit int, turn func(*In) (*Out, error)) ([]*Out, error) {
	out := make([]*Out, 0, min(len(in), limit))
	for i := range in {
		if i == limit {
			break
		}
		one, err := turn(&in[i])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}
