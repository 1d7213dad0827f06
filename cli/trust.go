// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/doorward/doorward/internal/wire"
)

// Where the root of the cell's egress is looked for, and the environment. Tests set others.
type trustPlaces struct {
	root, bundle string
	env          func(string) (string, bool)
	installed    func(program string) bool
}

var realTrust = trustPlaces{root: wire.CellCA + wire.CARoot, bundle: wire.SystemBundle, env: os.LookupEnv,
	installed: inPath}

// maxBundle is the longest bundle that is looked through, in bytes; what is behind it does not count.
const maxBundle = 5 << 20

// ownRoots are runtimes that carry roots of their own, and what has them take the cell's.
var ownRoots = []struct{ program, title, next string }{
	{"bun", "Bun", "NODE_EXTRA_CA_CERTS is read by Bun from 1.1 on; before: bun --cafile=" + wire.SystemBundle},
	{"deno", "Deno", "DENO_CERT is set; or DENO_TLS_CA_STORE=system"},
	{"chromium", "Chromium", "its managed policy has the root; chrome://policy shows CACertificates"},
	{"google-chrome", "Chrome", "its managed policy has the root; chrome://policy shows CACertificates"},
	{"firefox", "Firefox", "it has a store of its own: Settings, Certificates, Import: " + wire.CellCA + wire.CARoot},
	{"java", "Java", "Debian's takes the cell's; another: java -Djavax.net.ssl.trustStore=" + wire.CellCA + wire.CAJava},
}

// findings say whether programs of the cell take what its egress answers TLS with. A program that does not says "bad certificate",
// or something that reads as a bad credential; so this is told before.
func (p trustPlaces) findings() []finding {
	const check, next = "trust", "tell the person: doorward cell stop CELL; doorward cell start CELL"
	root, err := os.ReadFile(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return []finding{{check, "trust: the cell has no root of its egress; where that reads requests, programs take it for an attack",
			next, true}}
	}
	if err != nil {
		return []finding{{check, "trust: the root cannot be read: " + err.Error(), next, true}}
	}
	var out []finding
	switch ok, err := inBundle(p.bundle, root); {
	case err != nil:
		out = append(out, finding{check, "trust: " + p.bundle + " cannot be read: " + err.Error(), next, true})
	case !ok:
		out = append(out, finding{check, "trust: the root of the cell's egress is not in " + p.bundle, next, true})
	default:
		out = append(out, finding{check: check, what: "trust: the root of the cell's egress is in " + p.bundle})
	}
	all := wire.TrustEnv()
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if value, set := p.env(name); set && value != all[name] {
			if ok, err := inBundle(value, root); err == nil && ok {
				continue // one's own, with the root in it
			}
			out = append(out, finding{check, "trust: " + name + " leads to roots without that of the cell's egress",
				"export " + name + "=" + all[name], true})
		} else if !set {
			out = append(out, finding{check, "trust: " + name + " is not set, and some programs read nothing else",
				"export " + name + "=" + all[name], false})
		}
	}
	for _, r := range ownRoots {
		if p.installed(r.program) {
			out = append(out, finding{check, "trust: " + r.title + " carries roots of its own", r.next, false})
		}
	}
	return out
}

// inBundle says whether a file of certificates in PEM has that one, as package cells writes it.
func inBundle(path string, root []byte) (bool, error) {
	root = bytes.TrimSpace(root)
	if len(root) == 0 {
		return false, errors.New("the root is empty")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false, errors.New("no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBundle))
	return bytes.Contains(b, root), err
}

// inPath says whether a program is found by PATH.
func inPath(program string) bool {
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		if st, err := os.Stat(dir + "/" + program); dir != "" && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
