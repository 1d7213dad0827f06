// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

// maxPolicy is the largest policy file in bytes.
const maxPolicy = 256 << 10

func (a *app) policyCmd() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "show, check, load and explain the policy"}
	plain := func(op, short string) *cobra.Command {
		return &cobra.Command{Use: op, Short: short, RunE: func(*cobra.Command, []string) error {
			return a.policy(&wire.PolicyReq{Op: op}, false)
		}}
	}
	var yes bool
	load := &cobra.Command{
		Use: "load [FILE|FOLDER]...", Short: "take up an edited policy; what widens is decided like a call",
		RunE: func(_ *cobra.Command, args []string) error { return a.policyFiles("load", args, yes) },
	}
	load.Flags().BoolVar(&yes, "yes", false, "decide at once, without asking")
	check := &cobra.Command{
		Use: "check [FILE|FOLDER]...", Short: "check policy files, and say what loading them would change",
		Long: `Without names it checks the policy folder of the configuration. Named are policy.toml and .cedar
files, or a folder of them. The limits.toml of the configuration is checked with them. Where sentinel
is not here, they are checked all the same, and what would change is not said.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.checkPolicy(args) },
	}
	c.AddCommand(plain("show", "the policy in force"), &cobra.Command{Use: "sites",
		Short: "the named sets of sites, and their hosts", RunE: func(*cobra.Command, []string) error {
			if a.Sites == nil {
				return wire.Refuse(wire.CodeInternal, "this build has no sets of sites", "reinstall doorward")
			}
			return a.printPolicy(&wire.PolicyResp{Lines: a.Sites()}) // they are in the binary: no daemon is asked
		}},
		check, load, a.explainCmd(), plain("cedar",
			"the policy in force as Cedar"))
	return c
}

func (a *app) policyFiles(op string, names []string, yes bool) error {
	files, err := policyFiles(names)
	if err != nil {
		return err
	}
	return a.policy(&wire.PolicyReq{Op: op, Files: files}, yes)
}

// configDir is the configuration of an installed machine.
const configDir = "/etc/doorward"

// checkPolicy asks sentinel, and checks without it where it is not here.
func (a *app) checkPolicy(names []string) error {
	err := a.policyFiles("check", names, false)
	var refused *wire.Error
	if !errors.As(err, &refused) || refused.Code != wire.CodeUnavailable || a.CheckPolicy == nil {
		return err
	}
	dir, err := describe.Dir()
	if err != nil {
		return wire.Refuse(wire.CodeInternal, err.Error(), "reinstall doorward")
	}
	var descs []*describe.Connector
	for _, name := range installed(dir) {
		d, err := describe.Load(dir, name)
		if err != nil {
			return wire.Refuse(wire.CodeInternal, "description of "+name+": "+err.Error(), "reinstall doorward")
		}
		descs = append(descs, d)
	}
	if len(descs) == 0 {
		return wire.Refuse(wire.CodeUnavailable, refused.Reason+", and no connector is installed in "+dir,
			"a policy is checked by the connectors' descriptions: doorward doctor")
	}
	folder := filepath.Join(configDir, "policy")
	if len(names) == 0 {
		if exists(folder) {
			names = []string{folder}
		}
	}
	var limits []byte
	if file := filepath.Join(configDir, "limits.toml"); exists(file) {
		if limits, err = readFile(file, maxPolicy); err != nil {
			return err
		}
	}
	if len(names) == 0 && limits == nil {
		return wire.Refuse(wire.CodeUsage, "there is no policy in "+folder+", so there is nothing to check; the default holds",
			"name policy.toml, or a folder of it; the default to begin with is /usr/share/doorward/policy.toml")
	}
	files, err := policyFiles(names)
	if err != nil {
		return err
	}
	r := &wire.PolicyResp{}
	r.Problems, r.Notes = a.CheckPolicy(files, descs, limits)
	if err := a.printPolicy(r); err != nil {
		return err
	}
	if a.json {
		return nil
	}
	switch {
	case a.fails:
	case len(names) == 0:
		a.line("nothing is wrong with %s/limits.toml; there is no policy in %s, so the default holds", configDir, folder)
	default:
		a.line("nothing is wrong with it")
	}
	a.note("sentinel is not here, so what this would change of the policy in force is not known: doorward doctor")
	return nil
}

// policy asks and prints. A policy with faults ends with exit code 1.
func (a *app) policy(req *wire.PolicyReq, yes bool) error {
	r, err := ask[wire.PolicyResp](wire.PathApprove, "policy", req)
	if err != nil {
		return err
	}
	for r.Next > req.From { // show and cedar of a large set
		req.From = r.Next
		more, err := ask[wire.PolicyResp](wire.PathApprove, "policy", req)
		if err != nil {
			return err
		}
		r.Lines, r.Next = append(r.Lines, more.Lines...), more.Next
	}
	if err := a.printPolicy(r); err != nil || a.json {
		return err
	}
	switch {
	case a.fails && req.Op == "load":
		a.note("nothing is changed: the last decided policy stays")
	case a.fails || req.Op != "check" && req.Op != "load":
	case len(r.Lines) == 0 && r.Widening == "":
		a.line("no change to what is in force")
	case req.Op == "load" && r.Widening == "":
		a.line("the policy is in force")
	}
	return a.offer(r.Widening, yes)
}

// printPolicy prints what was said of a policy. One with faults ends with exit code 1.
func (a *app) printPolicy(r *wire.PolicyResp) error {
	a.fails = len(r.Problems) > 0
	if a.json {
		return a.value(map[string]any{"lines": notNil(r.Lines), "problems": notNil(r.Problems), "notes": notNil(r.Notes),
			"widening": r.Widening})
	}
	for _, l := range r.Lines {
		for _, shown := range visible.Source(l) { // policy is text with indentation and columns, the person's own
			fmt.Fprintln(a.out, shown)
		}
	}
	for _, p := range r.Problems {
		a.note(p)
	}
	for _, n := range r.Notes {
		a.note("note: " + n)
	}
	return nil
}

// policyFiles reads the files that are named, and the policy files of folders that are named.
func policyFiles(names []string) ([]wire.PolicyFile, error) {
	var paths []string
	for _, n := range names {
		st, err := os.Stat(n)
		if err != nil {
			return nil, unreadable(n, err)
		}
		if !st.IsDir() {
			if err := policyName(n); err != nil && st.Mode().IsRegular() {
				return nil, err
			}
			paths = append(paths, n)
			continue
		}
		entries, err := os.ReadDir(n)
		if err != nil {
			return nil, unreadable(n, err)
		}
		for _, e := range entries {
			if e.Name() == "policy.toml" || strings.HasSuffix(e.Name(), ".cedar") {
				paths = append(paths, filepath.Join(n, e.Name()))
			}
		}
	}
	if len(names) > 0 && len(paths) == 0 {
		return nil, wire.Refuse(wire.CodeUsage, "no policy.toml or .cedar file in "+strings.Join(names, ", "),
			"name such a file, or the folder of it")
	}
	var files []wire.PolicyFile
	for _, p := range paths {
		b, err := readFile(p, maxPolicy)
		if err != nil {
			return nil, err
		}
		files = append(files, wire.PolicyFile{Name: filepath.Base(p), Body: b})
	}
	return files, nil
}

func unreadable(path string, err error) error {
	return wire.Refuse(wire.CodeUsage, "read "+path+": "+plainly(err), "name a file that can be read")
}

// policyName refuses a file whose name says that it is something else.
func policyName(path string) error {
	switch base := filepath.Base(path); {
	case base == "policy.toml", strings.HasSuffix(base, ".cedar"):
		return nil
	case base == "limits.toml":
		return wire.Refuse(wire.CodeUsage, path+": limits.toml is no policy, it is the admin's and counts from "+configDir,
			"put it to "+configDir+"/limits.toml; doorward policy check, without a name, checks it there")
	}
	return wire.Refuse(wire.CodeUsage, path+": a policy is a file policy.toml, or NAME.cedar beside it",
		"name it policy.toml; in a folder of its own it can be checked before it is put in its place")
}

// plainly is an error of a file without its path, which is said already.
func plainly(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return err.Error()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case !st.Mode().IsRegular():
		return nil, wire.Refuse(wire.CodeUsage, "read "+path+": no regular file", "name a file")
	case st.Size() > limit:
		return nil, wire.Refuse(wire.CodeTooLarge, "read "+path+": larger than it can be", "it has at most "+
			strconv.FormatInt(limit, 10)+" bytes")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return b, nil
}

func (a *app) explainCmd() *cobra.Command {
	var attended, unattended bool
	var at string
	var reads, readBytes int64
	req := &wire.PolicyReq{Op: "explain"}
	c := &cobra.Command{
		Use: "explain [FLAGS] CONNECTOR METHOD [--flag value]...", Short: "what the policy says of a call or a connection, and why",
		Long: `The call is written as the agent would write it, behind the flags of this command. Nothing is sent
anywhere. What is not said of the caller is as it is now, and the answer says how that is: the newest
session of the cell, what it has read, who was written to before. With the id of a call that waits or
ended, in place of the words, its own decision is shown. site HOST or site HOST:PORT in place of the
call is a connection of a program in the cell, and request METHOD https://HOST/PATH one request on it.`,
		RunE: func(c *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return wire.Refuse(wire.CodeUsage, "name a call", "doorward policy explain github issues --repo o/r")
			case 1:
				return a.explainCard(args[0])
			}
			var err error
			if args[0] == "site" {
				req.Site = args[1]
			} else if args[0] == "request" {
				if req.Request, err = requestOf(a.ownFlags(args[1:])); err != nil {
					return err
				}
			} else if req.Frame, err = frame(args[0], args[1], a.ownFlags(args[2:])); err != nil {
				return err
			}
			if attended && unattended {
				return wire.Refuse(wire.CodeUsage, "--attended and --unattended are opposites", "give one")
			}
			if attended || unattended {
				req.Attended = &attended
			}
			if c.Flags().Changed("reads") {
				req.Reads = &reads
			}
			if c.Flags().Changed("read-bytes") {
				req.ReadBytes = &readBytes
			}
			if at != "" {
				t, err := time.ParseInLocation("2006-01-02T15:04", at, time.Local)
				if err != nil {
					return wire.Refuse(wire.CodeUsage, "--at "+at+": no time", "write it as 2030-03-10T09:00")
				}
				req.Unix = t.Unix()
			}
			if req.Cell != "" {
				a.noteCell(req.Cell)
			}
			return a.policy(req, false)
		},
	}
	c.DisableFlagsInUseLine = true
	c.Flags().SetInterspersed(false) // what follows the connector is the call's
	c.Flags().StringVar(&req.Cell, "cell", "", "the cell that asks; without it the only one with a session")
	c.Flags().StringVar(&req.Session, "session", "", "the session that asks; without it the newest of the cell")
	c.Flags().BoolVar(&attended, "attended", false, "suppose that every session of the cell is attended")
	c.Flags().BoolVar(&unattended, "unattended", false, "suppose that it is not attended")
	c.Flags().StringVar(&req.By, "by", "", "suppose that this unit started the session")
	c.Flags().Int64Var(&reads, "reads", 0, "suppose so many reads of the connector in the session")
	c.Flags().Int64Var(&readBytes, "read-bytes", 0, "suppose so many bytes of answers in the session")
	c.Flags().StringVar(&at, "at", "", "suppose that it is then, such as 2030-03-10T09:00")
	return c
}

// ownFlags takes --json, which is this command's wherever it stands, out of a call's words.
func (a *app) ownFlags(words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool {
		a.json = a.json || w == "--json"
		return w == "--json"
	})
}

func (a *app) explainCard(id string) error {
	k, err := card(id)
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"id": k.ID, "state": k.State, "reason": k.Reason, "policies": notNil(k.Policies)})
	}
	a.line("%s %s %s is %s", k.ID, k.Connector, k.Method, k.State)
	a.line("it asks because %s", k.Reason)
	for _, p := range k.Policies {
		a.line("policy %s", p)
	}
	return nil
}

// installed are the names of the installed descriptions.
func installed(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "*"+describe.Ext)) // the pattern is right
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), describe.Ext)
	}
	return files
}

func absentConnector(dir, vendor string) error {
	return wire.Refuse(wire.CodeUnknownConnector, "no connector "+vendor+" is installed",
		strings.TrimSuffix(meant("", vendor, installed(dir)), "see: ")+"there are "+
			orElse(strings.Join(installed(dir), ", "), "none; reinstall doorward"))
}

// frame reads the words of a call by the vendor's description.
func frame(vendor, name string, args []string) (*wire.Frame, error) {
	dir, err := describe.Dir()
	if err != nil {
		return nil, wire.Refuse(wire.CodeInternal, err.Error(), "reinstall doorward")
	}
	d, err := describe.Load(dir, vendor)
	if err != nil {
		return nil, absentConnector(dir, vendor)
	}
	m, ok := d.Method(name)
	if !ok {
		var names []string
		for i := range d.Methods {
			names = append(names, d.Methods[i].Name)
		}
		return nil, wire.Refuse(wire.CodeUnknownMethod, "no method "+name+" of "+vendor,
			meant("", name, names)+"connector describe "+vendor)
	}
	f := &wire.Frame{Connector: vendor, Description: d.Digest(), Method: name}
	for len(args) > 0 {
		flag, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		flag, dashes := strings.CutPrefix(flag, "--")
		arg, ok := m.Arg(flag)
		switch {
		case !dashes || !ok && flag != "account":
			var names []string
			for i := range m.Args {
				names = append(names, m.Args[i].Name)
			}
			return nil, wire.Refuse(wire.CodeBadArgument, "no flag "+flag+" of "+vendor+" "+name,
				meant("--", flag, names)+"connector describe "+vendor+" "+name)
		case given:
		case ok && arg.Type == describe.TypeBool:
			value = "true"
		case len(args) == 0:
			return nil, wire.Refuse(wire.CodeBadArgument, "--"+flag+" needs a value",
				"connector describe "+vendor+" "+name)
		default:
			value, args = args[0], args[1:]
		}
		switch {
		case !ok:
			f.Account = value
		case arg.Type == describe.TypeFile:
			b, err := readFile(value, wire.MaxFile)
			if err != nil {
				return nil, err
			}
			f.Files = append(f.Files, wire.File{Arg: flag, Name: filepath.Base(value), Size: int64(len(b)),
				SHA256: sha256.Sum256(b)})
		default:
			if value, err = arg.Canon(value); err != nil {
				return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "connector describe "+vendor+" "+name)
			}
			i := slices.IndexFunc(f.Args, func(x wire.Arg) bool { return x.Name == flag })
			if i < 0 {
				f.Args = append(f.Args, wire.Arg{Name: flag})
				i = len(f.Args) - 1
			}
			f.Args[i].Values = append(f.Args[i].Values, value)
		}
	}
	slices.SortFunc(f.Args, func(x, y wire.Arg) int { return strings.Compare(x.Name, y.Name) })
	if _, err := m.Decode(f); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "connector describe "+vendor+" "+name)
	}
	return f, nil
}
