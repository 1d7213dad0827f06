// SPDX-License-Identifier: Apache-2.0

// Package cli is `connector`, the command an agent runs in its cell. It exists so that an agent needs to know one
// command only: it turns flags into a semantic call by the vendor's description, asks sentinel, hands an allowed call
// to the vendor's worker and prints the answer. It holds nothing and decides nothing. Whoever owns the cell can
// replace it, so nothing relies on it: what it checks, sentinel and the worker check again. What it reads is made by
// strangers (vendors' answers), so it parses them with bounds and makes control characters visible on a terminal.
package cli

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// app is one run of the command.
type app struct {
	tell
	dir    string // of the descriptions, once found
	told   bool   // the error is on stderr already
	source string // connector and method of the call, where known
}

// Main does what args say and returns the exit code, see wire.Code.Exit.
func Main(args []string) int {
	a := &app{}
	err := a.run(args)
	if err == nil {
		return wire.ExitDone
	}
	if !a.told {
		a.report(err, "")
	}
	return err.Code.Exit()
}

func (a *app) run(args []string) *wire.Error {
	for _, s := range args { // errors before the flags are parsed obey it too
		if s == "--json" {
			a.json = true
		}
	}
	if len(args) == 0 {
		return usage("name what to do", "connector help")
	}
	word, rest := args[0], args[1:]
	if slices.Contains(builtin[:], word) && word != "help" && (slices.Contains(rest, "--help") || slices.Contains(rest, "-h")) {
		return a.print([]byte(commandHelp(word))) // nobody is asked
	}
	switch word {
	case "help", "--help", "-h":
		return a.help(rest)
	case "version", "--version":
		if len(rest) > 0 && !(len(rest) == 1 && rest[0] == "--json") {
			return usage("version takes no words", "connector help")
		}
		return a.version()
	case "list":
		return a.list(rest)
	case "describe":
		return a.describe(rest)
	case "inbox":
		return a.inbox(rest)
	case "doctor":
		return a.doctor(rest)
	case "result", "wait", "cancel":
		return a.collect(word, rest)
	case "surrogate":
		return a.surrogate(rest)
	case "guide":
		if len(rest) > 0 {
			return usage("guide takes no words", "connector help")
		}
		return a.print([]byte(Guide))
	case "completion":
		return a.completion(rest)
	case "__complete":
		return a.complete(rest)
	}
	if word == "" || word[0] == '-' {
		return usage("no flag "+word+" before the connector's name", "connector help")
	}
	return a.vendor(word, rest)
}

// vendor runs `connector <vendor> <method> [flags]`.
func (a *app) vendor(name string, rest []string) *wire.Error {
	if len(rest) == 0 {
		if _, err := a.load(name); err != nil {
			return err
		}
		return usage("name a method of "+name, "connector describe "+name)
	}
	if rest[0] == "--help" || rest[0] == "-h" {
		return a.describe([]string{name})
	}
	c, file, err := a.glance(name, rest[0])
	if err != nil {
		return err
	}
	m, err := method(c, rest[0])
	if err != nil {
		return err
	}
	p := parser{c: c, m: m, file: file}
	if err := p.parse(rest[1:]); err != nil {
		return err
	}
	if p.opts.help {
		return a.describe([]string{name, m.Name})
	}
	a.json = p.opts.json
	call, err := p.frame()
	if err != nil {
		return err
	}
	a.source = c.Vendor + " " + m.Name
	return a.call(call, &p.opts)
}

// load reads the description of a vendor whole.
func (a *app) load(name string) (*describe.Connector, *wire.Error) {
	if err := a.find(); err != nil {
		return nil, err
	}
	c, err := describe.Load(a.dir, name)
	if err != nil {
		return nil, a.absent(name, err)
	}
	return c, nil
}

// glance reads of a vendor's description what a call of one method needs, and the file's bytes.
func (a *app) glance(name, method string) (*describe.Connector, []byte, *wire.Error) {
	if err := a.find(); err != nil {
		return nil, nil, err
	}
	if !word(name) {
		return nil, nil, a.absent(name, nil)
	}
	file, err := mapped(a.dir+"/"+name+describe.Ext, describe.MaxFile)
	if err != nil {
		return nil, nil, a.absent(name, err)
	}
	c, err := describe.Glance(file, method)
	if err != nil {
		return nil, nil, a.absent(name, err)
	}
	return c, file, nil
}

// absent says why there is no description of a vendor.
func (a *app) absent(name string, err error) *wire.Error {
	if !word(name) || errors.Is(err, unix.ENOENT) {
		near := nearest(name, append(a.vendors(), builtin[:]...))
		return unknown(wire.CodeUnknownConnector, "no connector "+quote(name), near, "connector list")
	}
	return wire.Refuse(wire.CodeInternal, "read the description of "+name+": "+err.Error(), "reinstall doorward")
}

// mapped is a file of at most limit bytes, as it lies in the page cache: the process is over before a copy would pay.
// The file is root's, and replaced, never rewritten.
func mapped(path string, limit int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size > int64(limit) {
		return nil, unix.EFBIG
	}
	return unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
}

func (a *app) find() *wire.Error {
	if a.dir != "" {
		return nil
	}
	dir, err := describe.Dir()
	if err != nil {
		return wire.Refuse(wire.CodeInternal, err.Error(), "tell the person: doorward doctor")
	}
	a.dir = dir
	return nil
}

// vendors are the names of the installed descriptions, sorted.
func (a *app) vendors() []string {
	if a.find() != nil {
		return nil
	}
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if n := len(name) - len(describe.Ext); n > 0 && name[n:] == describe.Ext && word(name[:n]) {
			names = append(names, name[:n])
		}
	}
	return names
}

// method finds a method, or says which one may have been meant.
func method(c *describe.Connector, name string) (*describe.Method, *wire.Error) {
	if m, ok := c.Method(name); ok {
		return m, nil
	}
	return nil, unknown(wire.CodeUnknownMethod, "no method "+quote(name)+" of "+c.Vendor, nearest(name, methods(c)),
		"connector describe "+c.Vendor)
}

func methods(c *describe.Connector) []string {
	names := make([]string, len(c.Methods))
	for i := range c.Methods {
		names[i] = c.Methods[i].Name
	}
	return names
}

// release names this build: `make build` sets it with -X.
var release = "devel"

func (a *app) version() *wire.Error {
	if a.json {
		return a.print([]byte(`{"version":` + string(jsonString(nil, release, true)) + `,"protocol":` +
			strconv.Itoa(wire.Version) + "}\n"))
	}
	return a.print([]byte("connector " + release + ", protocol " + strconv.Itoa(wire.Version) + "\n"))
}

// word says whether s can be a connector's name.
func word(s string) bool {
	if len(s) == 0 || len(s) > 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
