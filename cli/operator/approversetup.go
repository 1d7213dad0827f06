// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/cli/origin"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/wire"
)

// lookAgain is how often it is asked whether an invitation was taken.
const lookAgain = 2 * time.Second

// placeFlags are the answers that root gives ahead.
type placeFlags struct {
	origin.Options
	tunnel, yes bool
	approver    string
}

func (a *app) approverSetupCmd() *cobra.Command {
	f := &placeFlags{}
	c := &cobra.Command{
		Use: "setup", Short: "say where the page is on which people decide, start it, and invite the first (root)",
		Long: `The page is at one host name, either with a certificate that you have for it, or on this machine alone,
to be reached by an SSH tunnel of both ports. It asks, says what it will do, writes
/etc/doorward/approver.toml, starts what serves the page, asks both ports as a browser would, and shows a
link for the first approver, as a QR code too, until a passkey is registered there. It ends by offering a
second passkey, or a recovery code to print, where there is neither.

It listens on 127.0.0.1 unless --listen names another address. Run again it changes what was set up; the
name is the passkeys', so with another one everybody is invited again.

The certificate's files are looked at again whenever somebody connects: whoever renews them has nobody to
tell. Group doorward-tls has to be able to read them. docs/approvals.md has all of it step by step.`,
		Example: `  sudo doorward approver setup
  sudo doorward approver setup --tunnel --approver ada --yes
  sudo doorward approver setup --host ward.example.org --certificate /etc/doorward/tls/cert.pem \
    --key /etc/doorward/tls/key.pem --listen 100.64.0.7`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.agree(c.Flags().Changed); err != nil {
				return err
			}
			if err := errors.Join(a.mayChange(), booted()); err != nil {
				return err
			}
			return a.setUpPlace(c.Context(), f)
		},
	}
	c.Flags().StringVar(&f.Host, "host", "", "`NAME` at which browsers find this machine")
	c.Flags().StringVar(&f.Certificate, "certificate", "", "`FILE` of the certificate and its chain, PEM")
	c.Flags().StringVar(&f.Key, "key", "", "`FILE` of its key, PEM")
	c.Flags().BoolVar(&f.tunnel, "tunnel", false, "no certificate: the host is "+origin.Tunnel+", or what --host names below localhost")
	c.Flags().StringVar(&f.Listen, "listen", "", "`ADDRESS` of this machine on which both ports listen (127.0.0.1)")
	c.Flags().Uint16Var(&f.Page, "page-port", 8440, "`PORT` of the page")
	c.Flags().Uint16Var(&f.API, "api-port", 8441, "`PORT` of what it asks")
	c.Flags().StringVar(&f.approver, "approver", "", "`NAME` to invite")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask whether to do it")
	a.noJSON(c)
	return c
}

// agree refuses flags that do not go together.
func (f *placeFlags) agree(changed func(string) bool) error {
	for _, c := range []struct {
		wrong     bool
		why, next string
	}{
		{f.tunnel && (f.Certificate != "" || f.Key != ""), "--tunnel is without a certificate", "leave one of them out"},
		{!f.tunnel && f.Host != "" && f.Certificate == "" && f.Key == "", "--host without a certificate is for a tunnel",
			"give --certificate and --key, or --tunnel"},
		{f.Host == "" && (f.Certificate != "" || f.Key != ""), "a certificate is for a host", "give --host"},
		{(f.Certificate == "") != (f.Key == ""), "--certificate and --key go together", "give both"},
		{f.Host == "" && !f.tunnel && changed("listen"), "--listen is of a place that the other flags name", "give --host or --tunnel"},
	} {
		if c.wrong {
			return wire.Refuse(wire.CodeUsage, c.why, c.next)
		}
	}
	if f.approver != "" {
		if err := wire.ApproverName(f.approver); err != nil {
			return wire.Refuse(wire.CodeBadArgument, err.Error(), "")
		}
	}
	if f.tunnel && f.Host == "" {
		f.Host = origin.Tunnel
	}
	return nil
}

func placeCalls() origin.Calls {
	return origin.Calls{
		Config: configDir, Units: "/etc/systemd/system", Run: machine.Systemctl, Now: time.Now,
		Dial:     (&net.Dialer{Timeout: soon}).Dial,
		Readable: func(file string) error { return machine.Readable(file, "doorward-page", "doorward-tls") },
		Mine: func(at netip.Addr) bool {
			all, err := net.InterfaceAddrs()
			return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
				p, err := netip.ParsePrefix(a.String())
				return err == nil && p.Addr().Unmap() == at
			})
		},
	}
}

func (a *app) setUpPlace(ctx context.Context, f *placeFlags) error {
	have, err := askApprovers(wire.ApproversReq{Op: "list"}) // without sentinel nobody could be invited
	if err != nil {
		return err
	}
	old, err := approver.Load(configDir)
	if err != nil && !errors.Is(err, approver.ErrNone) {
		a.note("what is set up now is not taken into account: " + err.Error())
	}
	if f.Host == "" {
		if err := a.askPlace(f); err != nil {
			return err
		}
	}
	s, err := origin.Choose(f.Options)
	if err != nil {
		return err
	}
	calls := placeCalls()
	notes, err := s.Check(calls)
	if err != nil {
		return err
	}
	for _, l := range s.Plan(calls, old) {
		a.line("%s", l)
	}
	for _, n := range notes {
		a.note(n)
	}
	if ok, err := a.may(f.yes, "Do this?"); err != nil || !ok {
		return err
	}
	if err := s.Apply(calls); err != nil {
		return err
	}
	if notes, err = s.Answers(calls); err != nil {
		return err
	}
	for _, n := range notes {
		a.note(n)
	}
	a.line("the page answers at %s", s.PageOrigin())
	if s.Certificate == "" {
		a.line("where the browser is, as long as it is to reach it: ssh -N -L %[1]d:127.0.0.1:%[1]d -L %[2]d:127.0.0.1:%[2]d THIS-MACHINE",
			s.Page, s.API)
	}
	if err := a.inviteFirst(ctx, f, have.Approvers); err != nil {
		return err
	}
	return a.offerSpare(ctx)
}

// may asks for a yes where none was given ahead.
func (a *app) may(yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !a.terminal() {
		return false, wire.Refuse(wire.CodeUsage, "no terminal to ask at", "look at what is said above, then the same with --yes")
	}
	ok, err := a.yes(question)
	if err == nil && !ok {
		a.note("nothing was changed")
	}
	return ok, err
}

// askPlace asks for what no flag says.
func (a *app) askPlace(f *placeFlags) error {
	if !a.terminal() {
		return wire.Refuse(wire.CodeUsage, "no terminal to ask at", "give --tunnel, or --host, --certificate and --key")
	}
	for _, q := range []struct {
		question, otherwise string
		to                  *string
		of                  func() bool
	}{
		{"Host name of this machine that you have a certificate for, or nothing for an SSH tunnel:", origin.Tunnel, &f.Host, nil},
		{"File of the certificate and its chain, PEM:", "", &f.Certificate, nil},
		{"File of its key, PEM:", "", &f.Key, nil},
		{"Address of this machine on which browsers come, or nothing for 127.0.0.1 alone:", "", &f.Listen, nil},
	} {
		if q.to != &f.Host && f.Host == origin.Tunnel {
			break
		}
		_, _ = a.err.Write([]byte(q.question + " "))
		line, err := readLine(a.in, 4096)
		if err != nil {
			return wire.Refuse(wire.CodeUsage, "read the answer: "+err.Error(), "")
		}
		if *q.to = strings.TrimSpace(string(line)); *q.to == "" {
			*q.to = q.otherwise
		}
	}
	return nil
}

// inviteFirst invites who was named, or where nobody is there yet whoever root names, and waits for the passkey.
func (a *app) inviteFirst(ctx context.Context, f *placeFlags, have []wire.Approver) error {
	name := f.approver
	enrolled := deciders(have) > 0
	if name == "" && enrolled {
		a.line("who may decide: doorward approver list; to invite somebody else: sudo doorward approver add NAME")
		return nil
	}
	if name == "" && a.terminal() {
		_, _ = a.err.Write([]byte("Who is to decide? A name of a-z and 0-9 [" + orNobody(sudoer()) + "]: "))
		line, err := readLine(a.in, 64)
		if err != nil {
			return wire.Refuse(wire.CodeUsage, "read the answer: "+err.Error(), "")
		}
		if name = strings.TrimSpace(string(line)); name == "" {
			name = sudoer()
		}
	}
	if name == "" {
		a.line("nobody may decide there yet: sudo doorward approver add NAME")
		return nil
	}
	return a.addApprover(ctx, name, false, a.terminal())
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// showCode shows a link as a QR code where a terminal has room for it.
func (a *app) showCode(link string) error {
	out, ok := a.out.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	lines, width, err := origin.Code(link)
	if err != nil {
		return err
	}
	if have, _, err := term.GetSize(int(out.Fd())); err == nil && have < width {
		a.note(fmt.Sprintf("for a QR code of it this terminal has to have %d columns, and has %d", width, have))
		return nil
	}
	for _, l := range lines {
		fmt.Fprintln(a.out, l)
	}
	a.line("in a window of %d lines a phone's camera takes it whole", len(lines)+3)
	return nil
}

// awaitPasskey waits until an invitation is taken, or over. That it was taken shows that a browser reached both ports.
func (a *app) awaitPasskey(ctx context.Context, name string, until int64) error {
	a.line("waiting for the passkey of %s; Ctrl-C leaves the invitation open", name)
	for {
		r, err := askApprovers(wire.ApproversReq{Op: "list"})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.Approvers, func(p wire.Approver) bool { return p.Name == name })
		switch {
		case i >= 0 && r.Approvers[i].Made > 0 && r.Approvers[i].Invited == 0:
			may := "decide"
			if r.Approvers[i].Viewer {
				may = "look"
			}
			a.line("%s has registered a passkey: the page is reached, and %s may %s there", name, name, may)
			return nil
		case i < 0 || time.Now().Unix() >= until:
			return wire.Refuse(wire.CodeExpired, "nobody registered a passkey in time", "see that the host's name leads here from there, "+
				"and that nothing on the way stops either port; then: sudo doorward approver add "+name)
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			a.note("the invitation stays open until then; sudo doorward approver list says whether it was taken")
			return nil
		}
	}
}
