// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const table = "vendor\tmethod\tclass\treach\tverb\tpath_or_operation\n" +
	"github\tthing\tread\tnone\tGET\t/things/{id}\n" +
	"other\tthing\tread\tnone\tGET\t/others\n"

func TestOperationsAreThoseOfTheGitHubRowsAndTheExtras(t *testing.T) {
	want, err := operations([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	if !want["GET /things/{id}"] || want["GET /others"] || len(want) != 1+len(extras) {
		t.Fatalf("operations: %v", want)
	}
	for _, bad := range []string{"", "vendor\tmethod\n", "github\tshort\n"} {
		if _, err := operations([]byte(bad)); err == nil {
			t.Errorf("table %q was accepted", bad)
		}
	}
}

func TestCutKeepsWhatIsReferredToAndNothingElse(t *testing.T) {
	const whole = `{"openapi":"3.0.3","paths":{
		"/things":{"get":{"x-code":1,"parameters":[{"$ref":"#/components/parameters/a"}],"examples":{}}},
		"/gone":{"get":{"parameters":[{"$ref":"#/components/parameters/c"}]}}},
		"components":{"parameters":{"a":{"name":"a","schema":{"$ref":"#/components/schemas/b"}},"c":{"name":"c"}},
		"schemas":{"b":{"properties":{"example":{"type":"string","example":"x"}}}}}}`
	small, err := cut([]byte(whole), map[string]bool{"GET /things": true})
	if err != nil {
		t.Fatal(err)
	}
	got := string(small)
	for _, gone := range []string{"x-code", "examples", `"c"`, "/gone", `"example":"x"`} {
		if strings.Contains(got, gone) {
			t.Errorf("cut still holds %s: %s", gone, got)
		}
	}
	if !strings.Contains(got, `"properties":{"example":{"type":"string"}}`) {
		t.Errorf("cut lost a property that is named like a keyword: %s", got)
	}
	if _, err := cut([]byte(whole), map[string]bool{"GET /absent": true}); err == nil {
		t.Error("an operation that is not described was not missed")
	}
}

func TestAPackageOfOtherBytesIsRefused(t *testing.T) {
	for _, p := range []published{octokit, axe} {
		if b, err := p.open([]byte("not the package")); err == nil || b != nil {
			t.Errorf("%s: got %d bytes, %v", p.name, len(b), err)
		}
	}
}

func TestADescriptionOfOtherBytesIsNotTaken(t *testing.T) {
	specs, shared := t.TempDir(), t.TempDir()
	if err := copyDiscord(specs, shared, io.Discard); err != nil { // there is none: that is said, and no fault
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "discord.openapi.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := copyDiscord(specs, shared, io.Discard); err == nil {
		t.Error("it was taken")
	}
	if files, _ := filepath.Glob(filepath.Join(specs, "*", "*")); len(files) > 0 {
		t.Errorf("%q", files)
	}
}
