// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) doctorCmd() *cobra.Command {
	var leak bool
	var from source
	var files []string
	c := &cobra.Command{
		Use: "doctor", Short: "say what is wrong with this machine, and what to do",
		Long: `Tries what is in force: kernel, systemd, versions, units, sockets, policy, accounts, and a canary for
each wall that must hold and each path that must work, the cells' from within. As root it tries all; as
a person what a person can see, and says what only root could try. Exits 1 if anything is wrong. What
is weak holds less than it could, and fails nothing. /usr/share/doc/doorward/kernel.md says what
each feature of the kernel is for. In a cell that runs, it is a session that nobody attends, for two minutes at most.

--leaks looks for credentials where they must not be: in the memory, environment, arguments and open
files of all processes of cells and workers, and in logs, ledger, spool and the files named with
--in. Doorward gives its credentials to nobody, so you give them: one a line, from stdin
(--secret-stdin), a descriptor, or the prompt. It needs root. A clean answer is evidence and no
proof: what was encrypted, split or hashed is not found. What could not be read is said, and is not
clean.`,
		RunE: func(*cobra.Command, []string) error {
			if leak {
				return a.leaks(&from, files)
			}
			if len(files) > 0 || from.stdin || from.fd >= 0 {
				return wire.Refuse(wire.CodeUsage, "--in, --secret-stdin and --secret-fd go with --leaks", "add --leaks")
			}
			return a.doctor()
		},
	}
	c.Flags().BoolVar(&leak, "leaks", false, "look for credentials where they must not be (needs root)")
	c.Flags().StringArrayVar(&files, "in", nil, "with --leaks: further file or folder to look in")
	from.flags(c)
	return c
}

// doctor tries what it can and prints what it found.
func (a *app) doctor() error {
	list := a.findings()
	count := map[machine.State]int{}
	for _, f := range list {
		count[f.State]++
	}
	a.fails = count[machine.Wrong] > 0
	if a.json {
		return a.value(map[string]any{"items": list, "wrong": count[machine.Wrong], "weak": count[machine.Weak],
			"untried": count[machine.Untried]})
	}
	a.printFindings(list)
	a.note(fmt.Sprintf("%d wrong, %d weak, %d not tried, %d ok", count[machine.Wrong], count[machine.Weak],
		count[machine.Untried], count[machine.OK]))
	return nil
}

// printFindings prints one a line; the walls of one daemon or cell that all hold share a line.
func (a *app) printFindings(list []machine.Finding) {
	word := map[machine.State]string{machine.OK: "ok", machine.Weak: "weak", machine.Wrong: "WRONG", machine.Untried: "untried"}
	row := func(state, check, what string) {
		fmt.Fprintf(a.out, "%-8s%-19s %s\n", state, check, visible.Line(what))
	}
	for i := 0; i < len(list); i++ {
		f := list[i]
		if f.State != machine.OK || f.Of == "" || f.Check == "cell.armed" {
			row(word[f.State], f.Check, f.What.String())
			if f.Next != "" {
				fmt.Fprintf(a.out, "%27s next: %s\n", "", visible.Line(f.Next))
			}
			continue
		}
		var held []string
		of := f.Of
		for ; i < len(list) && list[i].State == machine.OK && list[i].Of == of; i++ {
			held = append(held, list[i].Check)
		}
		i--
		row("ok", "walls hold", string(of)+": "+strings.Join(held, ", "))
	}
}

// places are files that must hold no credential, where they are.
var places = [...]string{"/var/lib/doorward", "/var/log/doorward", "/var/lib/private/doorward", "/etc/doorward"}

func (a *app) leaks(from *source, files []string) error {
	if os.Geteuid() != 0 {
		return wire.Refuse(wire.CodeNotAllowed, "only root can read other processes", "run it as root")
	}
	root := machine.CgroupRoot()
	if root == "" {
		return wire.Refuse(wire.CodeUnavailable, "cgroup v2 is not mounted", "boot with systemd's unified hierarchy")
	}
	secrets, err := a.secrets(from)
	if err != nil {
		return err
	}
	defer func() {
		for i := range secrets {
			clear(secrets[i].Value)
		}
	}()
	s, err := leaks.New(secrets...)
	if err != nil {
		return wire.Refuse(wire.CodeBadCredential, err.Error(), "give credentials of 8 bytes or more, one a line")
	}
	var pids []int
	for _, slice := range []string{"doorward-cells.slice", "doorward-workers.slice"} {
		p, err := leaks.Pids(filepath.Join(root, "doorward.slice", slice))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // without cells and workers there is no slice
			return wire.Refuse(wire.CodeInternal, err.Error(), "try again; processes may have come and gone meanwhile")
		}
		pids = append(pids, p...)
	}
	all := s.Processes(pids...)
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			files = append(files, p)
		}
	}
	r := s.Files(files...)
	all.Findings, all.Skipped, all.Bytes = append(all.Findings, r.Findings...), append(all.Skipped, r.Skipped...),
		all.Bytes+r.Bytes
	return a.leakReport(&all, len(secrets), len(pids), files)
}

func (a *app) leakReport(r *leaks.Report, secrets, pids int, files []string) error {
	a.fails = !r.Clean()
	if a.json {
		found := []map[string]any{}
		for _, f := range r.Findings {
			found = append(found, map[string]any{"where": f.Where, "offset": f.Offset, "secret": f.Secret, "form": f.Form})
		}
		return a.value(map[string]any{"clean": r.Clean(), "findings": found, "skipped": notNil(r.Skipped), "bytes": r.Bytes,
			"processes": pids, "files": notNil(files)})
	}
	for _, f := range r.Findings {
		a.line("FOUND  %s", f.String())
	}
	for _, s := range r.Skipped {
		a.line("not read: %s", s)
	}
	a.line("looked for %d secrets in %d processes and %d places, %d bytes", secrets, pids, len(files), r.Bytes)
	switch {
	case len(r.Findings) > 0:
		a.note("a credential is where it must not be: doorward stop, then make a new one at the vendor")
	case len(r.Skipped) > 0:
		a.note("nothing was found, and not everything could be read")
	case pids == 0:
		a.note("no cell and no worker runs now")
	}
	return nil
}

// secrets reads what to look for, one a line.
func (a *app) secrets(from *source) ([]leaks.Secret, error) {
	var b []byte
	var err error
	switch {
	case from.stdin:
		b, err = io.ReadAll(io.LimitReader(a.in, 1<<20))
	case from.fd >= 0:
		b, err = readFD(from.fd, 1<<20)
	case term.IsTerminal(int(a.in.Fd())):
		b, err = a.secret(from, "credential to look for")
	default:
		return nil, wire.Refuse(wire.CodeUsage, "no credentials to look for", "give them one a line with --secret-stdin")
	}
	if err != nil {
		return nil, unreadSecret(err)
	}
	var list []leaks.Secret
	for i, l := range slices.Collect(bytes.Lines(b)) {
		if l = bytes.TrimRight(l, "\r\n"); len(l) > 0 {
			list = append(list, leaks.Secret{Name: "line " + strconv.Itoa(i+1), Value: bytes.Clone(l)})
		}
	}
	clear(b)
	if len(list) == 0 {
		return nil, wire.Refuse(wire.CodeUsage, "no credentials to look for", "give them one a line with --secret-stdin")
	}
	return list, nil
}
