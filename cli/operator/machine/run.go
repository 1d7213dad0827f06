// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

const (
	programFor = time.Minute // for a program to end, on a slow machine
	outputMax  = 8 << 20     // bytes of a program's output
)

// run runs a program of the machine's and returns what it said on stdout. Its environment is fixed: this runs as root.
func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, said capped
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %.200s", name, err, oneLine(said.String()))
	}
	return out.String(), nil
}

// capped keeps what is written to it up to a bound.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > outputMax {
		return 0, errors.New("more output than is read")
	}
	return c.Buffer.Write(p)
}

// Systemctl runs systemctl.
func Systemctl(args ...string) error {
	_, err := run("systemctl", args...)
	return err
}
