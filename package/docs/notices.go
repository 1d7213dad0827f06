// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// own is this module.
const own = "github.com/doorward/doorward"

// notices are the licences of the modules that the programs link, and Go's own, as those ask for.
func notices() ([]byte, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}", "./cmd/...")
	cmd.Stderr = os.Stderr
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go's own licence: %w", err)
	}
	modules := strings.Split(strings.TrimSpace(string(listed)), "\n")
	slices.Sort(modules)
	var b bytes.Buffer
	b.WriteString("Doorward's programs contain parts of these, under the licences that follow each.\n")
	for _, m := range append([]string{"the Go library\t" + strings.TrimSpace(string(root))}, slices.Compact(modules)...) {
		name, dir, ok := strings.Cut(m, "\t")
		if !ok || strings.HasPrefix(name, own+" ") {
			continue
		}
		fmt.Fprintf(&b, "\n\n=== %s\n", name)
		texts, err := licences(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.Write(texts)
	}
	return b.Bytes(), nil
}

// licences are the texts that stand in a module's folder; a module without one is refused.
func licences(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range files {
		upper := strings.ToUpper(f.Name())
		if !f.Type().IsRegular() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"},
			func(s string) bool { return strings.HasPrefix(upper, s) }) || strings.HasSuffix(upper, ".GO") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n--- %s\n\n%s", f.Name(), text)
	}
	if b.Len() == 0 {
		return nil, fmt.Errorf("no licence in %s", dir)
	}
	return b.Bytes(), nil
}
