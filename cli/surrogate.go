// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// surrogate gets a fresh value of what a person issued into this cell. It stands for a credential in this cell's own requests, and
// nowhere else; so it is printed, and is no secret of the person's.
func (a *app) surrogate(args []string) *wire.Error {
	o, words, err := plain("surrogate", args)
	if err != nil {
		return err
	}
	a.json = o.json
	switch {
	case len(words) == 0 && o.out != "":
		return usage("surrogate --out takes the name that the person gave it", "connector surrogate")
	case len(words) == 0:
		return a.surrogates()
	case len(words) > 1:
		return usage("surrogate takes the name that the person gave it, and no more", "connector surrogate")
	}
	file := o.out
	if file == "-" {
		file = ""
	}
	var to *fresh
	if file != "" {
		if to, err = beside(file); err != nil {
			return err // and none is made that could not be kept
		}
		defer to.drop()
	}
	var r wire.SurrogateResp
	if err := ask("surrogate", &wire.SurrogateReq{Name: words[0]}, &r); err != nil {
		return err
	}
	if len(r.Value) == 0 || len(r.Value) > wire.MaxInline || strings.ContainsFunc(string(r.Value), hidden) {
		return wire.Refuse(wire.CodeInternal, "sentinel answered what is no surrogate", "tell the person: doorward doctor")
	}
	if to != nil {
		if e := to.keep(r.Value); e != nil {
			return unwritten(file, e)
		}
		a.note("wrote " + strconv.Itoa(len(r.Value)) + " bytes to " + file)
	}
	switch {
	case !a.json && file != "":
		return nil
	case !a.json:
		return a.print(append(r.Value, '\n'))
	}
	b := []byte{'{'}
	if file != "" {
		b = append(append(member(b, "out", file), `,"bytes":`...), strconv.Itoa(len(r.Value))...)
	} else {
		b = member(b, "value", string(r.Value))
	}
	if r.Unix > 0 {
		b = append(append(b, `,"ends":`...), strconv.FormatInt(r.Unix, 10)...)
	}
	return a.print(append(b, '}', '\n'))
}

// surrogates lists what is issued into this cell: for which hosts, where in a request it stands, and until when.
func (a *app) surrogates() *wire.Error {
	var r wire.SurrogateResp
	if err := ask("surrogate", &wire.SurrogateReq{}, &r); err != nil {
		return err
	}
	var b []byte
	if a.json {
		b = append(b, `{"items":[`...)
		for i, x := range r.Issued {
			b = append(members(comma(b, i), "name", x.Name), `,"hosts":[`...)
			for j, h := range x.Hosts {
				b = jsonString(comma(b, j), h, true)
			}
			b = member(append(b, `],`...), "place", x.Place)
			if x.Unix > 0 {
				b = strconv.AppendInt(append(b, `,"ends":`...), x.Unix, 10)
			}
			if x.Err != nil {
				b = append(members(append(b, `,"error":`...), "code", string(x.Err.Code), "reason", x.Err.Reason, "next", x.Err.Next), '}')
			}
			b = append(b, '}')
		}
		return a.print(append(b, "]}\n"...))
	}
	for i := range r.Issued {
		x := &r.Issued[i]
		b = append(b, oneLine(issuedWords(x))+"\n"...)
		if x.Err != nil {
			b = append(b, oneLine("  it cannot be used: "+x.Err.Error()+"; "+x.Err.Next)+"\n"...)
		}
	}
	if len(r.Issued) == 0 {
		b = append(b, "no surrogate is issued here; the person runs: doorward surrogate add NAME --cell CELL --manifest FILE\n"...)
	}
	return a.print(b)
}

func issuedWords(x *wire.IssuedHere) string {
	s := x.Name + ": for " + strings.Join(x.Hosts, ", ") + "; its place is " + x.Place
	if x.Unix > 0 {
		s += "; until " + stamp(x.Unix)
	}
	return s
}

// issuedFindings are those of what is issued into this cell.
func issuedFindings() []finding {
	var r wire.SurrogateResp
	if err := ask("surrogate", &wire.SurrogateReq{}, &r); err != nil {
		return []finding{{"surrogate", "surrogates: " + string(err.Code) + ": " + err.Reason, err.Next, true}}
	}
	var out []finding
	for i := range r.Issued {
		f := finding{check: "surrogate", what: "surrogate " + issuedWords(&r.Issued[i])}
		if e := r.Issued[i].Err; e != nil {
			f.what, f.next, f.wrong = f.what+": "+e.Error(), e.Next, true
		}
		out = append(out, f)
	}
	return out
}

func unwritten(file string, err error) *wire.Error {
	return wire.Refuse(wire.CodeUsage, "--out "+quote(file)+": "+err.Error(), "name a file that can be written")
}

// fresh is a file that is to take another's place: who reads that finds its old bytes or the new ones, and at no moment can
// anybody else read these.
type fresh struct {
	fd         int
	path, file string
}

// beside makes one for a name that leads to a regular file, or to nothing yet.
func beside(file string) (*fresh, *wire.Error) {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, wire.Refuse(wire.CodeUsage, "--out "+quote(file)+": it is no regular file, and would be replaced",
			"name a file, or leave --out away for stdout")
	}
	path := file + "." + strconv.Itoa(unix.Getpid()) + ".new"
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, unwritten(file, err)
	}
	return &fresh{fd, path, file}, nil
}

// keep writes b, and puts it into the place of the file.
func (f *fresh) keep(b []byte) error {
	if err := unix.Fchmod(f.fd, 0o600); err != nil { // whatever the umask takes away
		return err
	}
	if err := writeAll(f.fd, b); err != nil {
		return err
	}
	if err := unix.Fsync(f.fd); err != nil {
		return err
	}
	if err := unix.Rename(f.path, f.file); err != nil {
		return err
	}
	f.path = ""
	return nil
}

// drop closes the file, and removes it where it was not kept.
func (f *fresh) drop() {
	unix.Close(f.fd)
	if f.path != "" {
		_ = unix.Unlink(f.path)
	}
}
