// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/wire"
)

// ErrNoAnswer is wrapped by Ask where the other end gave no answer of the protocol: the socket could not be reached,
// or the connection was ended.
var ErrNoAnswer = errors.New("no answer")

// asker builds the program that asks, once a world.
func (w *World) asker() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := w.path("test-bin", "ask")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return BuildTest("./test/world/ask", filepath.Dir(path))
}

// Ask has a process of the actor send one message and decodes the answer into resp. A refusal is a *wire.Error.
func (a *Actor) Ask(ctx context.Context, socket, verb string, req, resp any) error {
	program, err := a.w.asker()
	if err != nil {
		return err
	}
	b, err := wire.Marshal(req)
	if err != nil {
		return err
	}
	r, err := a.Run(ctx, program, socket, verb, hex.EncodeToString(b))
	if err != nil {
		return err
	}
	var got struct {
		Body  string      `json:"body"`
		Err   *wire.Error `json:"err"`
		Fault string      `json:"fault"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
		return fmt.Errorf("ask %s as %s: %v: %w", verb, a.Name, r, err)
	}
	switch {
	case got.Fault != "":
		return fmt.Errorf("ask %s as %s: %w: %s", verb, a.Name, ErrNoAnswer, got.Fault)
	case got.Err != nil:
		return got.Err
	}
	body, err := hex.DecodeString(got.Body)
	if err != nil {
		return err
	}
	return wire.Unmarshal(body, resp)
}
