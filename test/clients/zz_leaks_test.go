// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// TestNoCredentialIsLeft is the last of this package: after all of it, while a credential is in use on the wire, it is in no
// process of the cell, no file that the cell may write, no environment and no log. Control: one that is put there is found, in
// each of these places.
func TestNoCredentialIsLeft(t *testing.T) {
	r := need(t)
	ctx := within(t, 3*time.Minute)
	// Drawn here: a constant would stand in this very program, which supervises the cell.
	secret, planted := "live-"+rand.Text(), "control-"+rand.Text()
	off := r.servers["off"]
	off.take()
	req := wire.AddReq{Name: "calendar", Vendor: "dav", Base: wire.Base{Scheme: "https", Host: "off." + outside, Port: 443},
		Secret: []byte(secret), CA: r.root.pem, Placement: wire.Placement{Kind: "basic", User: "ada"}, Owner: "ada@example.test",
		Permit: []string{off.ip + ":443"}}
	var added wire.AccountsResp
	if err := r.Person(0).Ask(ctx, wire.PathAuthdAdmin, "add", &req, &added); err != nil {
		t.Fatal(err)
	}
	var pending wire.PendingResp
	for deadline := time.Now().Add(time.Minute); len(pending.Cards) == 0; time.Sleep(100 * time.Millisecond) {
		if err := r.ada.Ask(ctx, wire.PathApprove, "pending", &wire.Empty{}, &pending); err != nil || time.Now().After(deadline) {
			t.Fatalf("no card of the account: %v", err)
		}
	}
	for _, card := range pending.Cards {
		if card.Kind != "widening" || !strings.Contains(card.Title, "calendar") {
			continue
		}
		if res, err := r.ada.Doorward(ctx, "", "approve", card.ID, "--yes"); err != nil || res.Code != 0 {
			t.Fatalf("%v, %v", err, res)
		}
	}
	// The server knows no calendar; what matters is that it saw the credential.
	res, err := r.work.Actor().Connector(ctx, "dav", "calendars")
	if err != nil {
		t.Fatal(err)
	}
	if saw := strings.Join(off.take(), ""); !strings.Contains(saw, base64.StdEncoding.EncodeToString([]byte("ada:"+secret))) {
		t.Fatalf("the credential did not come to the server, so nothing is tried: %q; %v", saw, res)
	}

	plant, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/usr/bin/sleep", "300"}, Env: []string{"TOKEN=" + planted}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plant.Kill(); _, _ = plant.Wait() })
	if err := os.WriteFile(filepath.Join(r.scratch(t), "planted"), []byte("a log line with "+planted), 0o644); err != nil {
		t.Fatal(err)
	}
	scan := func(value string) (*world.Found, error) {
		return r.Search(r.work, []byte(value), r.dir, r.State("egress@work"))
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) { // until it has begun
		f, err := scan(planted)
		if err == nil && len(f.Processes.Findings) > 0 && len(f.Files.Findings) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("control: what was put there is not found: %v", err)
		}
	}
	found, err := scan(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found.All() {
		t.Error(f)
	}
}
