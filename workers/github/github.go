// SPDX-License-Identifier: Apache-2.0

// Package github is the connector for GitHub: the methods that an agent may ask for, what each may send, and how the
// answers are read. The package decides nothing. What it declares is taken up by the build, and sentinel and egress
// hold every call to that; the code here runs in a worker that nobody trusts.
//
// Nearly everything GitHub answers was written by somebody: titles, bodies, diffs, file and branch names, log lines. An
// attacker who can open an issue writes into an agent's context. So each such text leaves here as data that names its
// source and author, bounded in size, and never as a name, a link or a status of Doorward's own.
package github

import (
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// apiVersion is the dated version of GitHub's API that requests name.
const apiVersion = "2022-11-28"

// Connector returns GitHub's description with the code of its methods.
func Connector() *workers.Connector {
	return &workers.Connector{
		Describe: &describe.Connector{
			Vendor: "github",
			Title:  "GitHub",
			Base:   "https://api.github.com",
			Tokens: describe.Tokens{
				Kinds:     []string{"token"},
				Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "},
				NewURL:    "https://github.com/settings/personal-access-tokens/new?name={name}&{scopes}",
				Help: "choose the repositories it is for, and check the permissions: GitHub does not always fill them in. " +
					"Notifications need a classic token instead",
			},
			Check:   "repos",
			Methods: methods(),
		},
		Handlers: map[string]workers.Handler{
			"branch-create":  branchCreate,
			"branch-delete":  branchDelete,
			"code-search":    codeSearch,
			"comment":        comment,
			"comments":       comments,
			"file-get":       fileGet,
			"file-put":       filePut,
			"gist-create":    gistCreate,
			"issue-create":   issueCreate,
			"issue-get":      issueGet,
			"issue-search":   issueSearch,
			"issue-update":   issueUpdate,
			"issues":         issues,
			"job-log":        jobLog,
			"notifications":  notifications,
			"pull-create":    pullCreate,
			"pull-files":     pullFiles,
			"pull-get":       pullGet,
			"pull-merge":     pullMerge,
			"release-create": releaseCreate,
			"repo-create":    repoCreate,
			"repo-get":       repoGet,
			"repos":          repos,
			"review":         review,
			"runs":           runs,
			"tree":           tree,
			"workflow-run":   workflowRun,
		},
	}
}
