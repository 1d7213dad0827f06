// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A project within a folder that a cell writes in could be a link by its next start.
func TestFoldersOfCellsLieApart(t *testing.T) {
	for _, c := range []struct {
		what, work, home string // configurations of two cells; @ is a folder with the folders p, p/sub, q, and l, a link to q, loop, one to itself, and a file
		says             string // "" starts
	}{
		{"apart", `projects = ["@/p", "@/q"]`, ``, ""},
		{"nothing", ``, ``, ""},
		{"one project of two cells", `projects = ["@/p"]`, `projects = ["@/p"]`, ""},
		{"names that only begin alike", `projects = ["@/p"]`, `projects = ["@/p2"]`, ""},
		{"what is not there yet", `projects = ["@/new"]`, ``, ""},
		{"the other cell's configuration is broken", `projects = ["@/p"]`, `projects = "@"`, ""},
		{"in each other", `projects = ["@/p", "@/p/sub"]`, ``, "/p/sub of cell work lie in each other"},
		{"in the other cell's", `projects = ["@/p/sub"]`, `projects = ["@/p"]`, "/p of cell home lie in each other"},
		{"around the other cell's", `projects = ["@/p"]`, `projects = ["@/p/sub"]`, "/p/sub of cell home lie in each other"},
		{"in its own tree", "root = \"@/p\"\nprojects = [\"@/p/sub\"]", ``, "/p/sub of cell work lie in each other"},
		{"its own tree", "root = \"@/p\"\nprojects = [\"@/p\"]", ``, "/p of cell work lie in each other"},
		{"the other's tree", `projects = ["@/q"]`, `root = "@/q"`, "/q of cell home lie in each other"},
		{"one tree of two", `root = "@/q"`, `root = "@/q"`, "/q of cell home lie in each other"},
		{"around all trees", `projects = ["/var/lib"]`, ``, "its folder /var/lib and /var/lib/doorward/cells/"},
		{"a link", `projects = ["@/l"]`, ``, "/l leads to "},
		{"through a link", `projects = ["@/l/sub"]`, ``, "/l/sub leads to "},
		{"a link to itself", `projects = ["@/loop"]`, ``, "/loop cannot be looked at"},
		{"behind a file", `projects = ["@/file/sub"]`, ``, "/file/sub cannot be looked at"},
		{"a tree by a link", `root = "@/l"`, ``, "/l leads to "},
	} {
		t.Run(c.what, func(t *testing.T) {
			at, dir := t.TempDir(), t.TempDir()
			errs := []error{os.MkdirAll(filepath.Join(at, "p/sub"), 0o755), os.MkdirAll(filepath.Join(at, "q/sub"), 0o755),
				os.Symlink("q", filepath.Join(at, "l")),
				os.Symlink("loop", filepath.Join(at, "loop")), os.WriteFile(filepath.Join(at, "file"), nil, 0o600)}
			for name, text := range map[string]string{"work": c.work, "home": c.home} {
				errs = append(errs, os.WriteFile(filepath.Join(dir, name+".toml"), []byte(strings.ReplaceAll(text, "@", at)), 0o600))
			}
			work, err := load(dir, "work")
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			err = work.apart(dir, "work")
			if c.says == "" && err != nil || c.says != "" && !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
