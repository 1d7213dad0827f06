// SPDX-License-Identifier: Apache-2.0

// Command doorward is the person's and the admin's command, see package operator.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"os"

	"github.com/doorward/doorward/cli/operator"
	"github.com/doorward/doorward/sentinel/ledger"
)

func main() { os.Exit(operator.Main(os.Args[1:], operator.Parts{VerifyFile: verifyFile})) }

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
