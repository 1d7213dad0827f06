// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// coverPackage makes of a package one whose daemons say at their end what of them ran. It is for the machine alone: it is
// made on the machine's disk, and `make deb` knows nothing of it.
func coverPackage(ctx context.Context, root, deb, to string) error {
	tree, err := os.MkdirTemp("", "doorward-cover-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := command(ctx, "dpkg-deb", "-R", deb, tree); err != nil {
		return err
	}
	daemons := filepath.Join(tree, "usr/libexec/doorward")
	found, err := os.ReadDir(daemons)
	if err != nil {
		return err
	}
	for _, f := range found {
		if err := build(ctx, root, "build", "-cover", "-coverpkg=./...", "-tags=cover", "-trimpath", "-o", filepath.Join(daemons, f.Name()),
			"./cmd/"+f.Name()); err != nil {
			return err
		}
	}
	return command(ctx, "dpkg-deb", "-Znone", "-b", tree, to)
}

// unpackCover takes what the daemons wrote out of what came back, and returns the folder that it is in.
func unpackCover(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, "cover.tar.gz"))
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("read what of the daemons ran: %w", err)
	}
	to := filepath.Join(dir, "cover")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	return to, files(z, to)
}

// files takes a tar file apart into one folder. The machine ran what we test; a name of its own choosing is not to be a
// path of ours.
func files(from io.Reader, to string) error {
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what came back: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, outSize))
		if err != nil {
			return fmt.Errorf("read what came back: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(h.Name)), b, 0o644); err != nil {
			return err
		}
	}
}

// mergeCover writes what all suites ran of the daemons: coverage.txt for people, by package, and coverage.out for
// `go tool cover`.
func mergeCover(ctx context.Context, root, out string, from []string) error {
	in := "-i=" + strings.Join(from, ",")
	covdata := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "covdata"}, args...)...)
		cmd.Dir = root
		b, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go tool covdata %s: %w\n%s", args[0], err, b)
		}
		return b, nil
	}
	text, err := covdata("percent", in)
	if err != nil {
		return err
	}
	if _, err := covdata("textfmt", in, "-o="+filepath.Join(out, "coverage.out")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "coverage.txt"), text, 0o644)
}
