// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

func (a *app) approverCmd() *cobra.Command {
	c := &cobra.Command{Use: "approver", Short: "say who may decide with a passkey, in a browser"}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "list who may, and which invitations are open",
		RunE: func(*cobra.Command, []string) error { return a.listApprovers() },
	}, &cobra.Command{
		Use: "add APPROVER", Short: "invite somebody, by a link that holds 15 minutes (root)",
		Long: `Prints a link. Whoever opens it first, within 15 minutes, and registers a passkey there may decide from
then on: give it to nobody but the one it is for. The part behind the # never leaves the browser.
Cards that are open in a browser are to be looked at again then.`,
		Example: "  sudo doorward approver add ada",
		RunE:    func(_ *cobra.Command, args []string) error { return a.addApprover(args[0]) },
	}, &cobra.Command{
		Use: "link", Short: "print a link for a browser that has lost the card key",
		Long: `Prints a link with the card key, by which a browser knows what Doorward answers. It lets nobody in: who opens it
signs in with a passkey as before. The browser shows the key, to be compared with what doorward approver list
prints.`,
		RunE: func(*cobra.Command, []string) error { return a.linkApprover() },
	}, &cobra.Command{
		Use: "remove APPROVER", Short: "end somebody's passkey, sessions and invitation (root)",
		RunE: func(_ *cobra.Command, args []string) error { return a.removeApprover(args[0]) },
	})
	return c
}

func askApprovers(op, name string) (*wire.ApproversResp, error) {
	return ask[wire.ApproversResp](wire.PathApprove, "approvers", &wire.ApproversReq{Op: op, Name: name})
}

func (a *app) listApprovers() error {
	r, err := askApprovers("list", "")
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
	rows := [][]string{{"NAME", "SINCE", "INVITED BY"}}
	for _, p := range r.Approvers {
		since := a.at(p.Made)
		if p.Invited > 0 {
			since = "invited, for " + a.left(p.Invited)
		}
		rows = append(rows, []string{p.Name, since, p.By})
	}
	a.table(rows)
	return nil
}

// fingerprint is the beginning of a card key's SHA-256, as the page shows it.
func fingerprint(key []byte) string {
	sum := wire.Sum(key)
	return fmt.Sprintf("% x", sum[:8])
}

func (a *app) linkApprover() error {
	r, err := askApprovers("link", "")
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"link": r.Link})
	}
	a.line("%s", r.Link)
	return nil
}

func (a *app) addApprover(name string) error {
	r, err := askApprovers("add", name)
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"name": name, "link": r.Link, "until": r.Until})
	}
	a.line("%s", r.Link)
	a.note("whoever opens this first, until " + a.at(r.Until) + ", may approve as " + name + "; it is for nobody else")
	return nil
}

func (a *app) removeApprover(name string) error {
	r, err := askApprovers("remove", name)
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"removed": name, "left": len(r.Approvers)})
	}
	a.line("%s may not approve any more", name)
	if len(r.Approvers) == 0 {
		a.note("nobody may decide with a passkey now; next: sudo doorward approver add NAME")
	}
	return nil
}
