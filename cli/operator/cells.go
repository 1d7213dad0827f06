// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) runCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "run CELL -- COMMAND...", Short: "run a command in a cell, at this terminal",
		Long: `The command runs as the cell's user and gets a terminal of the cell's own. It ends when this
command does, and its exit code is this command's: 128 and the signal's number where a signal ended it.
It starts in the folder where you are, if that is of a project of the cell; else in the first project.
With a terminal at hand the session counts as attended. Without one, what is read from stdin goes
to the command as lines of text.`,
		Example: "  doorward run work -- connector dav calendars",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = slices.Delete(args, 1, 2)
			}
			if len(args) < 2 {
				return wire.Refuse(wire.CodeUsage, "run takes the name of a CELL and a COMMAND",
					"a shell: doorward shell CELL; see: "+c.CommandPath()+" --help")
			}
			return a.runIn(c.Context(), args[0], args[1:])
		},
	}
	c.Flags().SetInterspersed(false) // what stands behind the cell is the command's
	return c
}

func (a *app) shellCmd() *cobra.Command {
	return &cobra.Command{
		Use: "shell CELL", Short: "the shell of a cell's user, at this terminal",
		RunE: func(c *cobra.Command, args []string) error { return a.runIn(c.Context(), args[0], nil) },
	}
}

// runIn runs a command in a cell with this process's terminal as its, until it ends.
func (a *app) runIn(ctx context.Context, cell string, args []string) error {
	conn, err := wire.Dial(wire.PathCellsPerson, 0) // a command takes as long as it takes
	if err != nil {
		return absent("cells", wire.PathCellsPerson, err)
	}
	start := &wire.RunStart{Cell: cell, Args: args, Term: os.Getenv("TERM")}
	start.Dir, _ = unix.Getwd() // not PWD, which may be another; without one it starts where the cell has it start
	fd := int(a.in.Fd())
	start.Attended = term.IsTerminal(fd)
	start.Plain = !start.Attended
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
		start.Rows, start.Cols = size.Row, size.Col
	}
	var began wire.RunResp
	fds, err := conn.Call("run", &wire.RunReq{Start: start}, &began)
	if err != nil {
		return broken("cells", err)
	}
	if len(fds) != 1 {
		return wire.Refuse(wire.CodeInternal, fmt.Sprintf("cells sent %d terminals", len(fds)), "doorward doctor")
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that a read ends when it is closed
		return err
	}
	master := os.NewFile(uintptr(fds[0]), "terminal")
	defer master.Close()
	if start.Attended {
		before, err := term.MakeRaw(fd)
		if err != nil {
			return wire.Refuse(wire.CodeInternal, "set the terminal: "+err.Error(), "")
		}
		defer term.Restore(fd, before)
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
		go follow(fd, master, resized)
	}
	go a.feed(master, start.Plain)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(a.out, master) // ends with EIO when nobody has the other end any more
	}()
	type end struct {
		resp wire.RunResp
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		_, e.err = conn.Call("run", &wire.RunReq{Wait: began.Session}, &e.resp)
		ended <- e
	}()
	select {
	case e := <-ended:
		if e.err != nil {
			return broken("cells", e.err)
		}
		select {
		case <-shown:
		case <-time.After(time.Second): // something else has the terminal open
		}
		a.code = e.resp.Code
		return nil
	case <-ctx.Done(): // the run ends with the connection, which ends with this process
		a.code = 128 + int(unix.SIGTERM)
		return nil
	}
}

// feed gives the command what is read here. A terminal has no end; a file's end is ^D to the command's.
func (a *app) feed(to *os.File, plain bool) {
	_, err := io.Copy(to, a.in)
	if err == nil && plain {
		_, _ = to.WriteString("\x04\x04") // the first ends a line without an end
	}
}

// follow gives the command's terminal the size of this one when it changes.
func follow(fd int, to *os.File, resized <-chan os.Signal) {
	for range resized {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil {
			continue
		}
		raw, err := to.SyscallConn()
		if err != nil {
			return
		}
		_ = raw.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	}
}

func (a *app) cellCmd() *cobra.Command {
	c := &cobra.Command{Use: "cell", Short: "list, start, stop and freeze cells"}
	one := func(verb, short, long, did string) *cobra.Command {
		return &cobra.Command{Use: verb + " CELL", Short: short, Long: long, RunE: func(_ *cobra.Command, args []string) error {
			if err := cellName(args[0]); err != nil {
				return err
			}
			if _, err := ask[wire.Empty](wire.PathCellsPerson, verb, &wire.CellReq{Cell: args[0]}); err != nil {
				return err
			}
			return a.didCell(args[0], did)
		}}
	}
	freeze := func(verb, short, long, did string) *cobra.Command {
		return &cobra.Command{Use: verb + " CELL", Short: short, Long: long, RunE: func(_ *cobra.Command, args []string) error {
			if err := cellName(args[0]); err != nil {
				return err
			}
			r, err := ask[wire.FreezeResp](wire.PathCellsPerson, "freeze", &wire.FreezeReq{Cell: args[0], Thaw: verb == "thaw"})
			if err != nil {
				return err
			}
			if len(r.Failed) > 0 {
				return wire.Refuse(wire.CodeInternal, "cell "+strings.Join(r.Failed, "; "), "journalctl -u doorward-cells")
			}
			return a.didCell(args[0], did)
		}}
	}
	c.AddCommand(
		&cobra.Command{Use: "list", Short: "list the cells that are configured or run",
			RunE: func(*cobra.Command, []string) error { return a.listCells() }},
		&cobra.Command{Use: "show CELL", Short: "show one cell",
			Long: `What it is made of, whether it runs, what it trusts, and where its connections are intercepted: there
egress reads each request, and policy decides on it. Elsewhere what is allowed is carried unread.`,
			RunE: func(_ *cobra.Command, args []string) error { return a.showCell(args[0]) }},
		one("start", "start a cell", "It starts what /etc/doorward/cells/CELL.toml says.", wire.CellRunning),
		one("stop", "stop a cell, with all that runs in it", "What it may do is not changed: that is `doorward stop`.",
			wire.CellStopped),
		freeze("freeze", "have everything in a cell stand still", "It goes on where it was when it is thawed.", wire.CellFrozen),
		freeze("thaw", "let a frozen cell go on", "What `doorward stop` froze goes on with `doorward stop --resume`.", wire.CellRunning))
	return c
}

// cellName refuses what can be no cell before anybody is asked about it.
func cellName(name string) error {
	if wire.CellName(name) != nil {
		return wire.Refuse(wire.CodeUsage, quote(name)+" is no name of a cell: 1 to 32 of a-z and 0-9", "doorward cell list")
	}
	return nil
}

func (a *app) didCell(name, state string) error {
	if a.json {
		return a.value(map[string]any{"cell": name, "state": state})
	}
	a.line("cell %s is %s", name, state)
	return nil
}

func cells() ([]wire.CellState, error) {
	return pages(wire.PathCellsPerson, "list", from, func(r *wire.CellsResp) ([]wire.CellState, string) { return r.Cells, r.Next })
}

// noteFor is how long a remark about a cell's name may take: what it is beside is done, and must not wait for a daemon that is down.
const noteFor = time.Second

// noteCell remarks that no cell has that name, as far as cells says, and says it soon. Who names one that is to come does so on purpose.
func (a *app) noteCell(name string) {
	if a.json {
		return
	}
	r, err := askWithin[wire.CellsResp](noteFor, wire.PathCellsPerson, "list", from(""))
	if err != nil || r.Next != "" || slices.ContainsFunc(r.Cells, func(c wire.CellState) bool { return c.Name == name }) {
		return
	}
	var names []string
	for _, c := range r.Cells {
		names = append(names, c.Name)
	}
	a.note("no cell " + quote(name) + " is configured here or runs; " + meant("", name, names) + "doorward cell list")
}

// stateOf says a cell's state and who froze it.
func stateOf(s wire.CellState) string {
	if slices.Contains(s.FrozenBy, "canary") {
		return s.State + ": its walls did not hold"
	}
	if slices.Contains(s.FrozenBy, "stop") {
		return s.State + " by the switch"
	}
	return s.State
}

func (a *app) listCells() error {
	all, err := cells()
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"items": notNil(all)})
	}
	if len(all) == 0 {
		a.line("no cells: none is configured in /etc/doorward/cells, and none runs")
		return nil
	}
	rows := [][]string{{"CELL", "STATE", "SESSIONS", ""}}
	for _, s := range all {
		rows = append(rows, []string{s.Name, stateOf(s), strings.Join(s.Sessions, " "), s.Problem})
	}
	a.table(rows)
	return nil
}

func (a *app) showCell(name string) error {
	all, err := cells()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s wire.CellState) bool { return s.Name == name })
	if i < 0 {
		return wire.Refuse(wire.CodeNotFound, "there is no cell "+quote(name), "doorward cell list")
	}
	s := all[i]
	sites, err := intercepted(name)
	if a.json {
		return a.value(struct {
			wire.CellState
			Intercepted []interceptedSite `json:"intercepted"` // null: sentinel did not say
		}{s, sites})
	}
	memory, tasks := "no limit", "the machine's limit"
	if s.Memory > 0 {
		memory = strconv.FormatInt(s.Memory, 10) + " bytes"
	}
	if s.Tasks > 0 {
		tasks = strconv.FormatInt(s.Tasks, 10)
	}
	rows := [][]string{{"cell", s.Name}, {"state", stateOf(s)}, {"sessions", strings.Join(s.Sessions, " ")}}
	if s.Problem != "" {
		rows = append(rows, []string{"problem", s.Problem})
	}
	if s.Root != "" {
		rows = append(rows, []string{"root", s.Root}, []string{"user", s.User}, []string{"command", strings.Join(s.Command, " ")},
			[]string{"projects", strings.Join(s.Projects, " ")}, []string{"memory", memory}, []string{"processes", tasks})
	}
	rows = append(rows, trustRows(s.Fingerprint)...)
	a.table(append(rows, interceptedRows(sites, err)...))
	return nil
}

// interceptedSite is where a cell's egress ends TLS itself and has each request decided.
type interceptedSite struct {
	Site string `json:"site"` // HOST:PORT, with "*." the names below it
	Why  string `json:"why"`  // "surrogate NAME", or the line of the policy
}

// intercepted asks sentinel what of a cell's connections is intercepted. Without an error it is not nil.
func intercepted(cell string) ([]interceptedSite, error) {
	out := []interceptedSite{}
	req := &wire.PolicyReq{Op: "intercepted", Cell: cell}
	for {
		r, err := ask[wire.PolicyResp](wire.PathApprove, "policy", req)
		if err != nil {
			return nil, err
		}
		for _, l := range r.Lines {
			site, why, _ := strings.Cut(l, " ")
			out = append(out, interceptedSite{site, why})
		}
		if r.Next <= req.From {
			return out, nil
		}
		req.From = r.Next
	}
}

// interceptedRows list them. What sentinel does not say is said, and is no reason to say nothing of the cell.
func interceptedRows(sites []interceptedSite, err error) [][]string {
	switch {
	case err != nil:
		return [][]string{{"intercepted", "not known: " + visible.Line(err.Error())}}
	case len(sites) == 0:
		return [][]string{{"intercepted", "nothing: what is allowed is carried unread"}}
	}
	rows := [][]string{}
	for _, x := range sites {
		rows = append(rows, []string{"", visible.Line(x.Site) + ", by " + visible.Line(x.Why)})
	}
	rows[0][0] = "intercepted"
	return rows
}

// trustRows say by which root the cell's egress answers where it reads requests, and where the cell trusts that.
func trustRows(fingerprint string) [][]string {
	if fingerprint == "" {
		return [][]string{{"egress's root", "none is made yet: systemctl status doorward-egress@CELL"}}
	}
	rows := [][]string{{"egress's root", "SHA-256 " + fingerprint},
		{"trusted in the cell", wire.SystemBundle + ", " + wire.CellCA + wire.CARoot + ", Debian's Java, Chromium"}}
	return append(rows, []string{"by variables", strings.Join(slices.Sorted(maps.Keys(wire.TrustEnv())), " ")})
}
