// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// machines are the packages' architectures.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// packed are a package's files by path.
type packed map[string][]byte

// checkPackages holds both packages to what each must be, and to each other: but for programs they are the same.
func checkPackages(build string) error {
	all := map[string]packed{}
	for arch := range machines {
		names, err := filepath.Glob(filepath.Join(build, "doorward_*_"+arch+".deb"))
		if err != nil || len(names) != 1 {
			return fmt.Errorf("%d packages for %s: %w", len(names), arch, err)
		}
		if all[arch], err = unpack(names[0]); err == nil {
			err = all[arch].check(arch)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(names[0]), err)
		}
	}
	for path, b := range all["amd64"] {
		other, ok := all["arm64"][path]
		if !ok || !isProgram(path) && !bytes.Equal(b, other) {
			return fmt.Errorf("the packages differ in %s", path)
		}
	}
	if len(all["amd64"]) != len(all["arm64"]) {
		return errors.New("the package for arm64 has other files")
	}
	return tryForeign(all["arm64"])
}

func isProgram(path string) bool {
	return strings.HasPrefix(path, "/usr/bin/") || strings.HasPrefix(path, "/usr/libexec/")
}

// unpack reads a package's files, and refuses owners and modes that no file of it may have.
func unpack(deb string) (packed, error) {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-deb: %w", err)
	}
	out := packed{}
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(h.Name, ".")
		want := int64(0o644)
		switch {
		case h.Typeflag == tar.TypeDir, isProgram(path):
			want = 0o755
		case h.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%s is neither file nor folder", path)
		}
		if h.Mode&0o7777 != want || h.Uid != 0 || h.Gid != 0 || h.Uname != "root" && h.Uname != "" {
			return nil, fmt.Errorf("%s is %04o of %d:%d (%s), want %04o of root", path, h.Mode, h.Uid, h.Gid, h.Uname, want)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if out[path], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// check holds a package to what it is for: programs of its machine that need no library, and nothing below /etc, so that
// no upgrade asks a question or takes a person's file away.
func (p packed) check(arch string) error {
	programs := 0
	for path, b := range p {
		if strings.HasPrefix(path, "/etc/") || strings.HasPrefix(path, "/var/") || strings.HasPrefix(path, "/run/") {
			return fmt.Errorf("%s is not the package's to bring", path)
		}
		if !isProgram(path) {
			continue
		}
		programs++
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		libs, err := f.ImportedLibraries()
		if f.Machine != machines[arch] || err != nil || len(libs) > 0 || f.Section(".symtab") != nil {
			return fmt.Errorf("%s: machine %s, libraries %v, %v", path, f.Machine, libs, err)
		}
	}
	if programs < 8 {
		return fmt.Errorf("%d programs", programs)
	}
	for _, must := range []string{"man/man1/connector.1.gz", "man/man8/doorward.8.gz", "man/man5/doorward-policy.5.gz",
		"man/man5/doorward-cell.5.gz", "bash-completion/completions/doorward", "bash-completion/completions/connector",
		"zsh/vendor-completions/_doorward", "zsh/vendor-completions/_connector", "fish/vendor_completions.d/doorward.fish",
		"fish/vendor_completions.d/connector.fish", "doc/doorward/copyright", "doc/doorward/kernel.md",
		"doc/doorward/policy.md", "doc/doorward/changelog.gz", "doc/doorward/NOTICES.gz",
		"doorward/policy.toml", "doorward/limits.toml", "doorward/dav.desc", "doorward/github.desc"} {
		if len(p["/usr/share/"+must]) == 0 {
			return fmt.Errorf("there is no /usr/share/%s", must)
		}
	}
	return nil
}

// tryForeign runs the workers for arm64 under an emulator, where there is one: what they say of themselves is what the
// package has.
func tryForeign(p packed) error {
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		fmt.Println("programs for arm64 were not run: there is no qemu-aarch64-static (apt-get install qemu-user-static)")
		return nil
	}
	dir, err := os.MkdirTemp("", "doorward-arm64-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, vendor := range []string{"dav", "github"} {
		file := filepath.Join(dir, vendor)
		if err := os.WriteFile(file, p["/usr/libexec/doorward/worker-"+vendor], 0o700); err != nil {
			return err
		}
		said, err := exec.Command(emulator, file, "describe").Output()
		if err != nil {
			return fmt.Errorf("run worker-%s for arm64: %w", vendor, err)
		}
		if !bytes.Equal(said, p["/usr/share/doorward/"+vendor+".desc"]) {
			return fmt.Errorf("worker-%s for arm64 describes itself otherwise", vendor)
		}
	}
	fmt.Println("workers for arm64 ran under qemu-aarch64-static and describe themselves alike")
	return nil
}
