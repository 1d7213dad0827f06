// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is one line of the table: a ratio over rounds that were run together.
type row struct {
	Row    string  `json:"row"`
	Ratio  float64 `json:"ratio"` // median of the rounds
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Target string  `json:"target"`
	OK     bool    `json:"ok"`
	Note   string  `json:"note,omitempty"` // what it is divided by, or why it is absent
}

type table struct {
	rows []row
	only string
}

func (t *table) wants(name string) bool { return t.only == "" || strings.Contains(name, t.only) }

// add judges rounds of ratios by "<= x", ">= x" or "report".
func (t *table) add(name, target, note string, ratios []float64) {
	slices.Sort(ratios)
	if len(ratios) == 0 {
		t.absent(name, target, "no round was undisturbed")
		return
	}
	r := row{Row: name, Ratio: ratios[len(ratios)/2], Low: ratios[0], High: ratios[len(ratios)-1], Target: target, Note: note}
	var x float64
	switch {
	case strings.HasPrefix(target, "<="):
		fmt.Sscan(target[2:], &x)
		r.OK = r.Ratio <= x
	case strings.HasPrefix(target, ">="):
		fmt.Sscan(target[2:], &x)
		r.OK = r.Ratio >= x
	default:
		r.OK = true
	}
	t.rows = append(t.rows, r)
	fmt.Println(r)
}

// absent is a row that was not measured. It is not ok.
func (t *table) absent(name, target, why string) {
	r := row{Row: name, Target: target, Note: "absent: " + why}
	t.rows = append(t.rows, r)
	fmt.Println(r)
}

func (r row) String() string {
	verdict := "missed"
	switch {
	case strings.HasPrefix(r.Note, "absent"):
		return fmt.Sprintf("| `%s` | – | – | %s | absent | %s |", r.Row, r.Target, strings.TrimPrefix(r.Note, "absent: "))
	case r.Target == "report":
		verdict = "reported"
	case r.OK:
		verdict = "met"
	}
	return fmt.Sprintf("| `%s` | %.2f | %.2f–%.2f | %s | %s | %s |", r.Row, r.Ratio, r.Low, r.High, r.Target, verdict, r.Note)
}

const (
	begin = "<!-- bench: begin -->"
	end   = "<!-- bench: end -->"
)

// save writes build/bench.json and, after a whole run, the table in docs/performance.md.
func (t *table) save(root string) error {
	b, err := json.MarshalIndent(t.rows, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "build", "bench.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	if t.only != "" {
		return nil
	}
	page := filepath.Join(root, "docs", "performance.md")
	doc, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	var s strings.Builder
	s.WriteString(head + begin + "\n\n| row | ratio | range | target | | divided by |\n|---|---|---|---|---|---|\n")
	for _, r := range t.rows {
		s.WriteString(r.String() + "\n")
	}
	s.WriteString("\n" + end + tail)
	return os.WriteFile(page, []byte(s.String()), 0o644)
}

// median of nanoseconds.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func column(rows [][]float64, k int) []float64 {
	out := make([]float64, 0, len(rows))
	for _, r := range rows {
		out = append(out, r[k])
	}
	return out
}
