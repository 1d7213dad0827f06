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
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "SYSTEMD_COLORS=0"}
	said, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	why := strings.TrimSpace(strings.ReplaceAll(string(said), "\n", " "))
	if len(why) > 300 {
		why = why[:300]
	}
	if why == "" {
		why = err.Error()
	}
	return wire.Refuse(wire.CodeUnavailable, "systemd does not "+args[0]+" it: "+why, "journalctl -u "+args[len(args)-1])
}

// limits sets what a cell may use up, until the next boot, before it starts.
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
