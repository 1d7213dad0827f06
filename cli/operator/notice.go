// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

// noticeFlags are what notice add takes.
type noticeFlags struct {
	ca, detail string
	permit     []string
	after      int
	prompt     bool
	from       source
}

func (a *app) noticeCmd() *cobra.Command {
	c := &cobra.Command{Use: "notice", Short: "say where people are told that something waits"}
	c.AddCommand(a.noticeAddCmd(), &cobra.Command{
		Use: "list", Short: "list where, in the order in which it is told",
		RunE: func(*cobra.Command, []string) error { return a.listNotices() },
	}, &cobra.Command{
		Use: "remove CHANNEL", Short: "end a channel, or by its id that a browser is told (root)",
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := askNotices(&wire.NoticesReq{Op: "remove", Name: args[0]}); err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"removed": args[0]})
			}
			a.line("%s is told nothing any more", args[0])
			return nil
		},
	}, &cobra.Command{
		Use: "test CHANNEL", Short: "send a notice there now, and say what was answered (root)",
		RunE: func(_ *cobra.Command, args []string) error { return a.testNotice(args[0]) },
	})
	return c
}

func (a *app) noticeAddCmd() *cobra.Command {
	var f noticeFlags
	c := &cobra.Command{
		Use: "add KIND CHANNEL ADDRESS", Short: "tell people at one more place (root)",
		Long: `KIND is ntfy, with the address https://HOST/TOPIC; webhook, with the address that is to get signed
JSON; or pushservice, with https://HOST/, for browsers whose push service is none of the usual ones.
Browsers themselves are added on the page, by whoever is signed in there, and are told first.

The first channel is told at once, each further one when nobody has looked for ten minutes more. A
notice says what asks, never the text of it, and decides nothing; --detail none says only that
something waits.

--ask-secret asks for an ntfy server's token, or for a webhook's secret that exists already; it can
come from stdin (--secret-stdin) or a descriptor (--secret-fd N) too, and is kept sealed. Without one
a webhook's secret is made, and shown once. On an ntfy server that asks nobody for a token the topic
is all that keeps others from reading along: choose one that nobody guesses.

A server in your own network needs https too. --permit names its address and port, since by itself
nothing that is not public is reached, and --ca who signed its certificate, where no public authority
did. docs/protocol.md says what a webhook is sent, and how its receiver verifies it.`,
		Example: `  sudo doorward notice add ntfy phone https://ntfy.example.org/doorward --ask-secret
  sudo doorward notice add ntfy home https://ntfy.home.example/doorward --permit 192.168.1.5:443 --ca /etc/doorward/home-ca.pem
  sudo doorward notice add webhook pager https://pager.example.org/in --after 30`,
		RunE: func(_ *cobra.Command, args []string) error { return a.addNotice(args[0], args[1], args[2], &f) },
	}
	fl := c.Flags()
	fl.IntVar(&f.after, "after", -1, "minutes that nobody has looked before it is told (default: by its place)")
	fl.StringVar(&f.detail, "detail", "title", "title: what asks; none: only that something waits")
	fl.StringVar(&f.ca, "ca", "", "file of PEM certificates that prove a self-hosted server")
	fl.StringArrayVar(&f.permit, "permit", nil, "IP:PORT that may be reached though it is not public")
	fl.BoolVar(&f.prompt, "ask-secret", false, "ask for its token or secret")
	f.from.flags(c)
	return c
}

func askNotices(req *wire.NoticesReq) (*wire.NoticesResp, error) {
	return ask[wire.NoticesResp](wire.PathApprove, "notices", req)
}

func (a *app) addNotice(kind, name, address string, f *noticeFlags) error {
	c := &wire.NoticeChannel{Name: name, Kind: kind, URL: address, Permit: f.permit, Detail: f.detail, After: -1}
	if f.after != -1 {
		c.After = int64(f.after) * int64(time.Minute/time.Second)
	}
	for _, p := range f.permit {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return wire.Refuse(wire.CodeBadArgument, "--permit "+quote(p)+": no IP:PORT", "write it as 10.0.0.5:443")
		}
	}
	if f.ca != "" {
		var err error
		if c.CA, err = certificates(f.ca); err != nil {
			return err
		}
	}
	req := &wire.NoticesReq{Op: "add", Name: name, Channel: c}
	if f.prompt || f.from.stdin || f.from.fd >= 0 {
		var err error
		if req.Secret, err = a.secret(&f.from, "token or secret of "+name); err != nil {
			return err
		}
		defer clear(req.Secret)
	}
	r, err := askNotices(req)
	if err != nil {
		return err
	}
	if a.json {
		out := map[string]any{"added": name}
		if len(r.Secret) > 0 {
			out["secret"] = string(r.Secret)
		}
		return a.value(out)
	}
	if len(r.Secret) > 0 {
		a.line("%s", r.Secret)
		a.note("this is the secret by which the receiver knows our notices, and it is shown once")
	}
	a.note("next: sudo doorward notice test " + name)
	return nil
}

func (a *app) listNotices() error {
	r, err := askNotices(&wire.NoticesReq{Op: "list"})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"browsers": notNil(r.Browsers), "channels": notNil(r.Channels)})
	}
	if len(r.Browsers)+len(r.Channels) == 0 {
		a.line("nobody is told; next: open the page, or sudo doorward notice add --help")
		return nil
	}
	rows := [][]string{{"NAME", "KIND", "WHERE", "TOLD"}}
	for _, b := range r.Browsers {
		rows = append(rows, []string{b.ID, "browser of " + b.Approver, b.Service, "at once"})
	}
	for _, c := range r.Channels {
		told := "at once"
		switch {
		case c.Kind == "pushservice":
			told = "its browsers, at once"
		case c.After > 0:
			told = fmt.Sprintf("when nobody has looked for %d min", c.After/60)
		}
		rows = append(rows, []string{c.Name, c.Kind, c.URL, told})
	}
	a.table(rows)
	return nil
}

func (a *app) testNotice(name string) error {
	r, err := askNotices(&wire.NoticesReq{Op: "test", Name: name})
	if err != nil {
		return err
	}
	if r.Status < 200 || r.Status > 299 {
		return wire.Refuse(wire.CodeVendorRefused, fmt.Sprintf("the server of %s answered %d", name, r.Status),
			"look at its address and token; then remove it, and add it again")
	}
	if a.json {
		return a.value(map[string]any{"status": r.Status})
	}
	a.line("sent; the server answered %d", r.Status)
	return nil
}
