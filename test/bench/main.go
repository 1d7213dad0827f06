// SPDX-License-Identifier: Apache-2.0

// Command bench measures the rows of docs/performance.md. Every row is a ratio of two things that ran in one round on
// one machine, interleaved; at least seven rounds, of which those are thrown away in which other programs took more
// than a part of the machine. The far end answers 401 unless the real credential came, and anything but the expected
// exit code ends the run, so that no row can pass without doing the work.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/doorward/doorward/test/world"
)

const rounds = 9

// noise is the share of the machine that others may take in a round that counts. More than the default makes figures
// that mean nothing; it is for work on the benchmarks themselves.
var noise = flag.Float64("noise", 0.15, "share of the machine that others may take in a round that counts")

var verbose = flag.Bool("v", false, "print what the rows that start a command measured, round by round")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "rows whose names hold this; docs/performance.md is then left alone")
	nginx := flag.String("nginx", "/usr/sbin/nginx", "path of nginx, a peer")
	tokenizer := flag.String("tokenizer", "", "path of superfly/tokenizer, a peer")
	flag.Parse()
	root, err := world.Root()
	if err != nil {
		return err
	}
	t := &table{only: *only}
	inside, code, err := world.Enter()
	if err != nil {
		return fmt.Errorf("make a ground of its own: %w (it needs root, and a kernel with cgroup v2)", err)
	}
	if !inside {
		os.Exit(code)
	}
	fmt.Println("| row | ratio | range | target | | divided by |\n|---|---|---|---|---|---|")
	ctx := context.Background()
	for _, part := range []func() error{
		func() error { return packages(ctx, t, root) },
		func() error { return pingpong(ctx, t, root) },
		func() error { return calls(ctx, t, root, *nginx) },
		func() error { return cellNet(ctx, t, root, *nginx, *tokenizer) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return t.save(root)
}

// busy is the share of the machine's time in a round that went to others than this program's own children, as far as
// /proc/stat tells: measured around a round in which both cores have work of ours, it is a floor.
type busy struct{ total, idle, own float64 }

func stat() busy {
	var s busy
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseFloat(f, 64)
		s.total += n
		if i == 3 || i == 4 {
			s.idle += n
		}
	}
	s.own = ownTicks()
	return s
}

// ownTicks adds up the ticks of every process that this program can see: it runs in a pid namespace of its own, so
// those are its own.
func ownTicks() float64 {
	var sum float64
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 15 {
			continue
		}
		for _, k := range []int{11, 12, 13, 14} { // utime, stime and those of waited-for children
			n, _ := strconv.ParseFloat(f[k], 64)
			sum += n
		}
	}
	return sum
}

// foreign is the share of all time since a that others took.
func (a busy) foreign() float64 {
	b := stat()
	if b.total <= a.total {
		return 0
	}
	used := (b.total - a.total) - (b.idle - a.idle)
	return max(0, used-(b.own-a.own)) / (b.total - a.total)
}

// quiet runs rounds of a measurement until seven to rounds of them were undisturbed, or twice as many were tried.
func quiet(one func() (float64, error)) ([]float64, error) {
	rows, err := quietRows(func() ([]float64, error) {
		v, err := one()
		return []float64{v}, err
	})
	return column(rows, 0), err
}

// quietRows is quiet for several measurements that are taken in one round.
func quietRows(one func() ([]float64, error)) ([][]float64, error) {
	var out [][]float64
	for range 2 * rounds {
		before := stat()
		r, err := one()
		if err != nil {
			return nil, err
		}
		if before.foreign() <= *noise {
			out = append(out, r)
		}
		if len(out) == rounds {
			break
		}
	}
	if len(out) < 7 {
		return nil, nil
	}
	return out, nil
}
