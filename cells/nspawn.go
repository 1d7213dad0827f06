// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/wire"
)

// etc is where the configuration is when no unit says so.
const etc = "/etc/doorward"

const nspawnPath = "/usr/bin/systemd-nspawn"

// Main is the command beside the daemon: `nspawn CELL` becomes the cell, `check` reads every configuration. It returns
// an exit code, and says on w what is wrong.
func Main(args []string, w io.Writer) int {
	dir := filepath.Join(etc, "cells")
	switch {
	case len(args) == 2 && args[0] == "nspawn":
		err := become(dir, args[1])
		fmt.Fprintf(w, "start cell %s: %v\n", args[1], err)
		var refused *wire.Error
		if errors.As(err, &refused) { // whoever started the unit asks systemd for this
			fmt.Fprintf(w, "next: %s\n", refused.Next)
			_, _ = daemon.SdNotify(false, "STATUS="+asStatus(refused))
		}
		return wire.ExitFailure
	case len(args) == 1 && args[0] == "check":
		all, err := names(dir)
		code := wire.ExitDone
		for _, name := range all {
			c, bad := load(dir, name)
			if bad == nil {
				bad = c.startable(dir, name)
			}
			if bad != nil {
				fmt.Fprintln(w, bad)
				var refused *wire.Error
				if errors.As(bad, &refused) && refused.Next != "" {
					fmt.Fprintf(w, "next: %s\n", refused.Next)
				}
				code = wire.ExitFailure
			}
		}
		if err != nil {
			fmt.Fprintln(w, err)
			code = wire.ExitFailure
		}
		if code == wire.ExitDone {
			fmt.Printf("nothing is wrong with the files of %d cells in %s\n", len(all), dir)
		}
		return code
	}
	fmt.Fprintln(w, "usage: cells | cells nspawn CELL | cells check; the daemon itself is started by systemd, see: man doorward")
	return wire.ExitUsage
}

// become becomes the cell of that name, or says why not. It is the last thing before the cell, whoever started its unit.
func become(dir, name string) error {
	c, err := load(dir, name)
	if err != nil {
		return err
	}
	if err := c.startable(dir, name); err != nil {
		return err
	}
	env, foreign := environment(os.Environ())
	if foreign != "" {
		return refusedEnv(name, foreign)
	}
	// What else is open was not opened here, and nspawn would hold it for as long as the cell runs.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close what was passed in: %w", err)
	}
	store, err := c.trusted(name)
	if err != nil {
		return err
	}
	if err := limits(context.Background(), name, c); err != nil {
		return err
	}
	return syscall.Exec(nspawnPath, c.nspawn(name, store), env)
}

// nspawn is the command that becomes the cell of that name, systemd-nspawn(1), with what it trusts. What is not said here is
// the unit's.
func (c *config) nspawn(name string, store []trust.Bind) []string {
	args := []string{"systemd-nspawn", "--quiet", "--settings=no", "--keep-unit", "--register=no", "--as-pid2", "--console=passive",
		"--machine=" + name, "--directory=" + c.Root, "--private-users=pick", "--private-users-ownership=chown",
		"--bind-ro=" + wire.CellDir + ":" + wire.CellRun, "--resolv-conf=off", "--timezone=off",
		"--link-journal=no"}
	if c.Usr == "own" { // of this machine's it has the agent's command, what that reads, and what tries its walls for doctor
		args = append(args, "--bind-ro=/usr/bin/connector", "--bind-ro=/usr/bin/doorward", "--bind-ro=/usr/share/doorward")
	} else {
		args = append(args, "--bind-ro=/usr")
	}
	for _, b := range store {
		args = append(args, "--bind-ro="+b.From+":"+b.To)
	}
	for _, kv := range trustEnv() {
		args = append(args, "--setenv="+kv)
	}
	for _, p := range c.Projects {
		if c.User == "root" {
			args = append(args, "--bind="+p+":"+p+":rootidmap")
		} else {
			args = append(args, "--bind="+p+":"+p+":owneridmap")
		}
	}
	command := c.Command
	if len(command) == 0 {
		command = []string{"sleep", "infinity"}
	} else if c.User != "root" {
		args = append(args, "--user="+c.User)
	}
	return append(append(args, "--"), command...)
}
