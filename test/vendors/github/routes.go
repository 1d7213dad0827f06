// SPDX-License-Identifier: Apache-2.0

package github

import (
	"net/url"
	"strings"
)

// A route is one operation; handle is a method of Server.
type route struct {
	verb, path string
	handle     func(*Server, *call)
}

// routes are the operations of the github rows of specs/methods.tsv, in their order, then those that only attacks send.
var routes = []route{
	{"GET", "/user/repos", (*Server).listRepos},
	{"GET", "/repos/{owner}/{repo}", (*Server).getRepo},
	{"GET", "/repos/{owner}/{repo}/contents/{path}", (*Server).getContents},
	{"GET", "/repos/{owner}/{repo}/git/trees/{tree_sha}", (*Server).getTree},
	{"GET", "/search/code", (*Server).searchCode},
	{"GET", "/search/issues", (*Server).searchIssues},
	{"GET", "/repos/{owner}/{repo}/issues", (*Server).listIssues},
	{"GET", "/repos/{owner}/{repo}/issues/{issue_number}", (*Server).getIssue},
	{"GET", "/repos/{owner}/{repo}/issues/{issue_number}/comments", (*Server).listComments},
	{"GET", "/repos/{owner}/{repo}/pulls/{pull_number}", (*Server).getPull},
	{"GET", "/repos/{owner}/{repo}/pulls/{pull_number}/files", (*Server).pullFiles},
	{"GET", "/repos/{owner}/{repo}/actions/runs", (*Server).listRuns},
	{"GET", "/repos/{owner}/{repo}/actions/jobs/{job_id}/logs", (*Server).jobLog},
	{"GET", "/notifications", (*Server).listNotifications},
	{"POST", "/repos/{owner}/{repo}/issues", (*Server).createIssue},
	{"PATCH", "/repos/{owner}/{repo}/issues/{issue_number}", (*Server).updateIssue},
	{"POST", "/repos/{owner}/{repo}/issues/{issue_number}/comments", (*Server).createComment},
	{"POST", "/repos/{owner}/{repo}/pulls", (*Server).createPull},
	{"POST", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews", (*Server).createReview},
	{"PUT", "/repos/{owner}/{repo}/pulls/{pull_number}/merge", (*Server).mergePull},
	{"PUT", "/repos/{owner}/{repo}/contents/{path}", (*Server).putContents},
	{"POST", "/repos/{owner}/{repo}/git/refs", (*Server).createRef},
	{"DELETE", "/repos/{owner}/{repo}/git/refs/{ref}", (*Server).deleteRef},
	{"POST", "/repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches", (*Server).dispatch},
	{"POST", "/gists", (*Server).createGist},
	{"POST", "/repos/{owner}/{repo}/releases", (*Server).createRelease},
	{"POST", "/user/repos", (*Server).createRepo},

	{"GET", "/user", (*Server).getUser},
	{"GET", "/rate_limit", (*Server).rateLimit},
	{"DELETE", "/repos/{owner}/{repo}", (*Server).deleteRepo},
	{"PATCH", "/repos/{owner}/{repo}", (*Server).updateRepo},
	{"DELETE", "/repos/{owner}/{repo}/contents/{path}", (*Server).deleteContents},
	{"GET", "/repos/{owner}/{repo}/pulls", (*Server).listPulls},
	{"POST", "/repos/{owner}/{repo}/hooks", (*Server).createHook},
	{"PUT", "/repos/{owner}/{repo}/collaborators/{username}", (*Server).addCollaborator},
}

// A match is a route with the values of its path.
type match struct {
	route  route
	params map[string]string
}

// find returns the route of a request by its escaped path.
func find(verb, escaped string) (match, bool) {
	for _, r := range routes {
		if r.verb != verb {
			continue
		}
		if params, ok := matchPath(r.path, escaped); ok {
			return match{route: r, params: params}, true
		}
	}
	return match{}, false
}

// matchPath matches segment by segment. A last {path} or {ref} takes the rest, as GitHub's own do.
func matchPath(template, escaped string) (map[string]string, bool) {
	want := strings.Split(template, "/")
	have := strings.Split(escaped, "/")
	last := want[len(want)-1]
	rest := last == "{path}" || last == "{ref}"
	if len(have) < len(want) || (!rest && len(have) != len(want)) {
		return nil, false
	}
	params := map[string]string{}
	for i, segment := range want {
		value := have[i]
		if rest && i == len(want)-1 {
			value = strings.Join(have[i:], "/")
		}
		plain, err := url.PathUnescape(value)
		if err != nil || (plain == "" && i > 0) {
			return nil, false
		}
		name, isParam := strings.CutPrefix(segment, "{")
		switch {
		case isParam:
			params[strings.TrimSuffix(name, "}")] = plain
		case i > 0 && segment != value:
			return nil, false
		}
	}
	return params, true
}
