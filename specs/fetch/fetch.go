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

// published is one file of a package of npm, as specs/SOURCES.md names it.
type published struct{ name, tarball, integrity, file string }

var (
	octokit = published{"@octokit/openapi@23.0.2", "octokit-openapi-23.0.2.tgz",
		"sha512-pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
		"package/generated/api.github.com.json"}
	axe = published{"axe-core@4.10.3", "axe-core-4.10.3.tgz",
		"sha512-Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg==", "package/axe.min.js"}
)

const maxFile = 32 << 20 // bytes of one file of a package

// axeDigest is the SHA-256 of axe.min.js.
const axeDigest = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"

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
	return errors.Join(fetchGitHub(ctx, *specs, *shared, out), copyDiscord(*specs, *shared, out), fetchAxe(ctx, *specs, out))
}

// fetchAxe takes the program that looks for what keeps people out of a page (test/browser).
func fetchAxe(ctx context.Context, specs string, out io.Writer) error {
	target := filepath.Join(specs, "tools", "axe.min.js")
	if have, err := os.ReadFile(target); err == nil && digest(have) == axeDigest {
		fmt.Fprintln(out, "specs: axe-core is there:", target)
		return nil
	}
	b, err := axe.fetch(ctx)
	if errors.Is(err, errNoSource) {
		fmt.Fprintln(out, "specs: axe-core ground skipped:", err)
		return nil
	}
	if err != nil {
		return err
	}
	if got := digest(b); got != axeDigest {
		return fmt.Errorf("%s of %s has digest %s, want %s: nothing written", axe.file, axe.name, got, axeDigest)
	}
	return put(target, b, axe.name, out)
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

// put writes a file, whole or not at all.
func put(target string, b []byte, from string, out io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", target, err)
	}
	if err := os.WriteFile(target+".new", b, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", target, err)
	}
	if err := os.Rename(target+".new", target); err != nil {
		return fmt.Errorf("put %s in place: %w", target, err)
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

var errNoSource = errors.New("there is no source")

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
	whole, err = octokit.fetch(ctx)
	return whole, octokit.name, err
}

// fetch has the npm client fetch the package and returns the file, or errNoSource where it cannot be had.
func (p *published) fetch(ctx context.Context) ([]byte, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, fmt.Errorf("%w of %s: there is no npm client", errNoSource, p.name)
	}
	dir, err := os.MkdirTemp("", "doorward-specs-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the package: %w", err)
	}
	defer os.RemoveAll(dir)
	pack := exec.CommandContext(ctx, npm, "pack", p.name, "--silent", "--ignore-scripts")
	pack.Dir = dir
	if text, err := pack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w of %s: npm pack: %w: %s", errNoSource, p.name, err, strings.TrimSpace(string(text)))
	}
	tarball, err := os.ReadFile(filepath.Join(dir, p.tarball))
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	return p.open(tarball)
}

// open checks the package's integrity and returns the file in it.
func (p *published) open(tarball []byte) ([]byte, error) {
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != p.integrity {
		return nil, fmt.Errorf("package %s has integrity %s, want %s", p.name, got, p.integrity)
	}
	plain, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return nil, fmt.Errorf("open the package: %w", err)
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s in the package: %w", p.file, err)
		}
		if header.Name != p.file {
			continue
		}
		if header.Size > maxFile {
			return nil, fmt.Errorf("%s has %d bytes, at most %d expected", p.file, header.Size, maxFile)
		}
		return io.ReadAll(files)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
