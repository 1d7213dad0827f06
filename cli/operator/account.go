// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) accountCmd() *cobra.Command {
	c := &cobra.Command{Use: "account", Short: "add, test and remove accounts"}
	c.AddCommand(a.addCmd(), &cobra.Command{
		Use: "list", Short: "list accounts",
		RunE: func(*cobra.Command, []string) error { return a.listAccounts() },
	}, &cobra.Command{
		Use: "show NAME", Short: "show one account; never its secret",
		RunE: func(_ *cobra.Command, args []string) error {
			acc, err := account(args[0])
			if err != nil {
				return err
			}
			return a.account(acc)
		},
	}, &cobra.Command{
		Use: "test NAME", Short: "do the account's test read, on the record",
		RunE: func(_ *cobra.Command, args []string) error { return a.testAccount(args[0]) },
	}, &cobra.Command{
		Use: "rename NAME NEW", Short: "rename an account; it is then decided on anew",
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := ask[wire.Empty](wire.PathAuthdAdmin, "rename", &wire.RenameReq{From: args[0],
				To: args[1]}); err != nil {
				return err
			}
			if !a.json {
				a.line("account %s is now %s", args[0], args[1])
			}
			return a.offerAccount(args[1], false)
		},
	}, &cobra.Command{
		Use: "remove NAME", Short: "remove an account with its secret, and end its grants",
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := ask[wire.Empty](wire.PathAuthdAdmin, "remove", &wire.AccountRef{Name: args[0]}); err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"removed": args[0]})
			}
			a.line("account %s is removed", args[0])
			return nil
		},
	})
	return c
}

// addFlags are what account add takes.
type addFlags struct {
	base, ca, user, owner         string
	permit, also, workers, scopes []string
	replace, yes                  bool
	from                          source
}

func (a *app) addCmd() *cobra.Command {
	var f addFlags
	c := &cobra.Command{
		Use: "add CONNECTOR NAME", Short: "add an account; its secret is asked for",
		Long: `Says where to make a new credential, asks for it without showing it, and gives it to authd, which
alone keeps it. The account can be used once it was decided on; that is offered at once.

The secret is never an argument. It comes from the prompt, from stdin (--secret-stdin) or from a
descriptor (--secret-fd N). --replace sets an account anew; without a new secret (an empty answer)
it keeps the old one.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.addAccount(args[0], args[1], &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.base, "base", "",
		"address of the server, such as https://cal.example.org/dav (a vendor may have its own)")
	fl.StringVar(&f.ca, "ca", "", "file of PEM certificates that prove a self-hosted server")
	fl.StringArrayVar(&f.permit, "permit", nil, "IP:PORT that may be reached though it is not public")
	fl.StringArrayVar(&f.also, "also", nil, "HOST:PORT of a self-hosted server's second host")
	fl.StringVar(&f.user, "user", "", "user name, where the account takes name and password")
	fl.StringVar(&f.owner, "owner", "", "the owner's address or login at the vendor")
	fl.StringArrayVar(&f.workers, "worker", nil, "connector whose worker may use it (default: its own)")
	fl.StringArrayVar(&f.scopes, "scope", nil, "permission that the credential has, as the vendor calls it")
	fl.BoolVar(&f.replace, "replace", false, "change an account that is there")
	fl.BoolVar(&f.yes, "yes", false, "decide on its use at once, without asking")
	f.from.flags(c)
	return c
}

// accountReq is the request for an account but for its secret; what cannot be is refused.
func accountReq(vendor, name string, f *addFlags) (*wire.AddReq, *describe.Connector, error) {
	dir, err := describe.Dir()
	if err != nil {
		return nil, nil, wire.Refuse(wire.CodeInternal, err.Error(), "reinstall doorward")
	}
	d, err := describe.Load(dir, vendor)
	if err != nil {
		return nil, nil, absentConnector(dir, vendor)
	}
	req := &wire.AddReq{Name: name, Vendor: vendor, Placement: d.Tokens.Placement, Permit: f.permit, Also: f.also,
		Workers: f.workers, Scopes: f.scopes, Owner: f.owner, Replace: f.replace}
	if req.Base, err = baseOf(orElse(f.base, d.Base), f.permit); err != nil {
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
	basic := req.Placement.Kind == "basic"
	switch {
	case basic && f.user == "":
		return nil, nil, wire.Refuse(wire.CodeUsage, "an account of "+vendor+" has a user name", "add --user NAME")
	case !basic && f.user != "":
		return nil, nil, wire.Refuse(wire.CodeUsage, "an account of "+vendor+" has no user name", "leave --user out")
	case strings.Contains(f.user, ":"):
		return nil, nil, notAnArgument("--user")
	}
	req.Placement.User = f.user
	return req, d, nil
}

// certificates reads the file of --ca.
func certificates(file string) ([]byte, error) {
	b, err := readFile(file, 256<<10)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(b); block == nil || block.Type != "CERTIFICATE" {
		return nil, wire.Refuse(wire.CodeBadArgument, "--ca "+file+": no certificate in PEM", "name the file that has one")
	}
	return b, nil
}

func (a *app) addAccount(vendor, name string, f *addFlags) error {
	req, d, err := accountReq(vendor, name, f)
	if err != nil {
		return err
	}
	if a.asks(&f.from) {
		if err := fresh(name, f.replace); err != nil { // nobody makes a credential that cannot be stored
			return err
		}
		a.tokenPage(d, name, f)
	}
	what := "token"
	if req.Placement.Kind == "basic" {
		what = "password of " + f.user
	}
	if req.Secret, err = a.secret(&f.from, what); err != nil {
		if !f.replace || !isEmptySecret(err) {
			return err
		}
		req.Secret = nil
	}
	r, err := ask[wire.AccountsResp](wire.PathAuthdAdmin, "add", req)
	clear(req.Secret)
	if err != nil {
		return err
	}
	for i := range r.Accounts {
		if err := a.account(&r.Accounts[i]); err != nil {
			return err
		}
	}
	return a.offerAccount(name, f.yes)
}

func isEmptySecret(err error) bool {
	e, ok := err.(*wire.Error) //nolint:errorlint // secret returns it bare
	return ok && e.Code == wire.CodeBadCredential && e.Reason == "the secret is empty"
}

// fresh says, before a secret is asked for, whether authd would take an account of that name.
func fresh(name string, replace bool) error {
	all, err := accounts()
	if err != nil {
		return err
	}
	there := slices.ContainsFunc(all, func(acc wire.Account) bool { return acc.Name == name })
	switch {
	case there && !replace:
		return wire.Refuse(wire.CodeBadArgument, "there is an account "+name+" already", "another name, or --replace to change it")
	case !there && replace:
		return wire.Refuse(wire.CodeNotFound, "no account "+name+" to replace", "doorward account list; without --replace it is added")
	}
	return nil
}

// tokenPage says where a new credential is made, with what the methods that are on need. The page is the vendor's own,
// so it is not named for a server of another address.
func (a *app) tokenPage(d *describe.Connector, name string, f *addFlags) {
	if d.Tokens.Help != "" {
		a.note(d.Tokens.Help)
	}
	if d.Tokens.NewURL == "" || f.base != "" && strings.TrimRight(f.base, "/") != d.Base {
		return
	}
	page, left := d.TokenPage("Doorward "+name, enabled(d))
	if !f.replace {
		a.note("make a new credential at " + page)
	}
	if len(left) > 0 {
		a.note("that page does not fill these permissions in; choose them there yourself: " + strings.Join(left, "; "))
	}
}

// enabled are the methods of d that are on, as sentinel says; all where it does not say.
func enabled(d *describe.Connector) []string {
	r, err := ask[wire.PolicyResp](wire.PathApprove, "policy", &wire.PolicyReq{Op: "methods"})
	if err != nil {
		return nil
	}
	on := []string{}
	for _, l := range r.Lines {
		if vendor, m, ok := strings.Cut(l, " "); ok && vendor == d.Vendor {
			on = append(on, m)
		}
	}
	return on
}

// baseOf reads the address of an account.
func baseOf(s string, permit []string) (wire.Base, error) {
	bad := func(why string) (wire.Base, error) {
		return wire.Base{}, wire.Refuse(wire.CodeBadArgument, "--base "+s+": "+why,
			"write it as https://cal.example.org or https://cal.example.org:8443/dav")
	}
	if s == "" {
		return wire.Base{}, wire.Refuse(wire.CodeUsage, "the account's server is not known", "add --base https://...")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "":
		return bad("no address")
	case u.User != nil:
		return wire.Base{}, notAnArgument("--base")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return bad("a query or fragment")
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(permit)):
		return bad("https is needed; http only with a --permit of a loopback address")
	}
	b := wire.Base{Scheme: u.Scheme, Host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), Port: 443,
		Path: strings.TrimRight(u.EscapedPath(), "/")}
	if u.Scheme == "http" {
		b.Port = 80
	}
	if p := u.Port(); p != "" {
		if b.Port, err = strconv.Atoi(p); err != nil || b.Port < 1 || b.Port > 65535 {
			return bad("the port")
		}
	}
	return b, nil
}

func loopback(permit []string) bool {
	for _, p := range permit {
		ap, err := netip.ParseAddrPort(p)
		if err != nil || !ap.Addr().IsLoopback() {
			return false
		}
	}
	return len(permit) > 0
}

// offerAccount finds the widening that an account waits for, and offers it.
func (a *app) offerAccount(name string, yes bool) error {
	cards, err := pendingCards()
	if err != nil {
		a.note("the account waits until a person decides on it: doorward pending")
		return nil
	}
	for i := len(cards) - 1; i >= 0; i-- {
		if k := &cards[i]; accountCard(k, name) {
			return a.offer(k.ID, yes)
		}
	}
	a.note("if it waits for a decision, doorward pending lists it")
	return nil
}

func accountCard(k *wire.Card, name string) bool {
	return k.Kind == "widening" && k.Method == "account" && (k.Account == name ||
		slices.ContainsFunc(k.Fields, func(f wire.Field) bool { return slices.Contains(f.Values, name) }))
}

// accounts are authd's, with what sentinel knows of the vendors' last answers. Where sentinel does not say, the list is
// authd's alone.
func accounts() ([]wire.Account, error) {
	r, err := ask[wire.AccountsResp](wire.PathAuthdAdmin, "list", &wire.Empty{})
	if err != nil {
		return nil, err
	}
	var unwell []struct {
		Login  int64     `json:"login"`
		Health wire.Code `json:"health"`
	}
	if out, err := ask[wire.Output](wire.PathApprove, "check", &wire.CheckReq{}); err == nil {
		_ = json.Unmarshal(out.JSON, &unwell) // what is not understood is not shown
	}
	for i := range r.Accounts {
		for _, u := range unwell {
			if a := &r.Accounts[i]; a.Generation == u.Login {
				a.Health = u.Health
			}
		}
	}
	return r.Accounts, nil
}

func account(name string) (*wire.Account, error) {
	all, err := accounts()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, wire.Refuse(wire.CodeNotFound, "no account "+name, "doorward account list")
}

// accountJSON is an account for a program to read.
type accountJSON struct {
	Name       string   `json:"name"`
	Connector  string   `json:"connector"`
	Base       string   `json:"base"`
	User       string   `json:"user,omitempty"`
	Owner      string   `json:"owner,omitempty"`
	Generation int64    `json:"generation"`
	Permit     []string `json:"permit,omitempty"`
	Also       []string `json:"also,omitempty"`
	PrivateCA  bool     `json:"private_ca,omitempty"`
	Workers    []string `json:"workers"`
	Scopes     []string `json:"scopes,omitempty"`
	Health     string   `json:"health,omitempty"`
	Digest     string   `json:"digest"`
	Changed    string   `json:"changed"`
}

func asJSON(acc *wire.Account) accountJSON {
	return accountJSON{acc.Name, acc.Vendor, baseText(acc.Base), acc.Placement.User, acc.Owner, acc.Generation, acc.Permit,
		acc.Also, acc.PrivateCA, notNil(acc.Workers), acc.Scopes, string(acc.Health), fmt.Sprintf("%x", acc.Digest),
		time.Unix(acc.Unix, 0).UTC().Format(time.RFC3339)}
}

func baseText(b wire.Base) string {
	host := b.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if b.Port != 443 || b.Scheme != "https" {
		host += ":" + strconv.Itoa(b.Port)
	}
	return b.Scheme + "://" + host + b.Path
}

func (a *app) listAccounts() error {
	all, err := accounts()
	if err != nil {
		return err
	}
	if a.json {
		items := []accountJSON{}
		for i := range all {
			items = append(items, asJSON(&all[i]))
		}
		return a.value(map[string]any{"items": items})
	}
	if len(all) == 0 {
		a.line("no accounts; add one with: doorward account add CONNECTOR NAME")
		return nil
	}
	cards, err := pendingCards()
	rows := [][]string{{"NAME", "CONNECTOR", "SERVER", "STATE"}}
	for i := range all {
		acc := &all[i]
		rows = append(rows, []string{acc.Name, acc.Vendor, baseText(acc.Base), standing(acc, cards, err)})
	}
	a.table(rows)
	return nil
}

// standing says in words whether an account can be used; cards are what waits, and err why that is not known.
func standing(acc *wire.Account, cards []wire.Card, err error) string {
	if i := slices.IndexFunc(cards, func(k wire.Card) bool { return accountCard(&k, acc.Name) }); i >= 0 {
		return "waits for a decision: doorward approve " + cards[i].ID
	}
	switch acc.Health {
	case wire.CodeNotConnected:
		if err != nil {
			return "not decided, and whether it waits for that is not known: doorward pending"
		}
		return "nobody has decided on it; to be asked: " + askAgain(acc.Name, acc.Vendor)
	case wire.CodeDenied:
		return "denied; to be asked again: " + askAgain(acc.Name, acc.Vendor)
	}
	return orElse(string(acc.Health), "well")
}

// askAgain is the command that puts an account's card up once more.
func askAgain(name, vendor string) string {
	if vendor == customVendor {
		return "doorward surrogate add " + name + " --cell CELL --manifest FILE"
	}
	return "doorward account add " + vendor + " " + name + " --replace"
}

func (a *app) account(acc *wire.Account) error {
	if a.json {
		return a.value(asJSON(acc))
	}
	a.line("account %s of %s", acc.Name, acc.Vendor)
	a.line("  server      %s", baseText(acc.Base))
	for _, x := range []struct {
		name   string
		values []string
	}{{"permit", acc.Permit}, {"also", acc.Also}, {"workers", acc.Workers}, {"scopes", acc.Scopes}} {
		if len(x.values) > 0 {
			a.line("  %-11s %s", x.name, strings.Join(x.values, ", "))
		}
	}
	if acc.PrivateCA {
		a.line("  proved by   a certificate authority of its own")
	}
	if acc.Placement.User != "" {
		a.line("  user        %s", acc.Placement.User)
	}
	if acc.Owner != "" {
		a.line("  owner       %s", acc.Owner)
	}
	a.line("  login       number %d, changed %s", acc.Generation, a.at(acc.Unix))
	cards, err := pendingCards()
	a.line("  state       %s", standing(acc, cards, err))
	a.line("  digest      %x", acc.Digest)
	return nil
}

func (a *app) testAccount(name string) error {
	out, err := ask[wire.Output](wire.PathApprove, "check", &wire.CheckReq{Account: name})
	if err != nil {
		return err
	}
	if a.json {
		v := map[string]any{"account": name, "ok": true}
		if json.Valid(out.JSON) {
			v["answer"] = json.RawMessage(out.JSON)
		}
		return a.value(v)
	}
	a.line("account %s works: its test read was answered with %d bytes", name, max(out.Bytes, int64(len(out.JSON))))
	return nil
}

func (a *app) unlockCmd() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use: "unlock", Short: "give authd the passphrase of its store",
		RunE: func(*cobra.Command, []string) error {
			p, err := a.secret(&from, "passphrase")
			if err != nil {
				return err
			}
			_, err = ask[wire.Empty](wire.PathAuthdAdmin, "unlock", &wire.UnlockReq{Passphrase: p})
			clear(p)
			if err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"unlocked": true})
			}
			a.line("the store is open")
			return nil
		},
	}
	from.flags(c)
	return c
}
