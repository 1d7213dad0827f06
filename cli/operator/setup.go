// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/cli/setup"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) setupCmd() *cobra.Command {
	var config string
	var yes, undo, plan bool
	c := &cobra.Command{
		Use: "setup", Short: "make the first cell, take the agent into it, add an account, and try it",
		Long: `Run it as root from your own login: sudo doorward setup. It looks what agents are installed, asks 8
questions at most, says what it will do, does it, and ends with a read of the new account from inside
the cell. Run again it goes on where it stopped. What it does is written down before, in
/var/lib/doorward/setup.json, and --undo takes all of it back.

In the cell each site that the agent connects to asks you once, its model's provider first: doorward
pending. --plan says what would be done and does nothing; with --config it checks the file, on any
machine.

--config FILE begins at once, and asks only for secrets that it names no file for and for decisions
that it does not take. It needs a login session too. What is left out is as said behind the example;
[account] may be left out, but not its connector:

  person = "ada"                        # whose agent it is; who called sudo
  cell = "work"                         # "work"
  agents = ["claude"]                   # of claude, codex, opencode, openclaw: all that are found; [] is none
  projects = ["/home/ada/engine"]       # folders that the cell may read and write: none
  sites = ["npm"]                       # sets that cells reach without asking (doorward policy sites): none
  tree = "usr"                          # "usr": the cell has this machine's /usr; "mmdebstrap": a Debian
                                        # of its own, by package mmdebstrap from deb.debian.org
  key = "machine"                       # "machine" seals the accounts; or "passphrase", for each start anew
  passphrase_file = "/root/passphrase"  # of root, mode 600: it is asked for
  workers = ["github"]                  # connectors beside the account's: none
  memory = "4G"                         # no limit
  tasks = 2000                          # the machine's limit
  [account]                             # none
  connector = "dav"                     # dav or github
  name = "diary"                        # the connector's
  base = "https://cal.example.org/dav"  # the vendor's own address; dav has none
  ca = "/root/ca.pem"                   # certificates of your own server: this machine's
  permit = ["10.0.0.5:443"]             # IP:PORT that is not public and may be reached: none
  also = ["dl.example.org:443"]         # HOST:PORT of your own server's second host: none
  scopes = ["Issues: write"]            # permissions that the token has, as the vendor calls them: not known
  user = "ada"                          # where the account takes name and password
  owner = "ada@example.org"             # your address or login at the vendor: not known
  secret_file = "/root/dav.secret"      # of root, mode 600; or secret_fd = 3: it is asked for
  approve = true                        # false: it waits for a person: doorward pending`,
		RunE: func(c *cobra.Command, _ []string) error {
			if undo && config != "" {
				return wire.Refuse(wire.CodeUsage, "--undo takes back what was done and reads no configuration",
					"leave --config out")
			}
			if undo && plan {
				return wire.Refuse(wire.CodeUsage, "--plan is of what setup would do, not of --undo", "give one")
			}
			o := setup.Options{Yes: yes, Plan: plan, Login: sudoer()}
			if c.Flags().Changed("config") {
				var err error
				if o.Config, err = setup.Load(config); err != nil {
					return err
				}
			}
			if err := a.mayChange(); err != nil {
				return err
			}
			if undo {
				if err := booted(); err != nil {
					return err
				}
				return setup.Undo(c.Context(), a.setupCalls(), setup.UndoOptions{Yes: yes})
			}
			return setup.Run(c.Context(), a.setupCalls(), o)
		},
	}
	c.Flags().StringVar(&config, "config", "", "`FILE` that answers all questions")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether to begin")
	a.noJSON(c)
	c.Flags().BoolVar(&plan, "plan", false, "say what would be done, and do nothing")
	c.Flags().BoolVar(&undo, "undo", false, "take back all that setup has done")
	return c
}

func (a *app) uninstallCmd() *cobra.Command {
	var agent string
	var yes, purge bool
	c := &cobra.Command{
		Use: "uninstall", Short: "stop Doorward for good, and give the agent back what was its",
		Long: `Ends cells, stops and disables all units, and puts the agent's settings back into the home of who
uses it. --agent restore gives it its former start too; --agent stopped leaves it without one, and
says at its command how to have it again. Without --agent it is asked.

Accounts, keys, record and the cells' trees are kept, for the next doorward setup; --purge removes
them with all that is in them. No vendor is told: what was kept here works there until you revoke it
there, and is named. The package itself goes by apt, afterwards.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if agent != "" && agent != "restore" && agent != "stopped" {
				return wire.Refuse(wire.CodeUsage, "--agent "+quote(agent)+" is neither restore nor stopped",
					"see: doorward uninstall --help")
			}
			if err := errors.Join(a.mayChange(), booted()); err != nil {
				return err
			}
			if agent == "" {
				if !a.terminal() {
					return wire.Refuse(wire.CodeUsage, "is the agent to start as before?",
						"add --agent restore, or --agent stopped")
				}
				ok, err := a.yes("Is the agent to start outside of the cell again, as before?")
				if err != nil {
					return err
				}
				agent = "stopped"
				if ok {
					agent = "restore"
				}
			}
			return setup.Uninstall(c.Context(), a.setupCalls(),
				setup.UndoOptions{Yes: yes, Stopped: agent == "stopped", Purge: purge})
		},
	}
	a.noJSON(c)
	c.Flags().StringVar(&agent, "agent", "", "restore: the agent starts as before; stopped: it does not")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether to do it")
	c.Flags().BoolVar(&purge, "purge", false, "remove accounts, keys, record and cells too")
	return c
}

// noJSON keeps --json out of the help of a command that speaks with a person; it is refused with what to do.
func (a *app) noJSON(c *cobra.Command) {
	c.Flags().BoolVar(&a.json, "json", a.json, "")
	_ = c.Flags().MarkHidden("json") // it is there
}

// mayChange refuses who cannot set a machine up.
func (a *app) mayChange() error {
	switch {
	case a.json:
		return wire.Refuse(wire.CodeUsage, "this speaks with a person and has no JSON", "leave --json out")
	case os.Geteuid() != 0:
		return wire.Refuse(wire.CodeNotAllowed, "only root may change this machine",
			"the same with sudo before it, from your own login")
	}
	// From here on nothing is found by the PATH of who calls, where programs of theirs may come first.
	if err := os.Setenv("PATH", setup.Path); err != nil {
		return wire.Refuse(wire.CodeInternal, err.Error(), "the same command again")
	}
	return nil
}

// booted refuses a machine that systemd does not run: there are no units to start or stop.
func booted() error {
	if !machine.Booted() {
		return wire.Refuse(wire.CodeUnavailable, "systemd does not run this machine, and Doorward is units of it",
			"boot it with systemd as process 1 (a container has none); doorward setup --plan --config FILE checks a file here")
	}
	return nil
}

// sudoer is who called sudo, or "".
func sudoer() string {
	u, err := user.LookupId(os.Getenv("SUDO_UID"))
	if err != nil || u.Uid == "0" {
		return ""
	}
	return u.Username
}

// ready is what of a machine has to be there before anything is done to it.
func (a *app) ready() error {
	if err := booted(); err != nil {
		return err
	}
	_, _, found := descriptions()
	for _, f := range append(machine.Kernel(), found) {
		switch f.State {
		case machine.Wrong:
			return wire.Refuse(wire.CodeUnavailable, f.What.String(), f.Next)
		case machine.Weak:
			a.note(f.What.String())
		}
	}
	for program, pkg := range map[string]string{"systemd-nspawn": "systemd-container", "nsenter": "util-linux",
		"gpasswd": "passwd", "systemd-creds": "systemd"} {
		if _, err := exec.LookPath(program); err != nil {
			return wire.Refuse(wire.CodeUnavailable, program+" is not installed", "apt install "+pkg)
		}
	}
	// The daemons take a person in a login session only, and by its slice know who they are.
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !strings.Contains(string(b), "0::/user.slice/user-") {
		return wire.Refuse(wire.CodeNotAllowed, "this is no login session of a person, so nothing here may be decided",
			"log in as who it is for, and: sudo doorward setup")
	}
	return nil
}

func (a *app) setupCalls() setup.Calls {
	return setup.Calls{
		Say: a.line, Note: a.note, Terminal: a.terminal(), Yes: a.yes, Check: a.ready,
		Question: func(q string) (string, error) {
			_, _ = a.err.Write([]byte(q + " "))
			line, err := readLine(a.in, 4096)
			return string(line), err
		},
		CheckAccount: func(x *setup.Account) error {
			_, _, err := accountReq(x.Connector, x.Name, addFlagsOf(x, -1))
			return err
		},
		AddAccount: func(x *setup.Account, fd int) error { return a.addAccount(x.Connector, x.Name, addFlagsOf(x, fd)) },
		Decide: func(name string, yes bool) error {
			cards, err := pendingCards()
			if err != nil {
				return err
			}
			for i := range cards {
				if accountCard(&cards[i], name) {
					return a.offer(cards[i].ID, yes)
				}
			}
			return nil
		},
		Accounts: accounts,
		RemoveAccount: func(name string) error {
			_, err := ask[wire.Empty](wire.PathAuthdAdmin, "remove", &wire.AccountRef{Name: name})
			return err
		},
		Unlock: func(fd int) error {
			p, err := a.secret(&source{fd: fd}, "passphrase of the accounts")
			if err != nil {
				return err
			}
			defer clear(p)
			_, err = ask[wire.Empty](wire.PathAuthdAdmin, "unlock", &wire.UnlockReq{Passphrase: p})
			return err
		},
		StartCell: func(name string) error {
			_, err := ask[wire.Empty](wire.PathCellsPerson, "start", &wire.CellReq{Cell: name})
			return err
		},
		LoadPolicy: func() error {
			if err := a.policy(&wire.PolicyReq{Op: "load"}, true); err != nil || !a.fails {
				return err
			}
			return wire.Refuse(wire.CodeInternal, "the policy has the faults above", "doorward policy check")
		},
		TestCall: testCall, InCell: a.inCell,
	}
}

func addFlagsOf(x *setup.Account, fd int) *addFlags {
	return &addFlags{base: x.Base, ca: x.CA, user: x.User, owner: x.Owner, permit: x.Permit, also: x.Also, scopes: x.Scopes,
		yes: x.Approve, from: source{fd: fd}}
}

// testCall is the read by which a connector's description says that an account works.
func testCall(connector, name string) ([]string, error) {
	dir, err := describe.Dir()
	if err != nil {
		return nil, wire.Refuse(wire.CodeInternal, err.Error(), "reinstall doorward")
	}
	d, err := describe.Load(dir, connector)
	if err != nil {
		return nil, absentConnector(dir, connector)
	}
	return []string{"connector", connector, d.Check, "--account", name}, nil
}

// inCell is runIn without a terminal: it returns what the command says.
func (a *app) inCell(ctx context.Context, cell string, args []string) (string, int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", 0, err
	}
	defer null.Close()
	var said bytes.Buffer
	b := *a
	b.in, b.out, b.code = null, &said, 0
	err = b.runIn(ctx, cell, args)
	if errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err()
	}
	return said.String(), b.code, err
}
