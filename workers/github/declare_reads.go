// SPDX-License-Identifier: Apache-2.0

package github

import (
	"slices"

	"github.com/doorward/doorward/internal/describe"
)

// read completes a method that changes nothing.
func read(name, summary, scope string, args []describe.Arg, entries ...describe.Entry) describe.Method {
	return describe.Method{
		Name: name, Summary: summary, Class: describe.Read, Reach: describe.ReachNone, Args: args, Entries: entries,
		Labels: answered(), Scopes: []string{scope}, Grant: describe.Names(args),
	}
}

func with(query []describe.Match, more ...describe.Match) []describe.Match {
	return slices.Concat(query, more)
}

// argQuery is a search text; what it says leaves the machine.
func argQuery(help string) describe.Arg {
	return describe.Arg{
		Name: "query", Label: "Search for", Help: help, Type: describe.TypeString, Required: true, Min: 1, Max: 256,
		Role: "content",
	}
}

func readMethods() []describe.Method {
	diff := get("/repos/{repo}/pulls/{number}")
	diff.MaxIn = maxRaw
	file := get("/repos/{repo}/contents/{path}", from("ref", "ref"))
	file.MaxIn = maxRaw

	return []describe.Method{
		read("repos", "list the account's repositories", "Metadata: read",
			[]describe.Arg{
				{Name: "visibility", Label: "Visibility", Help: "which repositories", Type: describe.TypeEnum,
					Enum: []string{"all", "public", "private"}, Default: "all"},
				argMax("repositories"), argPage(),
			},
			get("/user/repos", with(paged(), from("visibility", "visibility"))...)),

		read("repo-get", "show one repository", "Metadata: read",
			[]describe.Arg{argRepo()},
			get("/repos/{repo}")),

		read("file-get", "read a file, or list a folder, of a repository", "Contents: read",
			[]describe.Arg{
				argRepo(),
				{Name: "path", Label: "Path", Help: "file or folder in the repository", Type: describe.TypePath,
					Required: true},
				{Name: "ref", Label: "At", Help: "branch, tag or commit; the default branch without it",
					Type: describe.TypePath},
				{Name: "max-bytes", Label: "At most bytes", Help: "bytes of a file to answer at most, 1 to 67108864",
					Type: describe.TypeInt, Min: 1, Max: maxRaw, Default: "16777216"},
			},
			file),

		read("tree", "list the files of a repository", "Contents: read",
			[]describe.Arg{
				argRepo(),
				{Name: "ref", Label: "At", Help: "branch or tag without a slash, or a commit", Type: describe.TypeName,
					Default: "HEAD"},
				{Name: "recursive", Label: "With subfolders", Help: "also what is in subfolders", Type: describe.TypeBool,
					Default: "false"},
			},
			get("/repos/{repo}/git/trees/{ref}", describe.Match{Name: "recursive", Bind: describe.Bind{
				Arg: "recursive", Map: []describe.Pair{{From: "true", To: "1"}}}})),

		read("code-search", "search code in repositories; at most 10 times a minute", "Metadata: read",
			[]describe.Arg{
				argQuery("words and qualifiers such as repo:owner/name, at most 256 bytes; GitHub sees them"),
				argMax("places"), argPage(),
			},
			get("/search/code", with(paged(), from("q", "query"))...)),

		read("issue-search", "search issues and pull requests; at most 30 times a minute", "Issues: read",
			[]describe.Arg{
				argQuery("words and qualifiers such as repo:owner/name is:issue, at most 256 bytes; GitHub sees them"),
				argMax("issues"), argPage(),
			},
			get("/search/issues", with(paged(), from("q", "query"))...)),

		read("issues", "list the issues and pull requests of a repository, newest first", "Issues: read",
			[]describe.Arg{
				argRepo(),
				{Name: "state", Label: "State", Help: "which issues", Type: describe.TypeEnum,
					Enum: []string{"open", "closed", "all"}, Default: "open"},
				argLabel("only issues with this label; repeat for several"), argSince("only issues"),
				argMax("issues"), argPage(),
			},
			get("/repos/{repo}/issues", with(paged(), from("state", "state"), from("since", "since"),
				describe.Match{Name: "labels", Bind: describe.Bind{Arg: "label", Format: "join"}})...)),

		read("issue-get", "show one issue with its text", "Issues: read",
			[]describe.Arg{argRepo(), number("number", "Issue", "number of the issue or pull request")},
			get("/repos/{repo}/issues/{number}")),

		read("comments", "list the comments on an issue or pull request, oldest first", "Issues: read",
			[]describe.Arg{
				argRepo(), number("number", "Issue", "number of the issue or pull request"), argSince("only comments"),
				argMax("comments"), argPage(),
			},
			get("/repos/{repo}/issues/{number}/comments", with(paged(), from("since", "since"))...)),

		read("pull-get", "show one pull request, or its diff", "Pull requests: read",
			[]describe.Arg{
				argRepo(), number("number", "Pull request", "number of the pull request"),
				{Name: "diff", Label: "As diff", Help: "answer the changes as a diff, at most 64 MiB",
					Type: describe.TypeBool, Default: "false"},
			},
			diff),

		read("pull-files", "list the files a pull request changes, with their changes", "Pull requests: read",
			[]describe.Arg{
				argRepo(), number("number", "Pull request", "number of the pull request"), argMax("files"), argPage(),
			},
			get("/repos/{repo}/pulls/{number}/files", paged()...)),

		read("runs", "list the workflow runs of a repository, newest first", "Actions: read",
			[]describe.Arg{
				argRepo(), argBranch("branch", "Branch", "only runs of this branch"),
				{Name: "status", Label: "Status", Help: "only runs of this status or conclusion", Type: describe.TypeEnum,
					Enum: []string{"completed", "action_required", "cancelled", "failure", "neutral", "skipped", "stale",
						"success", "timed_out", "in_progress", "queued", "requested", "waiting", "pending"}},
				argMax("runs"), argPage(),
			},
			get("/repos/{repo}/actions/runs", with(paged(), from("branch", "branch"), from("status", "status"))...)),

		// The log itself is at a signed address of another host; the credential stays behind.
		read("job-log", "read the end of a workflow job's log", "Actions: read",
			[]describe.Arg{
				argRepo(), number("job", "Job", "id of the job"),
				{Name: "tail", Label: "Last lines", Help: "lines from the end of the log, 1 to 1000000",
					Type: describe.TypeInt, Min: 1, Max: 1_000_000, Default: "500"},
			},
			get("/repos/{repo}/actions/jobs/{job}/logs"),
			describe.Entry{
				Name: "log", Method: "GET", Follow: "get", Host: "*.blob.core.windows.net", MaxIn: maxRaw,
			}),

		read("notifications", "list the account's notifications; needs a classic token", "classic token: notifications",
			[]describe.Arg{
				{Name: "all", Label: "Read ones too", Help: "also those that were read", Type: describe.TypeBool,
					Default: "false"},
				argSince("only notifications"),
				{Name: "max", Label: "At most", Help: "notifications to answer at most, 1 to 50", Type: describe.TypeInt,
					Min: 1, Max: 50, Default: "30"},
				argPage(),
			},
			get("/notifications", with(paged(), from("all", "all"), from("since", "since"))...)),
	}
}
