// SPDX-License-Identifier: Apache-2.0

// Command repro builds everything twice, in folders of other names and lengths, with other times on the files, another
// umask and time zone, and says whether the bytes are the same: binaries, descriptions and the packages of both
// architectures. Then it looks into the packages: `repro -check DIR` does only that, with those of DIR.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	run := run
	if len(os.Args) == 3 && os.Args[1] == "-check" {
		run = func() error { return checkPackages(os.Args[2]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "repro:", err)
		os.Exit(1)
	}
}

func run() error {
	top, err := os.MkdirTemp("", "doorward-repro-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	version, err := output("git", "describe", "--always", "--dirty")
	if err != nil {
		return err
	}
	epoch, err := output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	var sums []map[string][sha256.Size]byte
	for _, ground := range []struct {
		dir, zone string
		umask     int
		age       time.Duration
	}{
		{"a", "UTC", 0o022, 0},
		{"another/folder of a longer name", "Asia/Kathmandu", 0o077, 40 * 24 * time.Hour},
	} {
		old := unix.Umask(ground.umask)
		dir := filepath.Join(top, ground.dir)
		if err := copyTree(dir, time.Now().Add(-ground.age)); err != nil {
			return err
		}
		for _, target := range [][]string{{"build"}, {"deb", "ARCH=amd64"}, {"deb", "ARCH=arm64"}} {
			cmd := exec.Command("make", append(target, "-s", "VERSION="+version)...)
			cmd.Dir, cmd.Stderr = dir, os.Stderr
			cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "TZ="+ground.zone)
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("make %s in %s: %w", strings.Join(target, " "), dir, err)
			}
		}
		unix.Umask(old)
		all, err := digests(filepath.Join(dir, "build"))
		if err != nil {
			return err
		}
		sums = append(sums, all)
	}
	if err := compare(sums[0], sums[1]); err != nil {
		return err
	}
	return checkPackages(filepath.Join(top, "a", "build"))
}

func output(command string, args ...string) (string, error) {
	b, err := exec.Command(command, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", command, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(b)), nil
}

// copyTree copies what git knows, and what it would, with a time of its own.
func copyTree(to string, at time.Time) error {
	list, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return fmt.Errorf("list the tree: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimRight(list, "\x00"), []byte{0}) {
		from, file := string(name), filepath.Join(to, string(name))
		info, err := os.Lstat(from)
		if err != nil || !info.Mode().IsRegular() { // deleted and not yet said so
			continue
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, b, info.Mode().Perm()); err != nil {
			return err
		}
		if err := os.Chtimes(file, at, at); err != nil {
			return err
		}
	}
	return nil
}

func digests(dir string) (map[string][sha256.Size]byte, error) {
	out := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out[name] = sha256.Sum256(b)
		return err
	})
	return out, err
}

func compare(a, b map[string][sha256.Size]byte) error {
	debs := 0
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if x, ok := b[name]; !ok || x != a[name] {
			differ = append(differ, name)
		}
		if strings.HasSuffix(name, ".deb") {
			debs++
			fmt.Printf("%x  %s\n", a[name], name)
		}
	}
	switch {
	case len(differ) > 0:
		return fmt.Errorf("other bytes: %s", strings.Join(differ, ", "))
	case len(a) != len(b):
		return fmt.Errorf("%d files and %d", len(a), len(b))
	case debs != 2:
		return fmt.Errorf("%d packages, want two", debs)
	}
	fmt.Printf("same bytes: %d files\n", len(a))
	return nil
}
