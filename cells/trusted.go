// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/wire"
)

// egressState is the folder of the state directories of the cells' egresses, as its unit says; systemd has a link there.
const egressState = "/var/lib/doorward/egress-cell/"

// trustDir is where `cells nspawn` puts what a cell trusts, in a folder of the cell's name. Root alone comes into private.
const trustDir = wire.CADir

// trusted makes what the cell of that name trusts: what its tree does, and the root of its egress. Without that root it is not
// started: half of its programs would take the egress's certificates for an attack, or a credential for a bad one.
func (c *config) trusted(name string) ([]trust.Bind, error) {
	root, err := trust.Root(egressState + name)
	if err != nil {
		return nil, refusedRoot(name, err)
	}
	return c.store(name, trustDir+name, root)
}

// store writes it into dir.
func (c *config) store(name, dir string, root *x509.Certificate) ([]trust.Bind, error) {
	tree, err := os.OpenFile(c.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the tree of cell %s: %w", name, err)
	}
	defer tree.Close()
	bundle, err := bundleOf(tree)
	if err != nil {
		return nil, wire.Refuse(wire.CodeNotConfigured, "cell "+name+" is not started: what its tree trusts is not known: "+err.Error(),
			"mend "+wire.SystemBundle+" in "+c.Root)
	}
	if err := trust.Make(dir, root, bundle); err != nil {
		return nil, err
	}
	return trust.Binds(dir, wire.CellCA, wire.SystemBundle, root, func(path string) bool { return c.has(tree, path) }), nil
}

func refusedRoot(name string, err error) error {
	why := "the root of its egress's certificates is not known: " + err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		why = "its egress has not made the root of its certificates yet"
	}
	return wire.Refuse(wire.CodeUnavailable, "cell "+name+" is not started: "+why,
		"systemctl status doorward-egress@"+name+"; systemctl restart doorward-egress@"+name+"; doorward cell start "+name)
}

// bundleOf is the bundle of a tree, which the cell writes; none is empty.
func bundleOf(tree *os.File) ([]byte, error) {
	f, err := openIn(tree, strings.TrimPrefix(wire.SystemBundle, "/"), unix.O_RDONLY, regular)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, trust.MaxBundle+1))
	if err == nil && len(b) > trust.MaxBundle {
		err = fmt.Errorf("it has more than %d bytes", trust.MaxBundle)
	}
	return b, err
}

// has says whether the cell will have a file of that path. /usr may be this machine's.
func (c *config) has(tree *os.File, path string) bool {
	if c.Usr == "host" && strings.HasPrefix(path, "/usr/") {
		_, err := os.Stat(path)
		return err == nil
	}
	_, err := openIn(tree, strings.TrimPrefix(path, "/"), unix.O_PATH, regular)
	return err == nil
}

func regular(st *unix.Stat_t, _ *unix.Statfs_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// trusts says whether the cell, which runs, has the root.
func (l *leader) trusts() bool {
	_, err := l.open(strings.TrimPrefix(wire.CellCA+wire.CARoot, "/"), unix.O_PATH, regular)
	return err == nil
}

// trustEnv is wire.TrustEnv as an environment.
func trustEnv() []string {
	var list []string
	all := wire.TrustEnv()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}
