// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) recoveryCmd() *cobra.Command {
	var revoke bool
	c := &cobra.Command{
		Use: "recovery APPROVER", Short: "make a recovery code for somebody whose device may be lost, or take it back (root)",
		Long: `Prints a code, once: it is kept nowhere. Whoever types it on the page makes a new passkey there, in the place of
APPROVER's, which does not count any more then, and the others are told. Print it, and keep it where you keep
what is worth as much. It holds until it is used, taken back with --revoke, or another is made; what ends the
approver ends it.

The link beside it is for a browser that has no card key, and no secret.`,
		Example: "  sudo doorward approver recovery ada\n  sudo doorward approver recovery ada --revoke",
		RunE:    func(_ *cobra.Command, args []string) error { return a.recoverApprover(args[0], revoke) },
	}
	c.Flags().BoolVar(&revoke, "revoke", false, "take the code back")
	return c
}

func (a *app) recoverApprover(name string, revoke bool) error {
	r, err := askApprovers(wire.ApproversReq{Op: "recovery", Name: name, Revoke: revoke})
	switch {
	case err != nil:
		return err
	case a.json && revoke:
		return a.value(map[string]any{"name": name, "revoked": true})
	case a.json:
		return a.value(map[string]any{"name": name, "code": r.Code, "link": r.Link, "card_key": fingerprint(r.Key)})
	case revoke:
		a.line("the recovery code of %s does not count any more", name)
		return nil
	}
	a.line("recovery code of %s: %s", name, r.Code)
	a.line("card key: %s", fingerprint(r.Key))
	a.line("%s", r.Link)
	if err := a.showCode(r.Link); err != nil {
		return err
	}
	a.note("print all of it, it is not shown again: who types the code on the page takes the place of " + name +
		"; the link is for a browser that has no card key, and lets nobody in")
	return nil
}

// lone is the one who alone may decide, and of whom nothing is kept for when the passkey is lost.
func lone(all []wire.Approver) (name string, ok bool) {
	for _, p := range all {
		if !p.Viewer && p.Invited == 0 {
			name, ok = p.Name, p.Recovery == 0
		}
	}
	return name, ok && deciders(all) == 1
}

// offerSpare ends setup by what is left when a phone is lost.
func (a *app) offerSpare(ctx context.Context) error {
	r, err := askApprovers(wire.ApproversReq{Op: "list"})
	if err != nil {
		return err
	}
	name, ok := lone(r.Approvers)
	if !ok {
		return nil
	}
	if !a.terminal() {
		a.note(spareNext(name))
		return nil
	}
	say := func(question string) (string, error) {
		_, _ = a.err.Write([]byte(question))
		line, err := readLine(a.in, 64)
		if err != nil {
			return "", wire.Refuse(wire.CodeUsage, "read the answer: "+err.Error(), "")
		}
		return strings.TrimSpace(string(line)), nil
	}
	answer, err := say("A phone can be lost. Type device for a second passkey, code for a recovery code to print, or nothing: ")
	switch {
	case err != nil:
		return err
	case answer == "code":
		return a.recoverApprover(name, false)
	case answer != "device":
		a.note(spareNext(name))
		return nil
	}
	second, err := say("A name for it, of a-z and 0-9: ")
	if err != nil {
		return err
	}
	return a.addApprover(ctx, second, false, true)
}

func spareNext(name string) string {
	return "a device can be lost: invite a second one, by another name: sudo doorward approver add NAME; or print a recovery code: " +
		"sudo doorward approver recovery " + name
}

// sparesInForce says where a lost device would leave nobody who decides in a browser.
func sparesInForce(dir string, said *answered) []machine.Finding {
	if _, err := approver.Load(dir); err != nil || !said.sentinel {
		return nil // which is said elsewhere
	}
	r, err := askApprovers(wire.ApproversReq{Op: "list"})
	if err != nil {
		return []machine.Finding{machine.Not("approvers", "who may decide in a browser: %s", machine.Detail(err.Error()))}
	}
	return spares(r.Approvers)
}

func spares(all []wire.Approver) []machine.Finding {
	name, ok := lone(all)
	if !ok {
		return nil
	}
	return []machine.Finding{machine.Less("approvers", "sudo doorward approver add NAME, or: sudo doorward approver recovery NAME",
		"the passkey of %s alone decides in a browser, and there is no recovery code", machine.Name(name))}
}
