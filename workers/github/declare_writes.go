// SPDX-License-Identifier: Apache-2.0

package github

import "github.com/doorward/doorward/internal/describe"

// write completes a method that changes a repository. What a public repository holds anyone can read, so the reach is
// public unless the person's settings say that the repository is private.
func write(m describe.Method) describe.Method {
	if m.Class == "" {
		m.Class = describe.Write
	}
	if m.Reach == "" {
		m.Reach = describe.ReachPublic
		m.Lower = []describe.Lower{{To: describe.ReachSpace, Private: "repo"}}
	}
	m.Grant = describe.Names(m.Args)
	return m
}

// inNewest says how the newest issues or comments show whether a call ran: its mark stands in one of them.
func inNewest(method string, more ...describe.Match) *describe.Settle {
	args := []describe.Match{
		from("repo", "repo"), constant("max", "100"), {Name: "since", Bind: describe.Bind{Since: true}},
	}
	return &describe.Settle{Method: method, Args: append(args, more...)}
}

func writeMethods() []describe.Method {
	numberOf := func(what string) describe.Arg { return number("number", what, "number of the "+what) }
	sha := func(help string) describe.Arg {
		return describe.Arg{Name: "sha", Label: "Digest", Help: help, Type: describe.TypeHex, Min: 40, Max: 64}
	}
	assignee := describe.Arg{
		Name: "assignee", Label: "Assignee", Help: "login of a person to assign; repeat for several, at most 10",
		Type: describe.TypeName, Repeat: 10, Role: "recipient",
	}
	files := describe.Arg{
		Name: "file", Label: "File", Help: "text file that goes in under its own name, at most 1 MiB; repeat for several",
		Type: describe.TypeFile, Required: true, Repeat: maxGistFiles, Max: maxGistFile, Role: "content",
	}
	return []describe.Method{
		write(describe.Method{
			Name: "issue-create", Summary: "open an issue; whoever it mentions or assigns gets mail",
			Args: []describe.Arg{
				argRepo(), required(argTitle("the issue")), argBody("body", "Text", "text of the issue"),
				argLabel("label to give it; repeat for several"), assignee,
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/issues", leaf("/title", "title", ""),
				marked("/body", "body"), leaf("/labels", "label", "list"), leaf("/assignees", "assignee", "list"))},
			Scopes: []string{"Issues: write"},
			Settle: inNewest("issues", constant("state", "all")),
		}),

		write(describe.Method{
			Name: "issue-update", Summary: "change an issue: what is named is replaced, the rest stays",
			Args: []describe.Arg{
				argRepo(), numberOf("issue"),
				{Name: "state", Label: "State", Help: "open or closed", Type: describe.TypeEnum,
					Enum: []string{"open", "closed"}},
				argTitle("the issue"), argBody("body", "Text", "text of the issue"),
				argLabel("label it has from now on; repeat for several; all others go"),
			},
			Entries: []describe.Entry{send("PATCH", "/repos/{repo}/issues/{number}", leaf("/state", "state", ""),
				leaf("/title", "title", ""), leaf("/body", "body", ""), leaf("/labels", "label", "list"))},
			Scopes: []string{"Issues: write"},
		}),

		write(describe.Method{
			Name: "comment", Summary: "comment on an issue or pull request; whoever it mentions gets mail",
			Args: []describe.Arg{
				argRepo(), numberOf("issue"), required(atLeastOne(argBody("body", "Text", "text of the comment"))),
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/issues/{number}/comments", marked("/body", "body"))},
			Scopes:  []string{"Issues: write or Pull requests: write"},
			Settle:  inNewest("comments", from("number", "number")),
		}),

		write(describe.Method{
			Name: "pull-create", Summary: "open a pull request from one branch to another of the repository",
			Args: []describe.Arg{
				argRepo(), required(argBranch("head", "From branch", "branch with the changes")),
				required(asDestination(argBranch("base", "Into branch", "branch they are to go into"))),
				required(argTitle("the pull request")), argBody("body", "Text", "text of the pull request"),
				{Name: "draft", Label: "As draft", Help: "open it as a draft", Type: describe.TypeBool, Default: "false"},
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/pulls", leaf("/title", "title", ""),
				leaf("/head", "head", ""), leaf("/base", "base", ""), marked("/body", "body"),
				leaf("/draft", "draft", "bool"))},
			Scopes: []string{"Pull requests: write"},
			Once:   "GitHub refuses a second open pull request of the same branches",
			Settle: inNewest("issues", constant("state", "all")),
		}),

		write(describe.Method{
			Name: "review", Summary: "review a pull request: comment, approve or request changes", Always: true,
			Args: []describe.Arg{
				argRepo(), numberOf("pull request"),
				{Name: "event", Label: "Verdict", Help: "what the review says", Type: describe.TypeEnum,
					Enum: []string{"comment", "approve", "request-changes"}, Required: true},
				argBody("body", "Text", "text of the review, which only an approval may lack,"),
				sha("commit that was reviewed, 40 hexadecimal digits; the newest without it"),
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/pulls/{number}/reviews",
				describe.Leaf{Pointer: "/event", Bind: describe.Bind{Arg: "event", Map: []describe.Pair{
					{From: "comment", To: "COMMENT"}, {From: "approve", To: "APPROVE"},
					{From: "request-changes", To: "REQUEST_CHANGES"},
				}}},
				leaf("/body", "body", ""), leaf("/commit_id", "sha", ""))},
			Scopes: []string{"Pull requests: write"},
		}),

		write(describe.Method{
			Name: "pull-merge", Summary: "merge a pull request", Class: describe.Destructive,
			Args: []describe.Arg{
				argRepo(), numberOf("pull request"),
				required(sha("commit that its branch must still be at, as pull-get answers it")),
				{Name: "method", Label: "How", Help: "how the commits go in", Type: describe.TypeEnum,
					Enum: []string{"merge", "squash", "rebase"}, Default: "merge"},
			},
			Entries: []describe.Entry{send("PUT", "/repos/{repo}/pulls/{number}/merge", leaf("/sha", "sha", ""),
				leaf("/merge_method", "method", ""))},
			Scopes: []string{"Contents: write"},
			Once:   "GitHub merges a pull request once, and only at the commit named",
		}),

		// A file below .github/workflows runs as code with the repository's secrets, and so does much else that a
		// build reads; hence sensitive wherever it goes.
		write(describe.Method{
			Name: "file-put", Summary: "write one file to a branch as a commit; workflow files run as code", Always: true,
			Args: []describe.Arg{
				argRepo(),
				{Name: "path", Label: "Path", Help: "file in the repository", Type: describe.TypePath, Required: true,
					Role: "destination"},
				asDestination(argBranch("branch", "Branch", "branch to commit to; the default branch without it")),
				{Name: "message", Label: "Commit message", Help: "message of the commit, at most 4096 bytes",
					Type: describe.TypeText, Required: true, Min: 1, Max: 4096, Role: "content"},
				{Name: "file", Label: "Content", Help: "file whose bytes go there, at most 10 MiB",
					Type: describe.TypeFile, Required: true, Max: maxFilePut, Role: "content"},
				sha("digest of the file that is replaced, as file-get lists it; without it the file must be new"),
			},
			Entries: []describe.Entry{send("PUT", "/repos/{repo}/contents/{path}", leaf("/message", "message", ""),
				leaf("/content", "file", "base64"), leaf("/branch", "branch", ""), leaf("/sha", "sha", ""))},
			Scopes: []string{"Contents: write (Workflows: write for workflow files)"},
			Once:   "GitHub writes only over the file of the digest named, or where there is none",
		}),

		write(describe.Method{
			Name: "branch-create", Summary: "make a branch at a commit",
			Args: []describe.Arg{
				argRepo(), required(asDestination(argBranch("name", "Branch", "name of the new branch"))),
				{Name: "from", Label: "At commit", Help: "commit it starts at, 40 hexadecimal digits",
					Type: describe.TypeHex, Required: true, Min: 40, Max: 64},
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/git/refs",
				describe.Leaf{Pointer: "/ref", Bind: describe.Bind{Tmpl: "refs/heads/{name}"}},
				leaf("/sha", "from", ""))},
			Scopes: []string{"Contents: write"},
			Once:   "GitHub refuses a branch that is there",
		}),

		write(describe.Method{
			Name: "branch-delete", Summary: "delete a branch", Class: describe.Destructive,
			Args: []describe.Arg{argRepo(), required(asDestination(argBranch("name", "Branch", "branch to delete")))},
			Entries: []describe.Entry{{
				Name: "send", Method: "DELETE", Path: "{base}/repos/{repo}/git/refs/heads/{name}", Header: version(),
				Credential: true, MaxIn: maxJSON,
			}},
			Scopes: []string{"Contents: write"},
			Once:   "a branch that is gone cannot be deleted",
		}),

		write(describe.Method{
			Name: "workflow-run", Summary: "start a workflow, which runs code with the repository's secrets", Always: true,
			Args: []describe.Arg{
				argRepo(),
				{Name: "workflow", Label: "Workflow", Help: "file name of the workflow, such as build.yml, or its id",
					Type: describe.TypeName, Required: true, Role: "destination"},
				required(asDestination(argBranch("ref", "At", "branch or tag to run it at"))),
				{Name: "input", Label: "Input", Help: "input of the workflow as name=value; repeat for several, at most 25",
					Type: describe.TypeString, Min: 2, Max: 4096, Repeat: maxInputs, Role: "content"},
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/actions/workflows/{workflow}/dispatches",
				leaf("/ref", "ref", ""), leaf("/inputs", "input", "map"))},
			Scopes: []string{"Actions: write"},
		}),

		// A secret gist is open to whoever has its address.
		{
			Name: "gist-create", Summary: "publish text files as a gist", Class: describe.Write, Reach: describe.ReachPublic,
			Args: []describe.Arg{
				files,
				{Name: "public", Label: "Listed", Help: "listed for everyone; else open to whoever has the address",
					Type: describe.TypeBool, Default: "false"},
				{Name: "description", Label: "Description", Help: "description, one line, at most 1,024 bytes",
					Type: describe.TypeString, Role: "content"},
			},
			Entries: []describe.Entry{send("POST", "/gists", leaf("/description", "description", ""),
				leaf("/public", "public", "bool"), leaf("/files", "file", "texts"))},
			// No grant fields: what is published is the text itself, so each gist is decided by itself.
			Scopes: []string{"Gists: write"},
		},

		write(describe.Method{
			Name: "release-create", Summary: "publish a release, or draft one", Class: describe.Write,
			Reach: describe.ReachPublic,
			Args: []describe.Arg{
				argRepo(),
				{Name: "tag", Label: "Tag", Help: "tag of the release; it is made at the default branch if it is new",
					Type: describe.TypePath, Required: true, Role: "destination"},
				argTitle("the release"), argBody("notes", "Notes", "notes"),
				{Name: "draft", Label: "As draft", Help: "keep it as a draft that only writers see",
					Type: describe.TypeBool, Default: "false"},
			},
			Entries: []describe.Entry{send("POST", "/repos/{repo}/releases", leaf("/tag_name", "tag", ""),
				leaf("/name", "title", ""), leaf("/body", "notes", ""), leaf("/draft", "draft", "bool"))},
			Scopes: []string{"Contents: write"},
			Once:   "GitHub refuses a second release of one tag",
		}),

		write(describe.Method{
			Name: "repo-create", Summary: "make a repository of the account's own", Class: describe.Write,
			Reach: describe.ReachPublic,
			Lower: []describe.Lower{{To: describe.ReachNone, When: &describe.Cond{Arg: "private", Is: "true"}}},
			Args: []describe.Arg{
				{Name: "name", Label: "Name", Help: "name of the repository", Type: describe.TypeName, Required: true,
					Role: "destination"},
				{Name: "private", Label: "Private", Help: "only the account sees it; false makes it public",
					Type: describe.TypeBool, Default: "true"},
				{Name: "description", Label: "Description", Help: "description, one line, at most 350 bytes",
					Type: describe.TypeString, Max: 350, Role: "content"},
			},
			Entries: []describe.Entry{send("POST", "/user/repos", leaf("/name", "name", ""),
				leaf("/private", "private", "bool"), leaf("/description", "description", ""))},
			Scopes: []string{"Administration: write"},
			Once:   "GitHub refuses a second repository of one name",
		}),
	}
}

func atLeastOne(a describe.Arg) describe.Arg {
	a.Min = 1
	return a
}
