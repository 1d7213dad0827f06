// SPDX-License-Identifier: Apache-2.0

// Package operator is `doorward`, the command of the person and the admin: it shows what waits, takes decisions, and
// manages accounts, grants, policy and the record. It holds nothing; sentinel and authd know from the kernel who asks,
// and decide what that person may do. What it shows was chosen by agents, vendors and strangers, so every string goes
// through package visible, and an approval is over the hash of the card that was on the screen. A credential is taken
// from a prompt, stdin or a descriptor, never from an argument, where every process of the machine could read it.
package operator

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Parts is what the binary links and this package may not import.
type Parts struct {
	// VerifyFile verifies the ledger file at path against the checkpoints in file. key may be nil; pub is its public
	// half, or nil to skip signatures. It returns the report as JSON and, if something is wrong, what is wrong first.
	VerifyFile func(ctx context.Context, path string, pub ed25519.PublicKey, key ed25519.PrivateKey,
		file []byte) ([]byte, string, error)
	// CheckPolicy compiles policy files, none for the installed ones, by descriptions under limits.toml (nil: none). It
	// returns what is wrong with them, and what a setting does not cover.
	CheckPolicy func(files []wire.PolicyFile, descs []*describe.Connector, limits []byte) (problems, notes []string)
	// Manifest reads the manifest of a custom connector that may be issued. The error begins with its name.
	Manifest func(name string, b []byte) (*Manifest, error)
	// BuiltIn is the text of a manifest that came with Doorward, by its name; Names lists them.
	BuiltIn func(name string) (text []byte, ok bool)
	Names   func() []string
	// Sites are lines about the named sets of sites.
	Sites func() []string
}

// askTimeout bounds one answer of a daemon: an account's test asks a vendor.
const askTimeout = 3 * time.Minute

// app is one run of the command.
type app struct {
	Parts
	in    *os.File
	out   io.Writer
	err   io.Writer
	json  bool
	now   time.Time
	fails bool // something is wrong that has been said already
	code  int  // exit code of a command that ran in a cell
}

// Main runs the command and returns its exit code: wire.Code.Exit of a refusal, 2 for usage, 1 for other failures.
func Main(args []string, p Parts) int {
	a := &app{Parts: p, in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now()}
	for _, s := range args { // errors before the flags are parsed obey it too
		if s == "--" {
			break
		}
		a.json = a.json || s == "--json"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := a.secretArgs(args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	switch {
	case err == nil && a.fails:
		return wire.ExitFailure
	case err == nil && a.code != 0:
		return a.code
	case err == nil, errors.Is(err, context.Canceled):
		return wire.ExitDone
	}
	var refused *wire.Error
	if !errors.As(err, &refused) {
		refused = wire.Refuse(wire.CodeUsage, oneLine(err.Error()), "doorward help")
	}
	a.report(refused)
	return refused.Code.Exit()
}

// Commands is the tree of commands, for the manual page. Nothing of it is to be run.
func Commands() *cobra.Command { return (&app{in: os.Stdin, out: io.Discard, err: io.Discard}).root() }

// root is the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "doorward", Short: "decide what agents may do with your accounts",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentFlags().BoolVar(&a.json, "json", a.json, "print JSON; errors are a JSON object on stderr")
	root.SetFlagErrorFunc(flagFault)
	root.Version = release
	root.SetVersionTemplate(fmt.Sprintf("doorward {{.Version}}, protocol %d\n", wire.Version))
	root.AddGroup(&cobra.Group{ID: "decide", Title: "Deciding:"}, &cobra.Group{ID: "cells", Title: "Cells:"},
		&cobra.Group{ID: "rules", Title: "Rules:"}, &cobra.Group{ID: "record", Title: "The record:"},
		&cobra.Group{ID: "machine", Title: "Accounts and machine:"})
	add := func(group string, list ...*cobra.Command) {
		for _, c := range list {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("decide", a.pendingCmd(), a.showCmd(), a.approveCmd(), a.denyCmd(), a.watchCmd())
	add("cells", a.runCmd(), a.shellCmd(), a.cellCmd())
	add("rules", a.grantsCmd(), a.revokeCmd(), a.stopCmd(), a.policyCmd(), a.taintCmd(), a.sessionCmd())
	add("record", a.auditCmd(), a.whyCmd())
	add("machine", a.accountCmd(), a.surrogateCmd(), a.approverCmd(), a.noticeCmd(), a.unlockCmd(), a.doctorCmd(), a.reportCmd(),
		a.canaryCmd(), a.setupCmd(), a.uninstallCmd(), a.versionCmd())
	root.SetHelpCommand(helpCmd())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	tidy(root)
	return root
}

// ask sends one request to a daemon and returns its answer.
func ask[Resp any](path, verb string, req any) (*Resp, error) {
	return askWithin[Resp](askTimeout, path, verb, req)
}

func askWithin[Resp any](limit time.Duration, path, verb string, req any) (*Resp, error) {
	who := serverOf(path)
	c, err := wire.Dial(path, limit)
	if err != nil {
		return nil, absent(who, path, err)
	}
	defer c.Close()
	resp := new(Resp)
	if _, err := c.Call(verb, req, resp); err != nil {
		return nil, broken(who, err)
	}
	return resp, nil
}

func serverOf(path string) string {
	switch path {
	case wire.PathAuthdAdmin:
		return "authd"
	case wire.PathCellsPerson:
		return "cells"
	}
	return "sentinel"
}

// pages asks a daemon for a list until it has all of it: one answer holds a frame at most. part takes an answer's items
// and where the next begins.
func pages[Resp, Item any](path, verb string, req func(after string) any, part func(*Resp) ([]Item, string)) ([]Item, error) {
	var all []Item
	for after := ""; ; {
		r, err := ask[Resp](path, verb, req(after))
		if err != nil {
			return nil, err
		}
		items, next := part(r)
		all = append(all, items...)
		if next <= after { // the last page; one that led back would be without end
			return all, nil
		}
		after = next
	}
}

func from(after string) any { return &wire.ListFrom{After: after} }

// pendingCards are all cards that wait, oldest first.
func pendingCards() ([]wire.Card, error) {
	return pages(wire.PathApprove, "pending", from, func(r *wire.PendingResp) ([]wire.Card, string) { return r.Cards, r.Next })
}

func absent(who, path string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return wire.Refuse(wire.CodeNotAllowed, "you may not ask "+who+" ("+path+")",
			"it is for root and group doorward: log in as a member")
	case errors.Is(err, unix.ENOENT):
		return wire.Refuse(wire.CodeUnavailable, who+" is not here: "+path+" does not exist", "doorward doctor")
	default:
		return wire.Refuse(wire.CodeUnavailable, who+" does not answer: "+err.Error(), "doorward doctor")
	}
}

func broken(who string, err error) error {
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, wire.ErrVersion):
		return wire.Refuse(wire.CodeInternal, who+" is of another version: "+err.Error(),
			"restart the daemons after an upgrade")
	case errors.Is(err, unix.EAGAIN):
		return wire.Refuse(wire.CodeUnavailable, who+" did not answer in time", "look before you repeat it")
	case errors.Is(err, io.EOF):
		return wire.Refuse(wire.CodeNotAllowed, who+" closed the connection without an answer",
			"it takes persons in a login session only (a cgroup below user.slice); its journal says more")
	default:
		return wire.Refuse(wire.CodeUnavailable, "ask "+who+": "+err.Error(), "doorward doctor")
	}
}

// terminal says whether a person sits at both ends.
func (a *app) terminal() bool {
	out, ok := a.out.(*os.File)
	return ok && term.IsTerminal(int(a.in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// yes asks a question that only the word "yes" answers with yes.
func (a *app) yes(question string) (bool, error) {
	fmt.Fprint(a.err, question+" Type yes: ")
	line, err := readLine(a.in, 256)
	if err != nil {
		return false, wire.Refuse(wire.CodeUsage, "read the answer: "+err.Error(), "")
	}
	return strings.TrimSpace(string(line)) == "yes", nil
}

// readLine reads one line byte by byte, so that what follows it stays in f.
func readLine(f io.Reader, limit int) ([]byte, error) {
	var line []byte
	var b [1]byte
	for len(line) < limit {
		n, err := f.Read(b[:])
		if n == 1 {
			if b[0] == '\n' {
				return line, nil
			}
			line = append(line, b[0])
		}
		if errors.Is(err, io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("a line of more than %d bytes", limit)
}

// oneLine joins the lines of cobra's errors.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
