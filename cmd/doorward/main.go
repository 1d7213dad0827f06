// SPDX-License-Identifier: Apache-2.0

// Command doorward is the person's and the admin's command, see package operator.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/doorward/doorward/cli/operator"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/package/connectors"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

func main() {
	os.Exit(operator.Main(os.Args[1:], operator.Parts{VerifyFile: verifyFile, CheckPolicy: checkPolicy,
		Manifest: readManifest, BuiltIn: connectors.Named, Names: connectors.Names, Sites: policy.SetLines}))
}

// verifyFile is ledger.VerifyFile with its report as JSON.
func verifyFile(ctx context.Context, path string, pub ed25519.PublicKey, key ed25519.PrivateKey,
	file []byte) ([]byte, string, error) {
	r, err := ledger.VerifyFile(ctx, path, pub, key, file)
	if err != nil {
		return nil, "", err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	if f, bad := r.First(); bad {
		return b, f.String(), nil
	}
	return b, "", nil
}

// checkPolicy is policy.Compile for files that nobody is asked to take up.
func checkPolicy(files []wire.PolicyFile, descs []*describe.Connector, limits []byte) (problems, notes []string) {
	given := policy.Files{}
	for _, f := range files {
		given[f.Name] = f.Body
	}
	if len(given) == 0 {
		given[policy.PolicyFile] = policy.DefaultPolicy()
	}
	var ceiling [][]byte
	if limits != nil {
		ceiling = [][]byte{limits}
	}
	set, err := policy.Compile(given, descs, ceiling...)
	if err != nil {
		return faults(err), nil
	}
	for _, p := range set.Check() {
		notes = append(notes, p.Error())
	}
	return nil, notes
}

// faults are the single faults of a joined error.
func faults(err error) []string {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range many.Unwrap() {
		out = append(out, faults(e)...)
	}
	return out
}

// readManifest is manifest.ForIssue, as far as an account is made by it and a person is shown of it.
func readManifest(name string, b []byte) (*operator.Manifest, error) {
	m, err := manifest.ForIssue(b)
	var p *manifest.Problem
	if errors.As(err, &p) {
		return nil, errors.New(p.In(name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := &operator.Manifest{Place: m.Placement, Lines: m.Lines(), Notes: m.Notes()}
	for _, h := range m.Hosts {
		out.Hosts = append(out.Hosts, h.String())
	}
	return out, nil
}
