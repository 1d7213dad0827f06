// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// recipe is how a base is made.
type recipe struct {
	suite    string // Debian's name of it
	packages []string
	also     string // a suite that single packages are taken from, as NAME/SUITE
}

// packages are what a base has besides Debian's required ones and a kernel.
var packages = []string{
	"systemd", "systemd-sysv", "systemd-container", "dbus", "udev", "kmod", "iproute2", "procps", "ca-certificates",
	"initramfs-tools", "radicale", "sudo",
}

// recipes are the bases that there are. Debian 13 is the first of them; its kernel is 6.12, whose pidfds say nothing of a
// cgroup. That of backports is newer than 6.13, where they do.
var recipes = map[string]recipe{
	"trixie": {suite: "trixie", packages: append(slices.Clone(packages), "linux-image-cloud-amd64")},
	// Below the floor: kernel 6.1, systemd 252.
	"bookworm": {suite: "bookworm", packages: append(slices.Clone(packages), "linux-image-cloud-amd64")},
	"backports": {suite: "trixie", packages: append(slices.Clone(packages), "linux-image-cloud-amd64/trixie-backports"),
		also: "trixie-backports"},
}

// starter is the one unit that the base has of its own: it runs what the second disk says.
const starter = `[Unit]
Description=Runs what the second disk says
After=basic.target
[Service]
Type=oneshot
ExecStart=mount -o ro /dev/vdb /bench
ExecStart=/bench/start
ExecStopPost=systemctl poweroff -ff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
[Install]
WantedBy=multi-user.target
`

// base is a disk with its kernel and initrd.
type base struct{ disk, kernel, initrd string }

// makeBase makes a base, or takes the one that was made from the same recipe. An empty name is Debian 13.
func makeBase(ctx context.Context, cache, name string) (base, error) {
	if name == "" {
		name = "trixie"
	}
	r, ok := recipes[name]
	if !ok {
		return base{}, fmt.Errorf("there is no base %q: have %q", name, slices.Sorted(maps.Keys(recipes)))
	}
	sum := sha256.Sum256([]byte(r.suite + strings.Join(r.packages, " ") + r.also + starter))
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:6]))
	b := base{filepath.Join(dir, "disk.img"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd.img")}
	if _, err := os.Stat(dir); err == nil {
		return b, nil
	}
	fmt.Println("making the base of the machine, once: a minute or some")
	tmp, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return base{}, err
	}
	defer os.RemoveAll(tmp)
	tree := filepath.Join(tmp, "root")
	args := []string{"--variant=minbase", "--include=" + strings.Join(r.packages, ","), r.suite, tree}
	if err := command(ctx, "mmdebstrap", append(args, sources(ctx, r)...)...); err != nil {
		return base{}, fmt.Errorf("%w: make the base of a mirror: %w", errSkipped, err)
	}
	etc := func(path, content string) error {
		return os.WriteFile(filepath.Join(tree, "etc", path), []byte(content), 0o644)
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(tree, "bench"), 0o755),
		etc("systemd/system/bench.service", starter),
		os.MkdirAll(filepath.Join(tree, "etc/systemd/system/multi-user.target.wants"), 0o755),
		os.Symlink("../bench.service", filepath.Join(tree, "etc/systemd/system/multi-user.target.wants/bench.service")),
		// A getty on the first port would reset it, and one on the second take what the tests print.
		os.Symlink("/dev/null", filepath.Join(tree, "etc/systemd/system/serial-getty@ttyS0.service")),
		os.Symlink("/dev/null", filepath.Join(tree, "etc/systemd/system/serial-getty@ttyS1.service")),
		etc("fstab", "/dev/vda / ext4 defaults 0 1\n"),
		etc("hostname", "bench\n"),
		etc("machine-id", "uninitialized\n"),
		os.MkdirAll(filepath.Join(tree, "var/log/journal"), 0o755),
	)
	if err != nil {
		return base{}, err
	}
	for name, to := range map[string]string{"vmlinuz-*": "vmlinuz", "initrd.img-*": "initrd.img"} {
		found, err := filepath.Glob(filepath.Join(tree, "boot", name))
		if err != nil || len(found) != 1 {
			return base{}, fmt.Errorf("make the base: %d files boot/%s", len(found), name)
		}
		if err := os.Rename(found[0], filepath.Join(tmp, to)); err != nil {
			return base{}, err
		}
	}
	if err := makeDisk(ctx, filepath.Join(tmp, "disk.img"), tree, 2<<30); err != nil {
		return base{}, err
	}
	if err := os.RemoveAll(tree); err != nil {
		return base{}, err
	}
	return b, os.Rename(tmp, dir)
}

// sources are where the packages come from: the mirror that apt uses here for Debian, or else mmdebstrap's own choice.
func sources(ctx context.Context, r recipe) []string {
	out, _ := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian",
		"Label: Debian").Output()
	mirror, _, _ := strings.Cut(string(out), "\n")
	if mirror == "" {
		if r.also == "" {
			return nil
		}
		mirror = "http://deb.debian.org/debian"
	}
	lines := []string{"deb " + mirror + " " + r.suite + " main"}
	if r.also != "" {
		lines = append(lines, "deb "+mirror+" "+r.also+" main")
	}
	return lines
}

// makeDisk makes a disk of that many bytes with the files of tree.
func makeDisk(ctx context.Context, disk, tree string, size int64) error {
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	return command(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", tree, disk)
}
