// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The published package, as specs/SOURCES.md names it.
const (
	npmPackage   = "@octokit/openapi@23.0.2"
	npmTarball   = "octokit-openapi-23.0.2.tgz"
	npmIntegrity = "sha512-pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="
	npmFile      = "package/generated/api.github.com.json"
	maxFile      = 32 << 20 // bytes of one file of the package
)

// cutDigest is the SHA-256 of the cut that both sources give.
const cutDigest = "3c73d1d0f9634783951d6d047965d175d8b2c2068f25752d497c2233140e4043"

// discordDigest is the SHA-256 of the cut of Discord's description that lies beside the repository; no registry has one.
const discordDigest = "b142f2fa1ae840aa118ef812d65104d3a7d8f72e7683a8428b6759307e9de6a8"

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	specs := flags.String("specs", "specs", "the repository's folder `DIR` of descriptions")
	shared := flags.String("shared", "../shared/specs", "`DIR` that may already hold the description")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return errors.Join(fetchGitHub(ctx, *specs, *shared, out), copyDiscord(*specs, *shared, out))
}

// copyDiscord takes Discord's description over as it is.
func copyDiscord(specs, shared string, out io.Writer) error {
	from, target := filepath.Join(shared, "discord.openapi.json"), filepath.Join(specs, "vendor-descriptions", "discord.openapi.json")
	if have, err := os.ReadFile(target); err == nil && digest(have) == discordDigest {
		fmt.Fprintln(out, "specs: the Discord description is there:", target)
		return nil
	}
	b, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "specs: vendor-description ground skipped: no source of Discord's description:", from, "is absent")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the description of Discord: %w", err)
	}
	if got := digest(b); got != discordDigest {
		return fmt.Errorf("the description at %s has digest %s, want %s: nothing written", from, got, discordDigest)
	}
	return put(target, b, from, out)
}

// put writes a description, whole or not at all.
func put(target string, b []byte, from string, out io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make the folder of descriptions: %w", err)
	}
	if err := os.WriteFile(target+".new", b, 0o644); err != nil {
		return fmt.Errorf("write the description: %w", err)
	}
	if err := os.Rename(target+".new", target); err != nil {
		return fmt.Errorf("put the description in place: %w", err)
	}
	fmt.Fprintf(out, "specs: wrote %s from %s\n", target, from)
	return nil
}

// fetchGitHub cuts GitHub's description to what is used.
func fetchGitHub(ctx context.Context, specs, shared string, out io.Writer) error {
	target := filepath.Join(specs, "vendor-descriptions", "github.openapi.json")
	if have, err := os.ReadFile(target); err == nil && digest(have) == cutDigest {
		fmt.Fprintln(out, "specs: the GitHub description is there:", target)
		return nil
	}
	rows, err := os.ReadFile(filepath.Join(specs, "methods.tsv"))
	if err != nil {
		return fmt.Errorf("read the table of methods: %w", err)
	}
	want, err := operations(rows)
	if err != nil {
		return err
	}
	whole, from, err := source(ctx, shared)
	if errors.Is(err, errNoSource) {
		fmt.Fprintln(out, "specs: vendor-description ground skipped:", err)
		return nil
	}
	if err != nil {
		return err
	}
	small, err := cut(whole, want)
	if err != nil {
		return fmt.Errorf("cut the description from %s: %w", from, err)
	}
	if got := digest(small); got != cutDigest {
		return fmt.Errorf("the description from %s gives digest %s, want %s: nothing written", from, got, cutDigest)
	}
	return put(target, small, from, out)
}

var errNoSource = errors.New("no source of GitHub's description")

// source returns GitHub's description and says where it is from.
func source(ctx context.Context, shared string) (whole []byte, from string, err error) {
	path := filepath.Join(shared, "github.openapi.json")
	whole, err = os.ReadFile(path)
	if err == nil {
		return whole, path, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read the shared description: %w", err)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s is absent and there is no npm client", errNoSource, path)
	}
	dir, err := os.MkdirTemp("", "doorward-specs-")
	if err != nil {
		return nil, "", fmt.Errorf("make a folder for the package: %w", err)
	}
	defer os.RemoveAll(dir)
	pack := exec.CommandContext(ctx, npm, "pack", npmPackage, "--silent", "--ignore-scripts")
	pack.Dir = dir
	if text, err := pack.CombinedOutput(); err != nil {
		last := strings.TrimSpace(string(text))
		return nil, "", fmt.Errorf("%w: %s is absent and npm pack %s failed: %w: %s", errNoSource, path, npmPackage,
			err, last)
	}
	tarball, err := os.ReadFile(filepath.Join(dir, npmTarball))
	if err != nil {
		return nil, "", fmt.Errorf("read the package: %w", err)
	}
	whole, err = fromPackage(tarball)
	return whole, npmPackage, err
}

// fromPackage checks the package's integrity and returns the description in it.
func fromPackage(tarball []byte) ([]byte, error) {
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != npmIntegrity {
		return nil, fmt.Errorf("package %s has integrity %s, want %s", npmPackage, got, npmIntegrity)
	}
	plain, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return nil, fmt.Errorf("open the package: %w", err)
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s in the package: %w", npmFile, err)
		}
		if header.Name != npmFile {
			continue
		}
		if header.Size > maxFile {
			return nil, fmt.Errorf("%s has %d bytes, at most %d expected", npmFile, header.Size, maxFile)
		}
		return io.ReadAll(files)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
