// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// options are the flags that every method has. A method's own argument of the same name goes first.
type options struct {
	json    bool
	help    bool
	fields  []string      // of the answer, dotted
	limit   int           // items of a list that are printed; 0 is all
	out     string        // file for the answer; "-" is stdout without a cap
	account string        // name
	wait    time.Duration // for a person's approval; negative: not given
}

// common are the names of options, with whether they take a value and what help says.
var common = [...]struct{ name, value, help string }{
	{"account", "NAME", "which account, where there are several"},
	{"json", "", "print the answer as JSON; errors are JSON objects on stderr"},
	{"fields", "A,B.C", "print these fields of the answer only (of each item, where it is a list)"},
	{"limit", "N", "print N items at most"},
	{"out", "FILE", "write the whole answer to FILE; needed above 64 KiB of text or 256 KiB of JSON"},
	{"wait", "DURATION", "how long to wait for a person's approval, such as 30s or 10m; 0s not at all"},
	{"help", "", "say what the method takes"},
}

// maxArgs is the size of all arguments together in bytes; with what stands around them they fit into one frame.
const maxArgs = wire.MaxFrame - 64<<10

// maxWait is the longest --wait.
const maxWait = 12 * time.Hour

// set takes one common flag. ok is false where there is none of that name.
func (o *options) set(name, value string) (ok bool, err *wire.Error) {
	bad := func(want string) (bool, *wire.Error) {
		return true, usage("--"+name+" "+quote(value)+": "+want, "connector help")
	}
	switch name {
	case "json", "help":
		if value != "true" && value != "false" {
			return bad("takes no value")
		}
		if name == "json" {
			o.json = value == "true"
		} else {
			o.help = value == "true"
		}
	case "fields":
		o.fields = strings.Split(value, ",")
		if slices.Contains(o.fields, "") {
			return bad("field names with commas between them")
		}
	case "limit":
		n, e := strconv.Atoi(value)
		if e != nil || n < 1 {
			return bad("a whole number from 1")
		}
		o.limit = n
	case "out":
		if value == "" {
			return bad("the name of a file, or - for stdout")
		}
		o.out = value
	case "account":
		if value == "" {
			return bad("the name of an account, see: connector list")
		}
		o.account = value
	case "wait":
		d, e := time.ParseDuration(value)
		if e != nil || d < 0 || d > maxWait {
			return bad("a duration such as 30s or 10m, at most 12h")
		}
		o.wait = d
	default:
		return false, nil
	}
	return true, nil
}

// flag splits "--name=value". Where there is no "=", value is "" and given is false.
func flag(s string) (name, value string, given bool) {
	name, value, given = strings.Cut(strings.TrimPrefix(s, "--"), "=")
	return name, value, given
}

// parser reads the flags of one method.
type parser struct {
	c     *describe.Connector
	m     *describe.Method
	file  []byte // the description's, for its digest
	opts  options
	args  []wire.Arg
	files []source
}

// source is an argument whose value is to be read from a file or stdin.
type source struct {
	arg  *describe.Arg
	path string // "-" is stdin
	flag string // as it was given
}

// kind says what flag name takes: the argument it is of, whether its value is a path, whether it stands alone.
func (p *parser) kind(name string) (a *describe.Arg, path, alone, ok bool) {
	if a, ok := p.m.Arg(name); ok {
		return a, a.Type == describe.TypeFile, a.Type == describe.TypeBool, true
	}
	if base, is := strings.CutSuffix(name, "-file"); is {
		if a, ok := p.m.Arg(base); ok && a.Type == describe.TypeText {
			return a, true, false, true
		}
	}
	for _, c := range common {
		if c.name == name {
			return nil, false, c.value == "", true
		}
	}
	return nil, false, false, false
}

func (p *parser) see() string { return "connector describe " + p.c.Vendor + " " + p.m.Name }

func (p *parser) parse(args []string) *wire.Error {
	p.opts.wait = -1
	for len(args) > 0 {
		s := args[0]
		args = args[1:]
		if s == "-h" {
			s = "--help"
		}
		if len(s) < 3 || s[:2] != "--" {
			return usage("no flag: "+quote(s)+"; every argument is a flag with a value", p.see())
		}
		name, value, given := flag(s)
		a, path, alone, ok := p.kind(name)
		switch {
		case !ok:
			return unknown(wire.CodeUsage, "no flag --"+oneLine(name)+" of "+p.c.Vendor+" "+p.m.Name,
				dashed(nearest(name, p.flags())), p.see())
		case given:
		case alone:
			value = "true"
		case len(args) == 0:
			return usage("--"+name+" needs a value", p.see())
		case p.isFlag(args[0]):
			return wire.Refuse(wire.CodeUsage, "--"+name+" needs a value, and a flag follows it",
				"if "+quote(args[0])+" is the value, write --"+name+"="+oneLine(args[0]))
		default:
			value, args = args[0], args[1:]
		}
		switch {
		case a == nil:
			if _, err := p.opts.set(name, value); err != nil {
				return err
			}
		case path:
			if value == "" {
				return usage("--"+name+" needs the path of a file, or - for stdin", p.see())
			}
			p.files = append(p.files, source{a, value, name})
		default:
			if err := p.add(a, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func dashed(s string) string {
	if s == "" {
		return ""
	}
	return "--" + s
}

// isFlag says whether s is a flag that p's method has.
func (p *parser) isFlag(s string) bool {
	if len(s) < 3 || s[:2] != "--" {
		return false
	}
	name, _, _ := flag(s)
	_, _, _, ok := p.kind(name)
	return ok
}

// flags are the names of all flags of the method.
func (p *parser) flags() []string {
	var names []string
	for i := range p.m.Args {
		a := &p.m.Args[i]
		names = append(names, a.Name)
		if a.Type == describe.TypeText {
			names = append(names, a.Name+"-file")
		}
	}
	for _, c := range common {
		names = append(names, c.name)
	}
	return names
}

// add takes one value of an argument, in the form that sentinel takes it.
func (p *parser) add(a *describe.Arg, value string) *wire.Error {
	c, err := a.Canon(value)
	if err != nil {
		return p.misfit(a, value, err)
	}
	i, found := slices.BinarySearchFunc(p.args, a.Name, func(x wire.Arg, name string) int {
		return strings.Compare(x.Name, name)
	})
	if !found {
		p.args = slices.Insert(p.args, i, wire.Arg{Name: a.Name})
	}
	p.args[i].Values = append(p.args[i].Values, c)
	return nil
}

// misfit is the error about a value that is not of its argument's form.
func (p *parser) misfit(a *describe.Arg, value string, err error) *wire.Error {
	var arg *describe.ArgError
	if a.Type == describe.TypeText || !utf8.ValidString(value) || !errors.As(err, &arg) {
		return p.bad(err)
	}
	want := arg.Problem
	if a.Type == describe.TypeTime {
		want = "a date as 2030-03-10, for its midnight UTC, or " + want
	}
	return wire.Refuse(wire.CodeBadArgument, "--"+a.Name+" "+quote(value)+": must be "+want, "see: "+p.see())
}

// bad is the error about an argument.
func (p *parser) bad(err error) *wire.Error {
	var arg *describe.ArgError
	if errors.As(err, &arg) {
		return wire.Refuse(wire.CodeBadArgument, arg.Error(), "see: "+p.see())
	}
	return wire.Refuse(wire.CodeBadArgument, err.Error(), "see: "+p.see())
}

// call is a semantic call that is ready to be asked for.
type call struct {
	c     *describe.Connector
	m     *describe.Method
	frame wire.Frame
	fds   []int // sealed memfds, in the order of frame.Files
}

// frame reads the files, makes the frame and holds it to the description, as sentinel will.
func (p *parser) frame() (*call, *wire.Error) {
	if err := p.missing(); err != nil {
		return nil, err
	}
	k := &call{c: p.c, m: p.m}
	stdin := ""
	for _, s := range p.files {
		if s.path == "-" {
			if stdin != "" {
				return nil, usage("--"+stdin+" and --"+s.flag+" both read stdin", p.see())
			}
			stdin = s.flag
		}
		if s.arg.Type == describe.TypeText {
			if slices.ContainsFunc(p.args, func(x wire.Arg) bool { return x.Name == s.arg.Name }) {
				return nil, usage("--"+s.arg.Name+" and --"+s.flag+" are one argument, which is given twice", p.see())
			}
			b, err := readText(&s)
			if err != nil {
				return nil, err
			}
			if err := p.add(s.arg, string(b)); err != nil {
				return nil, err
			}
			continue
		}
		if len(k.fds) == wire.MaxFiles {
			return nil, wire.Refuse(wire.CodeTooMany, "more than "+strconv.Itoa(wire.MaxFiles)+" files", "send fewer")
		}
		f, fd, err := sealed(&s)
		if err != nil {
			return nil, err
		}
		k.frame.Files = append(k.frame.Files, f)
		k.fds = append(k.fds, fd)
	}
	k.frame.Connector, k.frame.Method, k.frame.Account = p.c.Vendor, p.m.Name, p.opts.account
	k.frame.Description = wire.Sum(p.file)
	k.frame.Args = p.args
	if _, err := p.m.Decode(&k.frame); err != nil {
		return nil, p.bad(err)
	}
	size := 0
	for _, a := range p.args {
		for _, v := range a.Values {
			size += len(v)
		}
	}
	if size > maxArgs {
		return nil, wire.Refuse(wire.CodeTooLarge, "the arguments have "+strconv.Itoa(size)+" bytes, together at most "+
			strconv.Itoa(maxArgs), "send less")
	}
	return k, nil
}

// missing names all required arguments that were not given, before any file is read.
func (p *parser) missing() *wire.Error {
	var lack []string
next:
	for i := range p.m.Args {
		a := &p.m.Args[i]
		if !a.Required {
			continue
		}
		for j := range p.args {
			if p.args[j].Name == a.Name {
				continue next
			}
		}
		for j := range p.files {
			if p.files[j].arg == a {
				continue next
			}
		}
		lack = append(lack, "--"+a.Name)
	}
	if lack == nil {
		return nil
	}
	return wire.Refuse(wire.CodeBadArgument, "missing: "+strings.Join(lack, ", "), "see: "+p.see())
}
