// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// trust makes what a cell trusts, as `cells nspawn` does, of the root that its egress has made; without one it does not start.
// The cell's tree is this machine's, so of /etc/ssl/certs it gets a copy, in which there is room for what is bound.
func (h *host) trust(cell string) ([]trust.Bind, error) {
	root, err := trust.Root(h.w.State("egress@" + cell))
	if err != nil {
		return nil, fmt.Errorf("the root of the egress of cell %s: %w", cell, err)
	}
	bundle, err := os.ReadFile(wire.SystemBundle)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dir := wire.RunDir + "private/ca/" + cell
	if err := trust.Make(dir, root, bundle); err != nil {
		return nil, err
	}
	certs := filepath.Dir(wire.SystemBundle)
	mine := h.w.path("certs-" + cell)
	if out, err := exec.Command("cp", "--archive", "--no-target-directory", certs, mine).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", certs, err, out)
	}
	list := []trust.Bind{{From: mine, To: certs}}
	for _, b := range trust.Binds(dir, wire.CellCA, wire.SystemBundle, root, isFile) {
		rel, err := filepath.Rel(certs, b.To)
		switch in := filepath.Join(mine, rel); {
		case err != nil || !filepath.IsLocal(rel): // a file of this machine, if it is there
			if dir := filepath.Dir(b.To); !isFile(b.To) && dir != filepath.Clean(wire.RunDir) {
				continue
			}
		case !isFile(in):
			if err := os.WriteFile(in, nil, 0o644); err != nil {
				return nil, err
			}
		}
		list = append(list, b)
	}
	return list, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// readOnly mounts a file or folder on another.
func readOnly(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s on %s: %w", from, to, err)
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
