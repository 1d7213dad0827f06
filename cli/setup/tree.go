// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// etcFiles are what a cell's /etc has of the machine's: what programs of /usr look for, and nothing that is a secret or
// says who the machine's users are.
var etcFiles = []string{"alternatives", "bash.bashrc", "ca-certificates.conf", "debian_version", "host.conf", "inputrc",
	"java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.conf", "localtime", "login.defs", "mime.types",
	"networks", "nsswitch.conf", "perl", "profile", "protocols", "python3", "python3.13", "services", "shells", "ssl/certs",
	"ssl/openssl.cnf", "terminfo", "timezone"}

// makeTree makes a cell's root at dir, which must not be there: its own but for /usr, which is the machine's.
func makeTree(dir, hosts, cell string, p person) (skipped []string, err error) {
	me := p.inCell()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var errs []error
	for _, d := range []string{"usr", "etc", "etc/ssl", "run", "proc", "sys", "dev", "root", "var", "var/lib", "var/cache", "var/log",
		"mnt", "srv", "opt"} {
		errs = append(errs, root.Mkdir(d, 0o755))
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		errs = append(errs, root.Mkdir(d, 0o755), root.Chmod(d, fs.ModeSticky|0o777))
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		errs = append(errs, root.Symlink("usr/"+l, l))
	}
	errs = append(errs, root.Symlink("/run", "var/run"), root.Chmod("root", 0o700))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if skipped, err = hostFiles(root, hosts); err != nil {
		return nil, err
	}
	return skipped, users(root, cell, p.name, p.home, me)
}

// hostFiles copies etcFiles.
func hostFiles(root *os.Root, hosts string) (skipped []string, err error) {
	from, err := os.OpenRoot(hosts)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	for _, f := range etcFiles {
		there, err := exists(from, f)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		some, err := copyAll(from, f, root, "etc/"+f, owner{}, anyone)
		if err != nil {
			return nil, err
		}
		skipped = append(skipped, some...)
	}
	text, err := os.ReadFile(filepath.Join(hosts, "os-release"))
	if err != nil {
		text = []byte("ID=linux\n")
	}
	return skipped, root.WriteFile("etc/os-release", text, 0o644)
}

// users gives a tree its two users: root, and the person with their own name and home. It has no other, and none of them
// a password.
func users(root *os.Root, cell, name, home string, me owner) error {
	files := map[string]string{
		"etc/passwd": fmt.Sprintf("root:x:0:0:root:/root:/bin/bash\n%s:x:%d:%d::%s:/bin/bash\n"+
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", name, me.UID, me.GID, home),
		"etc/group":    fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", name, me.GID),
		"etc/hosts":    "127.0.0.1 localhost " + cell + "\n::1 localhost " + cell + "\n",
		"etc/hostname": cell + "\n",
	}
	var errs []error
	for path, text := range files {
		errs = append(errs, root.RemoveAll(path), root.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(append(errs, homeOf(root, home, me))...)
}

// homeOf makes the person's home in a tree.
func homeOf(root *os.Root, home string, me owner) error {
	rel := strings.TrimPrefix(home, "/")
	if err := parents(root, rel, owner{}); err != nil {
		return err
	}
	if err := makeFolder(root, rel, me); err != nil {
		return err
	}
	return errors.Join(root.Chmod(rel, 0o700), root.Lchown(rel, me.UID, me.GID))
}

// debootstrap makes a tree with a Debian of its own.
func debootstrap(ctx context.Context, run runner, dir, cell string, p person) error {
	release, sources := debian(ctx, run)
	args := []string{"--variant=minbase", "--include=ca-certificates,git,less,openssl,procps", release, dir}
	if _, err := run(ctx, nil, "mmdebstrap", append(args, sources...)...); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	passwd, err := root.ReadFile("etc/passwd")
	if err != nil {
		return err
	}
	group, err := root.ReadFile("etc/group")
	if err != nil {
		return err
	}
	me := p.inCell()
	return errors.Join(
		root.WriteFile("etc/passwd", fmt.Appendf(passwd, "%s:x:%d:%d::%s:/bin/bash\n", p.name, me.UID, me.GID, p.home), 0o644),
		root.WriteFile("etc/group", fmt.Appendf(group, "%s:x:%d:\n", p.name, me.GID), 0o644),
		root.WriteFile("etc/hostname", []byte(cell+"\n"), 0o644),
		homeOf(root, p.home, me))
}

// debian is the release of this machine and where its packages and security updates come from, as apt has them. Where apt
// knows no Debian it is the stable one, and mmdebstrap chooses.
func debian(ctx context.Context, run runner) (release string, sources []string) {
	said, err := run(ctx, nil, "apt-get", "indextargets", "--format", "deb $(REPO_URI) $(CODENAME) $(COMPONENT)",
		"Created-By: Packages", "Origin: Debian")
	if err != nil {
		return "stable", nil
	}
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		if len(f) != 4 || slices.Contains(sources, line) {
			continue
		}
		sources = append(sources, line)
		if release == "" && !strings.Contains(f[2], "-") {
			release = f[2]
		}
	}
	if release == "" {
		return "stable", nil
	}
	return release, sources
}

// mountPoints makes the folders of a tree on which projects are put. Their owner in the tree is whom the project's owner
// is in the cell.
func mountPoints(tree string, projects []string, p person) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	base, err := shift(tree)
	if err != nil {
		return err
	}
	me := owner{base + p.inCell().UID, base + p.inCell().GID}
	for _, dir := range projects {
		rel, above := strings.TrimPrefix(dir, "/"), owner{base, base}
		if _, ok := below(p.home, dir); ok {
			above = me
		}
		if err := parents(root, rel, above); err != nil {
			return err
		}
		if err := makeFolder(root, rel, me); err != nil {
			return err
		}
	}
	return nil
}

// cellFile is the cell's configuration.
func cellFile(c *Config, p person, tree string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by `doorward setup`; see doorward-cell(5).\nroot = %q\nuser = %q\nprojects = [", tree, p.name)
	for i, dir := range c.Projects {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", dir)
	}
	b.WriteString("]\n")
	if c.Tree == "mmdebstrap" {
		b.WriteString("usr = \"own\"\n")
	}
	if c.Memory != "" || c.Tasks != 0 {
		b.WriteString("\n[limits]\n")
		if c.Memory != "" {
			fmt.Fprintf(&b, "memory = %q\n", c.Memory)
		}
		if c.Tasks != 0 {
			fmt.Fprintf(&b, "tasks = %d\n", c.Tasks)
		}
	}
	return []byte(b.String())
}
