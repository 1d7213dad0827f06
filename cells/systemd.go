// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

const (
	systemctlPath = "/usr/bin/systemctl"
	booted        = "/run/systemd/system" // sd_booted(3)
	managerFor    = 90 * time.Second      // for a cell to start, whose first start gives its tree to its users
)

var systemctlEnv = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "SYSTEMD_COLORS=0"}

// managed refuses where systemd is not process 1.
func managed() error {
	if _, err := os.Stat(booted); err != nil {
		return wire.Refuse(wire.CodeUnavailable, "systemd does not run this machine, so no cell is started or stopped here",
			"what started the cell has to stop it")
	}
	return nil
}

// systemctl asks the service manager. What it asks is made here of a cell's name and numbers, and nothing else.
func systemctl(ctx context.Context, args ...string) error {
	if err := managed(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, managerFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, systemctlPath, append([]string{"--no-ask-password", "--quiet"}, args...)...)
	cmd.Env = systemctlEnv
	said, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	unit := args[len(args)-1]
	if args[0] == "start" {
		if refused := fromStatus(ctx, unit); refused != nil {
			return refused
		}
	}
	why := strings.TrimSpace(strings.ReplaceAll(string(said), "\n", " "))
	if len(why) > 300 {
		why = why[:300]
	}
	if why == "" {
		why = err.Error()
	}
	return wire.Refuse(wire.CodeUnavailable, "systemd does not "+args[0]+" it: "+why, "journalctl -u "+unit)
}

// statusMark begins the status of a unit that refused to become its cell. What follows is code, reason and next step,
// with a tab between.
const statusMark = "refused\t"

func asStatus(e *wire.Error) string {
	line := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return statusMark + string(e.Code) + "\t" + line(e.Reason) + "\t" + line(e.Next)
}

// fromStatus is why a unit refused to become its cell, or nil. The unit's first process said it, which is ours.
func fromStatus(ctx context.Context, unit string) error {
	cmd := exec.CommandContext(ctx, systemctlPath, "show", "--value", "--property=StatusText", unit)
	cmd.Env = systemctlEnv
	said, err := cmd.Output()
	if err != nil {
		return nil
	}
	f := strings.Split(strings.TrimSpace(string(said)), "\t")
	if len(f) != 4 || f[0]+"\t" != statusMark {
		return nil
	}
	return wire.Refuse(wire.Code(f[1]), f[2], f[3])
}

// limits sets what a cell may use up. The cell's unit sets them for itself, so they hold whoever started it.
func limits(ctx context.Context, cell string, c *config) error {
	memory, tasks := "infinity", ""
	if c.memory > 0 {
		memory = strconv.FormatInt(c.memory, 10)
	}
	if c.Limits.Tasks > 0 {
		tasks = strconv.FormatInt(c.Limits.Tasks, 10)
	}
	return systemctl(ctx, "set-property", "--runtime", unitName(cell), "MemoryMax="+memory, "TasksMax="+tasks)
}
