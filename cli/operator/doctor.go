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
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/wire"
)

// finding is one line of doctor.
type finding struct {
	OK   bool   `json:"ok"`
	What string `json:"what"`
	Next string `json:"next,omitempty"`
}

func (a *app) doctorCmd() *cobra.Command {
	var leak bool
	var from source
	var files []string
	c := &cobra.Command{
		Use: "doctor", Short: "say what is wrong with this machine, and what to do",
		Long: `Exits 1 if anything is wrong.

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

func (a *app) doctor() error {
	list := append([]finding{kernel(), cgroups(), descriptions()}, daemons()...)
	for _, f := range list {
		a.fails = a.fails || !f.OK
	}
	if a.json {
		return a.value(map[string]any{"items": list})
	}
	for _, f := range list {
		if f.OK {
			a.line("ok     %s", f.What)
			continue
		}
		a.line("WRONG  %s", f.What)
		if f.Next != "" {
			a.line("       next: %s", f.Next)
		}
	}
	return nil
}

// kernel holds the running kernel to the floor of 6.8.
func kernel() finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return finding{What: "kernel: " + err.Error()}
	}
	release := unix.ByteSliceToString(u.Release[:])
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(strings.TrimRight(minor, "-+abcdefghijklmnopqrstuvwxyz"))
	if errX != nil || errY != nil || x < 6 || x == 6 && y < 8 {
		return finding{What: "kernel " + release, Next: "callers are known from the kernel since 6.8: install a newer one"}
	}
	return finding{OK: true, What: "kernel " + release}
}

// cgroupRoot is where cgroup2 is mounted, or "".
func cgroupRoot() string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	root := ""
	for l := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(l, " - ")
		if f := strings.Fields(before); ok && len(f) > 4 && f[3] == "/" && strings.HasPrefix(after, "cgroup2 ") {
			root = f[4] // the newest mount covers older ones
		}
	}
	return root
}

func cgroups() finding {
	root := cgroupRoot()
	if root == "" {
		return finding{What: "cgroup v2 is not mounted", Next: "boot with systemd's unified hierarchy"}
	}
	return finding{OK: true, What: "cgroup v2 at " + root}
}

func descriptions() finding {
	dir, err := describe.Dir()
	if err != nil {
		return finding{What: err.Error()}
	}
	var names []string
	for _, name := range installed(dir) {
		d, err := describe.Load(dir, name)
		if err != nil {
			return finding{What: "description of " + name + ": " + err.Error(), Next: "reinstall doorward"}
		}
		names = append(names, fmt.Sprintf("%s (%d methods)", d.Vendor, len(d.Methods)))
	}
	if len(names) == 0 {
		return finding{What: "no connector is installed in " + dir, Next: "reinstall doorward"}
	}
	return finding{OK: true, What: "connectors: " + strings.Join(names, ", ")}
}

// daemons asks each daemon that a person may ask.
func daemons() []finding {
	list := make([]finding, 0, 4)
	say := func(name string, err error) {
		if err == nil {
			list = append(list, finding{OK: true, What: name + " answers"})
			return
		}
		f := finding{What: name + ": " + err.Error()}
		if e, ok := err.(*wire.Error); ok { //nolint:errorlint // ask returns it bare
			f.What, f.Next = name+": "+string(e.Code)+": "+e.Reason, e.Next
			if f.Next == "doorward doctor" {
				f.Next = "start it: systemctl start doorward-" + name + ".socket; journalctl -u doorward-" + name +
					" says why it is down"
			}
			if e.Code == wire.CodeLocked {
				f.Next = "doorward unlock"
			}
		}
		list = append(list, f)
	}
	_, err := ask[wire.PendingResp](wire.PathApprove, "pending", &wire.Empty{})
	say("sentinel", err)
	all, err := accounts()
	say("authd", err)
	for _, acc := range all {
		if acc.Health != "" {
			list = append(list, finding{What: "account " + acc.Name + " of " + acc.Vendor + ": " + string(acc.Health),
				Next: "doorward account test " + acc.Name + "; then doorward account add " + acc.Vendor + " " + acc.Name +
					" --replace"})
		}
	}
	return list
}

// places are files that must hold no credential, where they are.
var places = [...]string{"/var/lib/doorward", "/var/log/doorward", "/var/lib/private/doorward", "/etc/doorward"}

func (a *app) leaks(from *source, files []string) error {
	if os.Geteuid() != 0 {
		return wire.Refuse(wire.CodeNotAllowed, "only root can read other processes", "run it as root")
	}
	root := cgroupRoot()
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
