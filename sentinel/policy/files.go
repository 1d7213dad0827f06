// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

//go:embed default
var defaults embed.FS

// DefaultPolicy and DefaultLimits are the files that the package installs.
func DefaultPolicy() []byte { return mustDefault("policy.toml") }

// DefaultLimits is DefaultPolicy for limits.toml.
func DefaultLimits() []byte { return mustDefault("limits.toml") }

func mustDefault(name string) []byte {
	b, err := defaults.ReadFile("default/" + name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return b
}

// Files are a person's policy as it stands on disk: policy.toml and any .cedar files, by name. They are data; Compile
// makes a Set of them.
type Files map[string][]byte

const maxFiles = 64

// Read takes policy.toml and every .cedar file from a folder. A folder without policy.toml is the default settings.
// Anything else in it but files that begin with a dot is refused: it may be a policy under a wrong name.
func Read(dir fs.FS) (Files, error) {
	list, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("read the policy folder: %w", err)
	}
	out := Files{}
	var faults []error
	for _, e := range list {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."), strings.HasSuffix(name, "~"), name == LimitsFile:
			continue
		case !policyName(name):
			faults = append(faults, misnamed(name))
			continue
		case !e.Type().IsRegular(): // a link could have sentinel read, and quote in an error, what is not the person's
			faults = append(faults, &Problem{File: name, Text: "no regular file"})
			continue
		case len(out) == maxFiles:
			return nil, fmt.Errorf("read the policy folder: more than %d files", maxFiles)
		}
		b, err := readOne(dir, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out[name] = b
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return out, nil
}

// check refuses files that Read would not have taken, for those that came another way.
func (f Files) check() error {
	if len(f) > maxFiles {
		return fmt.Errorf("read the policy: more than %d files", maxFiles)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !policyName(name) {
			faults = append(faults, misnamed(name))
		}
	}
	return errors.Join(faults...)
}

func policyName(name string) bool {
	stem, ok := strings.CutSuffix(name, ".cedar")
	return name == PolicyFile || ok && len(stem) <= 64 && nameOK(stem)
}

func misnamed(name string) error {
	return &Problem{File: fmt.Sprintf("%+q", name), Text: "no policy file: there is " + PolicyFile + " and NAME.cedar" +
		meant(name, []string{PolicyFile})}
}

func readOne(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// Digest names the files: what a person decided on is known by it. It covers names and bytes.
func (f Files) Digest() wire.Digest {
	h := sha256.New()
	h.Write([]byte("doorward policy 1\x00"))
	var n [8]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		put([]byte(name))
		put(f[name])
	}
	return wire.Digest(h.Sum(nil))
}
