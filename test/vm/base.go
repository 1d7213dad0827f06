// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// packages are what the base has besides Debian's required ones.
var packages = []string{
	"systemd", "systemd-sysv", "systemd-container", "dbus", "udev", "kmod", "iproute2", "procps", "ca-certificates",
	"linux-image-cloud-amd64", "initramfs-tools",
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

// makeBase makes a base, or takes the one that was made from the same recipe. Debian's suite names it; empty is Debian 13.
func makeBase(ctx context.Context, cache, suite string) (base, error) {
	if suite == "" {
		suite = "trixie"
	}
	sum := sha256.Sum256([]byte(suite + strings.Join(packages, " ") + starter))
	dir := filepath.Join(cache, suite+"-"+hex.EncodeToString(sum[:6]))
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
	if err := command(ctx, "mmdebstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, tree); err != nil {
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
