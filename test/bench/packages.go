// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// packages runs benchmarks that stand beside the code they measure, each round anew, and takes ratios of what they
// print.
func packages(ctx context.Context, t *table, root string) error {
	for _, b := range []struct {
		row, target, pkg, run, note string
		ratio                       func(m map[string]float64) (float64, bool)
	}{
		{"decide", "<= 20", "./sentinel/policy", "^BenchmarkDecide(200|10)$",
			"µs of CPU of one decision that asks, 200 policies of 20 connectors (no ratio)",
			func(m map[string]float64) (float64, bool) {
				v, ok := m["BenchmarkDecide200 cpu-ns/op"]
				return v / 1000, ok
			}},
		{"decide/scale", "report", "./sentinel/policy", "^BenchmarkDecide(200|10)$", "the same with 10 policies",
			func(m map[string]float64) (float64, bool) {
				a, ok := m["BenchmarkDecide200 cpu-ns/op"]
				b, ok2 := m["BenchmarkDecide10 cpu-ns/op"]
				return a / b, ok && ok2
			}},
		{"authd/resolve-ipc", "<= 1.3", "./authd", "^Benchmark(ResolveIPC|PlainIPC)$",
			"a question and an answer of the same sizes over the same code",
			func(m map[string]float64) (float64, bool) {
				a, ok := m["BenchmarkResolveIPC ns/op"]
				b, ok2 := m["BenchmarkPlainIPC ns/op"]
				return a / b, ok && ok2
			}},
		{"audit/64", ">= 5", "./sentinel/ledger", "^BenchmarkAudit64$",
			"records/s of one writer with pwrite and fdatasync",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkAudit64 ratio"]; return v, ok }},
		{"page/first", "<= 2", "./sentinel", "^BenchmarkFirstView$",
			"the same of an empty ledger: a browser's first view, from the page's address to the list, with 5000 calls that wait and 100000 past ones",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkFirstView ratio"]; return v, ok }},
		{"page/first-data", "report", "./sentinel", "^BenchmarkFirstPage$",
			"the same of an empty ledger, whose lists are empty: what sentinel takes for 50 that wait and the 100 newest past ones",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkFirstPage ratio"]; return v, ok }},
		{"bpf/run", "<= 3", "./cellnet", "^BenchmarkGate$", "a program that allows everything",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkGate run"]; return v, ok }},
		{"bpf/scale", "<= 1.5", "./cellnet", "^BenchmarkGate$", "`bpf/run` with one cell, where this has a hundred",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkGate scale"]; return v, ok }},
		{"bpf/connect", "<= 1.25", "./cellnet", "^BenchmarkGate$", "connections in a network without programs",
			func(m map[string]float64) (float64, bool) { v, ok := m["BenchmarkGate connect"]; return v, ok }},
	} {
		if !t.wants(b.row) {
			continue
		}
		binary := filepath.Join(root, "build", "bench-"+filepath.Base(b.pkg)+".test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, b.pkg)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the benchmarks of %s: %w\n%s", b.pkg, err, out)
		}
		ratios, err := quiet(func() (float64, error) {
			cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench="+b.run, "-test.benchtime=1s")
			cmd.Dir = filepath.Join(root, b.pkg)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return 0, fmt.Errorf("%s: %w\n%s", b.row, err, out)
			}
			r, ok := b.ratio(metrics(out))
			if !ok {
				return 0, fmt.Errorf("%s: the benchmark printed no such figure:\n%s", b.row, out)
			}
			return r, nil
		})
		os.Remove(binary)
		if err != nil {
			return err
		}
		t.add(b.row, b.target, b.note, ratios)
	}
	return nil
}

// metrics reads lines of `go test -bench`: name, then value and unit in turn.
func metrics(out []byte) map[string]float64 {
	m := map[string]float64{}
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimSuffix(f[0], "-2")
		if i := strings.LastIndexByte(f[0], '-'); i > 0 {
			name = f[0][:i]
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				m[name+" "+f[i+1]] = v
			}
		}
	}
	return m
}

// pingpong is ipc/call: a warm call of the protocol against two C processes and the same socket.
func pingpong(ctx context.Context, t *table, root string) error {
	if !t.wants("ipc/call") {
		return nil
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.absent("ipc/call", "<= 2.5", "no C compiler")
		return nil
	}
	floor := filepath.Join(root, "build", "pingpong")
	if out, err := exec.CommandContext(ctx, cc, "-O2", "-o", floor, filepath.Join(root, "test/bench/floor/pingpong.c")).CombinedOutput(); err != nil {
		return fmt.Errorf("compile pingpong.c: %w\n%s", err, out)
	}
	bench := filepath.Join(root, "build", "bench-daemon.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", bench, "./internal/daemon")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmark of daemon: %w\n%s", err, out)
	}
	defer os.Remove(bench)
	ratios, err := quiet(func() (float64, error) {
		out, err := exec.CommandContext(ctx, floor, "30000").Output()
		if err != nil {
			return 0, err
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			return 0, err
		}
		cmd := exec.CommandContext(ctx, bench, "-test.run=^$", "-test.bench=^BenchmarkCall$", "-test.benchtime=30000x")
		cmd.Dir = filepath.Join(root, "internal/daemon")
		if out, err = cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("ipc/call: %w\n%s", err, out)
		}
		ns, ok := metrics(out)["BenchmarkCall ns/op"]
		if !ok {
			return 0, fmt.Errorf("ipc/call: no figure in\n%s", out)
		}
		return ns / f, nil
	})
	if err != nil {
		return err
	}
	t.add("ipc/call", "<= 2.5", "two C processes, 64 bytes each way", ratios)
	return nil
}
