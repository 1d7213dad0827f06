// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// agentPackage is the agent of the first hour, as npm has it: one that is free software, runs without a network as far
// as its --version, and brings its own programs.
const agentPackage = "@openai/codex@0.20.0"

// takeAgent puts into tree what npm installs of the agent, and the node that runs it. The machine has no network, so npm
// does its part here; it is kept in cache.
func takeAgent(ctx context.Context, cache, tree string) error {
	npm, err1 := exec.LookPath("npm")
	node, err2 := exec.LookPath("node")
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: apt-get install -y npm: %w", errSkipped, err)
	}
	dir := filepath.Join(cache, "agent-codex-0.20.0")
	if _, err := os.Stat(dir); err != nil {
		tmp, err := os.MkdirTemp(cache, "agent-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		if err := command(ctx, npm, "install", "--global", "--prefix="+tmp, "--ignore-scripts", "--no-audit", "--no-fund",
			agentPackage); err != nil {
			return fmt.Errorf("%w: %w", errSkipped, err)
		}
		// Of its programs, those for other systems are most of its bytes.
		for _, other := range []string{"*darwin*", "*windows*", "*aarch64*"} {
			files, _ := filepath.Glob(filepath.Join(tmp, "lib/node_modules/@openai/codex/bin", other)) // the patterns are right
			for _, f := range files {
				if err := os.Remove(f); err != nil {
					return err
				}
			}
		}
		if err := os.Chmod(tmp, 0o755); err != nil {
			return err
		}
		if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) { // another run was as quick
			return err
		}
	}
	real, err := filepath.EvalSymlinks(node)
	if err != nil {
		return err
	}
	return errors.Join(command(ctx, "cp", "-a", dir, filepath.Join(tree, "agent")),
		command(ctx, "cp", real, filepath.Join(tree, "node")))
}
