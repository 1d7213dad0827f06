// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

// customVendor is the vendor of accounts that are for no worker.
const customVendor = "custom"

// maxManifest is the longest manifest in bytes.
const maxManifest = 64 << 10

func (a *app) surrogateCmd() *cobra.Command {
	c := &cobra.Command{Use: "surrogate", Short: "let a cell's own programs use a credential that they never hold"}
	var cell string
	revoke := &cobra.Command{
		Use: "revoke NAME", Short: "end the surrogates of a cell, and the traffic under them",
		RunE: func(_ *cobra.Command, args []string) error {
			if cell == "" {
				return wire.Refuse(wire.CodeUsage, "revoke takes the cell that has it", "add --cell CELL; doorward surrogate list")
			}
			return a.revokeSurrogate(args[0], cell)
		},
	}
	revoke.Flags().StringVar(&cell, "cell", "", "the cell that has it")
	c.AddCommand(a.addSurrogateCmd(), a.checkManifestCmd(), a.printManifestCmd(), &cobra.Command{
		Use: "list", Short: "list what was issued, to which cell and for which hosts",
		RunE: func(*cobra.Command, []string) error { return a.listSurrogates() },
	}, revoke)
	return c
}

// surrogateFlags are what surrogate add takes.
type surrogateFlags struct {
	cell, manifest, until, user, ca string
	permit                          []string
	yes                             bool
	from                            source
}

func (a *app) addSurrogateCmd() *cobra.Command {
	var f surrogateFlags
	c := &cobra.Command{
		Use: "add NAME", Short: "issue surrogates of a credential into a cell, for the hosts of a manifest",
		Long: `Asks for the credential without showing it and gives it to authd, which alone keeps it, as the account
NAME; where that account is there already, for the same hosts, its credential is used and none is
asked for. Then it asks that the cell may have surrogates of it. Once that is approved, the agent gets
one by connector surrogate NAME. It is worth something in that cell only, at the hosts of the manifest,
in the one place that the manifest names, and for the routes that it lists.

The credential is never an argument. It comes from the prompt, from stdin (--secret-stdin) or from a
descriptor (--secret-fd N).

doorward surrogate manifest lists the manifests that came with Doorward and prints them, to write one's
own by; doorward surrogate check FILE says what one would allow.`,
		Example: "  doorward surrogate add bot --cell work --manifest discord --until 30d",
		RunE:    func(_ *cobra.Command, args []string) error { return a.addSurrogate(args[0], &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.cell, "cell", "", "the cell that is to have it")
	fl.StringVar(&f.manifest, "manifest", "", "file of the manifest, or the name of one that came with Doorward")
	fl.StringVar(&f.until, "until", "", "how long it may be used, such as 30d or 12h (default: until it is revoked)")
	fl.StringVar(&f.user, "user", "", "user name, where the credential is a password beside one")
	fl.StringVar(&f.ca, "ca", "", "file of PEM certificates that prove a self-hosted server")
	fl.StringArrayVar(&f.permit, "permit", nil, "IP:PORT that may be reached though it is not public")
	fl.BoolVar(&f.yes, "yes", false, "decide on it at once, without asking")
	f.from.flags(c)
	return c
}

// manifest reads the manifest that a flag names: one that came with Doorward, or a file.
func (a *app) manifest(name string) ([]byte, error) {
	if name == "" {
		return nil, wire.Refuse(wire.CodeUsage, "surrogate add takes a manifest, which says where the credential may go",
			"add --manifest FILE"+a.builtIns()+"; doorward surrogate manifest prints those")
	}
	if a.BuiltIn != nil {
		if b, ok := a.BuiltIn(name); ok {
			return b, nil
		}
	}
	b, err := readFile(name, maxManifest)
	if err != nil && !strings.ContainsAny(name, "./") {
		return nil, wire.Refuse(wire.CodeNotFound, "no manifest "+quote(name), "name a file"+a.builtIns())
	}
	return b, err
}

func (a *app) builtIns() string {
	if a.Names == nil {
		return ""
	}
	return ", or one of these: " + strings.Join(a.Names(), ", ")
}

// surrogateReq is the account that a manifest needs but for its secret, with the manifest; what cannot be is refused.
func (a *app) surrogateReq(name string, f *surrogateFlags) (*wire.AddReq, []byte, error) {
	if f.cell == "" {
		return nil, nil, wire.Refuse(wire.CodeUsage, "surrogate add takes the cell that is to have it", "add --cell CELL")
	}
	text, err := a.manifest(f.manifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := a.readManifest(f.manifest, text)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range m.Notes {
		a.note("note: " + n)
	}
	place := m.Place
	req := &wire.AddReq{Name: name, Vendor: customVendor, Placement: place, Permit: f.permit}
	if err := setHosts(req, m.Hosts); err != nil {
		return nil, nil, err
	}
	for _, p := range f.permit {
		if _, err := netip.ParseAddrPort(p); err != nil {
			return nil, nil, wire.Refuse(wire.CodeBadArgument, "--permit "+quote(p)+": no IP:PORT", "write it as 10.0.0.5:443")
		}
	}
	if f.ca != "" {
		if req.CA, err = certificates(f.ca); err != nil {
			return nil, nil, err
		}
	}
	switch basic := place.Kind == "basic"; {
	case strings.Contains(f.user, ":"):
		return nil, nil, notAnArgument("--user")
	case f.user != "" && (!basic || place.User != "" && place.User != f.user):
		return nil, nil, wire.Refuse(wire.CodeUsage, "by this manifest the user name is no choice", "leave --user out")
	case f.user != "":
		req.Placement.User = f.user
	}
	return req, text, nil
}

// setHosts writes a manifest's hosts as an account has them.
func setHosts(req *wire.AddReq, hosts []string) error {
	if len(hosts) > 0 {
		host, port, err := net.SplitHostPort(hosts[0])
		n, perr := strconv.Atoi(port)
		if err == nil && perr == nil && !strings.HasPrefix(host, "*") {
			req.Base, req.Also = wire.Base{Scheme: "https", Host: host, Port: n}, hosts[1:]
			return nil
		}
	}
	return wire.Refuse(wire.CodeBadArgument, "the manifest's first host is not one host", "begin its hosts with one that is no pattern")
}

// addSurrogate adds the account, unless it is there, and asks for the surrogate. An account that it added and that no surrogate
// came of is removed again: else a credential would lie there that nobody knows of.
func (a *app) addSurrogate(name string, f *surrogateFlags) error {
	issue := &wire.PersonSurrogateReq{Op: "add", Name: name, Cell: f.cell}
	if f.until != "" {
		span, err := days(f.until)
		if err != nil {
			return err
		}
		issue.Until = a.now.Add(span).Unix()
	}
	req, text, err := a.surrogateReq(name, f)
	if err != nil {
		return err
	}
	issue.Manifest = text
	there, err := sameAccount(req, f)
	if err != nil {
		return err
	}
	if there {
		a.note("the account " + name + " is there, and its credential is used; none is asked for")
	} else if err := a.addCustom(req, f, issue); err != nil {
		return err
	}
	resp, err := ask[wire.PersonSurrogateResp](wire.PathApprove, "surrogate", issue)
	if err != nil {
		if !there {
			return a.undoCustom(name, err)
		}
		return err
	}
	return a.offerSurrogate(name, f, there, resp.Widening)
}

// sameAccount says whether the account is there already, for the very same hosts; one of that name for others is refused.
func sameAccount(req *wire.AddReq, f *surrogateFlags) (bool, error) {
	all, err := accounts()
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(acc wire.Account) bool { return acc.Name == req.Name })
	nobody := req.Placement.Kind == "basic" && req.Placement.User == ""
	switch {
	case i < 0 && nobody:
		return false, wire.Refuse(wire.CodeUsage, "by this manifest the credential is a password beside a user name", "add --user NAME")
	case i < 0:
		return false, nil
	case nobody:
		req.Placement.User = all[i].Placement.User
	}
	acc := &all[i]
	differs := differs(acc, req, f)
	switch {
	case acc.Vendor != customVendor:
		return false, wire.Refuse(wire.CodeBadArgument, "there is an account "+req.Name+" of "+acc.Vendor+" already", "choose another name")
	case differs != "":
		return false, wire.Refuse(wire.CodeBadArgument, "the account "+req.Name+" is there, and differs by "+differs,
			"choose another name; or doorward account remove "+req.Name+" first, which ends what was issued of it")
	}
	return true, nil
}

// addCustom asks for the secret, once sentinel says that it could be issued, and has authd keep it.
func (a *app) addCustom(req *wire.AddReq, f *surrogateFlags, issue *wire.PersonSurrogateReq) error {
	try := *issue
	try.Op = "check"
	if _, err := ask[wire.PersonSurrogateResp](wire.PathApprove, "surrogate", &try); err != nil {
		return err
	}
	hosts := append([]string{net.JoinHostPort(req.Base.Host, strconv.Itoa(req.Base.Port))}, req.Also...)
	what := "credential for " + strings.Join(hosts, ", ")
	if req.Placement.Kind == "basic" {
		what = "password of " + req.Placement.User + " at " + strings.Join(hosts, ", ")
	}
	var err error
	if req.Secret, err = a.secret(&f.from, what); err != nil {
		return err
	}
	_, err = ask[wire.AccountsResp](wire.PathAuthdAdmin, "add", req)
	clear(req.Secret)
	return err
}

// undoCustom removes an account that was just added, and says why.
func (a *app) undoCustom(name string, why error) error {
	var refused *wire.Error
	if !errors.As(why, &refused) {
		refused = wire.Refuse(wire.CodeInternal, why.Error(), "")
	}
	if _, err := ask[wire.Empty](wire.PathAuthdAdmin, "remove", &wire.AccountRef{Name: name}); err != nil {
		return wire.Refuse(refused.Code, refused.Reason+"; the account "+name+" was added before, and could not be removed again: "+
			err.Error(), "doorward account remove "+name)
	}
	return wire.Refuse(refused.Code, refused.Reason+"; the account "+name+", which was added for it, is removed again", refused.Next)
}

// offerSurrogate says what waits for a decision, and offers it.
func (a *app) offerSurrogate(name string, f *surrogateFlags, there bool, widening string) error {
	waits := []string{}
	if cards, err := pendingCards(); err == nil {
		for i := range cards {
			if k := &cards[i]; accountCard(k, name) && k.ID != widening {
				waits = append(waits, k.ID)
			}
		}
	}
	if widening != "" {
		waits = append(waits, widening)
	}
	if a.json {
		if err := a.value(map[string]any{"name": name, "cell": f.cell, "added": !there, "waits": waits}); err != nil {
			return err
		}
	} else {
		that := "that is"
		if len(waits) > 1 {
			that = "both cards are"
		}
		a.line("cell %s gets a surrogate of %s once %s approved; in the cell: connector surrogate %s", f.cell, name, that, name)
		if len(waits) > 1 {
			a.note("the account's card comes first, then the surrogate's")
		}
		a.noteCell(f.cell)
	}
	for i, id := range waits { // the account's first
		if err := a.offer(id, f.yes); err != nil {
			return err
		}
		if a.fails && i+1 < len(waits) {
			a.note("the surrogate waits for it: doorward approve " + waits[i+1])
			return nil
		}
	}
	return nil
}

func (a *app) listSurrogates() error {
	all, err := pages(wire.PathApprove, "surrogate", func(after string) any { return &wire.PersonSurrogateReq{Op: "list", Name: after} },
		func(r *wire.PersonSurrogateResp) ([]wire.IssuedCustom, string) { return r.Issued, r.Next })
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"items": notNil(all)})
	}
	if len(all) == 0 {
		a.line("no surrogates; add one with: doorward surrogate add NAME --cell CELL --manifest FILE")
		return nil
	}
	rows := [][]string{{"NAME", "CELL", "MADE", "ENDS", "LAST USE", "HOSTS"}}
	for _, s := range all {
		ends := "when it is revoked"
		if s.Until > 0 {
			ends = a.left(s.Until)
		}
		rows = append(rows, []string{s.Name, s.Cell, a.at(s.Made), ends, a.at(s.LastUse), strings.Join(s.Hosts, ", ")})
	}
	a.table(rows)
	return nil
}

func (a *app) revokeSurrogate(name, cell string) error {
	r, err := ask[wire.PersonSurrogateResp](wire.PathApprove, "surrogate", &wire.PersonSurrogateReq{Op: "revoke", Name: name, Cell: cell})
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"revoked": name, "cell": cell, "lines": notNil(r.Lines)})
	}
	for _, l := range r.Lines {
		a.line("%s", l)
	}
	a.line("cell %s has no surrogate of %s any more", cell, name)
	a.note(fmt.Sprintf("the credential stays with authd, for other cells; doorward account remove %s deletes it", name))
	return nil
}
