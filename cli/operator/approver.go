// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

func (a *app) approverCmd() *cobra.Command {
	c := &cobra.Command{Use: "approver", Short: "say who may decide with a passkey, in a browser"}
	var viewer, wait bool
	add := &cobra.Command{
		Use: "add APPROVER", Short: "invite somebody, by a link that holds 15 minutes (root)",
		Long: `Prints a link, at a terminal as a QR code too. Whoever opens it first, within 15 minutes, and registers a
passkey there may decide from then on: give it to nobody but the one it is for. The part behind the #
never leaves the browser. Cards that are open in a browser are to be looked at again then. --wait
waits until the passkey is registered, or the link is over.

A viewer signs in, sees and is told, and does nothing: neither decides nor stops.`,
		Example: "  sudo doorward approver add ada\n  sudo doorward approver add bob --viewer",
		RunE:    func(c *cobra.Command, args []string) error { return a.addApprover(c.Context(), args[0], viewer, wait) },
	}
	add.Flags().BoolVar(&viewer, "viewer", false, "who may see, and not decide")
	add.Flags().BoolVar(&wait, "wait", false, "wait until the passkey is registered")
	c.AddCommand(a.approverSetupCmd(), add, a.recoveryCmd(), &cobra.Command{
		Use: "list", Short: "list who may, who has a recovery code, and which invitations are open",
		RunE: func(*cobra.Command, []string) error { return a.listApprovers() },
	}, &cobra.Command{
		Use: "link", Short: "print a link for a browser that has lost the card key",
		Long: `Prints a link with the card key, by which a browser knows what Doorward answers. It lets nobody in: who opens it
signs in with a passkey as before. The browser shows the key, to be compared with what doorward approver list
prints.`,
		RunE: func(*cobra.Command, []string) error { return a.linkApprover() },
	}, &cobra.Command{
		Use: "remove APPROVER", Short: "end somebody's passkey, sessions, recovery code and invitation (root)",
		Long: `At once the passkey counts no more, no session and no browser's notices of it are left, and its invitation
is void: for a phone that is lost, and for somebody who leaves. Names are free again, so that the same
person may be invited anew. What they have allowed ahead stays allowed: doorward grants, doorward revoke.`,
		Example: "  sudo doorward approver remove ada",
		RunE:    func(_ *cobra.Command, args []string) error { return a.removeApprover(args[0]) },
	})
	return c
}

func askApprovers(q wire.ApproversReq) (*wire.ApproversResp, error) {
	return ask[wire.ApproversResp](wire.PathApprove, "approvers", &q)
}

func (a *app) listApprovers() error {
	r, err := askApprovers(wire.ApproversReq{Op: "list"})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"items": notNil(r.Approvers), "card_key": fingerprint(r.Key)})
	}
	defer a.note("card key: " + fingerprint(r.Key) + "; the page shows the same, in a browser that has the right one")
	if len(r.Approvers) == 0 {
		a.line("no approvers; invite one with: sudo doorward approver add NAME")
		return nil
	}
	rows := [][]string{{"NAME", "ROLE", "SINCE", "INVITED BY", "RECOVERY CODE"}}
	for _, p := range r.Approvers {
		since := a.at(p.Made)
		if p.Invited > 0 {
			since = "invited, for " + a.left(p.Invited)
		}
		code := "none"
		if p.Recovery > 0 {
			code = "since " + a.at(p.Recovery)
		}
		rows = append(rows, []string{p.Name, role(p.Viewer), since, p.By, code})
	}
	a.table(rows)
	if name, ok := lone(r.Approvers); ok {
		a.note("one passkey alone may decide, and " + spareNext(name))
	}
	return nil
}

// deciders counts who may decide, without viewers and open invitations.
func deciders(all []wire.Approver) (n int) {
	for _, p := range all {
		if !p.Viewer && p.Invited == 0 {
			n++
		}
	}
	return n
}

// fingerprint is the beginning of a card key's SHA-256, as the page shows it.
func fingerprint(key []byte) string {
	sum := wire.Sum(key)
	return fmt.Sprintf("% x", sum[:8])
}

func role(viewer bool) string {
	if viewer {
		return "viewer"
	}
	return "approver"
}

func (a *app) linkApprover() error {
	r, err := askApprovers(wire.ApproversReq{Op: "link"})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"link": r.Link})
	}
	a.line("%s", r.Link)
	return nil
}

func (a *app) addApprover(ctx context.Context, name string, viewer, wait bool) error {
	r, err := askApprovers(wire.ApproversReq{Op: "add", Name: name, Viewer: viewer})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"name": name, "link": r.Link, "until": r.Until})
	}
	a.line("%s", r.Link)
	if err := a.showCode(r.Link); err != nil {
		return err
	}
	may := "approve"
	if viewer {
		may = "look"
	}
	a.note("whoever opens this first, until " + a.at(r.Until) + ", may " + may + " as " + name + "; it is for nobody else")
	if !wait {
		return nil
	}
	return a.awaitPasskey(ctx, name, r.Until)
}

func (a *app) removeApprover(name string) error {
	r, err := askApprovers(wire.ApproversReq{Op: "remove", Name: name})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"removed": name, "left": len(r.Approvers)})
	}
	a.line("%s may not approve any more", name)
	if deciders(r.Approvers) == 0 {
		a.note("nobody may decide with a passkey now; next: sudo doorward approver add NAME")
	}
	return nil
}
