// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machineUnit is a daemon that systemd starts.
type machineUnit struct {
	m *machine
	d *Daemon
}

// pollEvery is how often systemd is asked what has become of a unit.
const pollEvery = 20 * time.Millisecond

func (u *machineUnit) start(_ time.Duration, began func(*process)) error {
	if u.d.Ahead != 0 {
		return errors.New("a unit has no clock of its own")
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	before, err := u.number(ctx, "ExecMainPID")
	if err != nil {
		return err
	}
	// Where it waits at the gate already, that is no second start.
	if _, err := u.m.bus.StartUnitContext(ctx, u.d.Unit(), "replace", nil); err != nil {
		return err
	}
	if err := u.pass(ctx); err != nil {
		return fmt.Errorf("it does not come to its gate: %w", err)
	}
	var p *process
	for ; ; time.Sleep(pollEvery) {
		pid, err := u.number(ctx, "ExecMainPID")
		if err != nil {
			return fmt.Errorf("wait until it is ready: %w", err)
		}
		if p == nil && pid != before && pid != 0 {
			if p, err = u.watch(int(pid)); err != nil {
				return err
			}
			began(p)
		}
		if p == nil {
			continue
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %v", p.err)
		default:
		}
		state, err := u.m.bus.GetUnitPropertyContext(ctx, u.d.Unit(), "ActiveState")
		if err != nil {
			return fmt.Errorf("wait until it is ready: %w", err)
		}
		if state.Value.Value() == "active" {
			return nil
		}
	}
}

// pass lets one start of the unit through its gate.
func (u *machineUnit) pass(ctx context.Context) error {
	for {
		f, err := os.OpenFile(gate(u.d.Name), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_, err = f.WriteString("go\n")
			return errors.Join(err, f.Close())
		}
		if !errors.Is(err, unix.ENXIO) { // nobody reads yet
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// number is a property of the unit that is a number.
func (u *machineUnit) number(ctx context.Context, name string) (uint64, error) {
	p, err := u.m.bus.GetServicePropertyContext(ctx, u.d.Unit(), name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fmt.Sprint(p.Value.Value()), 10, 64)
}

// watch holds a process of the unit and waits for its end.
func (u *machineUnit) watch(pid int) (*process, error) {
	p := &process{pid: pid, done: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		p.signal = func(syscall.Signal) error { return unix.ESRCH }
		p.err = u.how(pid)
		close(p.done)
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	held := os.NewFile(uintptr(fd), "pidfd")
	p.signal = func(s syscall.Signal) error { return unix.PidfdSendSignal(int(held.Fd()), s, nil, 0) }
	go func() {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n == 1 && err == nil {
				break
			}
		}
		p.err = u.how(pid)
		close(p.done)
	}()
	return p, nil
}

// how is how a process of the unit ended, as systemd saw it. Where systemd has started the unit again since (a socket that
// was waited on does that at once), it has forgotten, and nil is the answer: the other ground sees every end.
func (u *machineUnit) how(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for ; ; time.Sleep(pollEvery) {
		all, err := u.m.bus.GetUnitTypePropertiesContext(ctx, u.d.Unit(), "Service") // at one moment
		if err != nil {
			return fmt.Errorf("ask systemd how %s ended: %w", u.d.Unit(), err)
		}
		main, _ := all["ExecMainPID"].(uint32)
		ended, _ := all["ExecMainExitTimestampMonotonic"].(uint64)
		code, ok := all["ExecMainCode"].(int32)
		status, ok2 := all["ExecMainStatus"].(int32)
		switch {
		case !ok || !ok2:
			return fmt.Errorf("ask systemd how %s ended: it does not say", u.d.Unit())
		case main != uint32(pid):
			return nil
		case ended == 0:
		case code == 1 && status == 0: // CLD_EXITED
			return nil
		case code == 1:
			return fmt.Errorf("exit status %d", status)
		default:
			return fmt.Errorf("signal: %v", syscall.Signal(status))
		}
	}
}

func (u *machineUnit) log() string {
	_ = exec.Command("journalctl", "--sync").Run()
	out, err := exec.Command("journalctl", "--quiet", "--no-pager", "-o", "cat", "--after-cursor="+u.m.cursor,
		"_SYSTEMD_UNIT="+u.d.Unit()).Output()
	if err != nil {
		return "no log: " + err.Error()
	}
	return string(out)
}

// user is read of the process itself: a worker's is drawn for each start.
func (u *machineUnit) user() (uid, gid int, groups []uint32, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.d.PID()))
	if err != nil {
		return 0, 0, nil, fmt.Errorf("whom %s runs as: %w", u.d.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || !slices.Contains([]string{"Uid:", "Gid:", "Groups:"}, f[0]) {
			continue
		}
		for _, word := range f[1:] {
			n, err := strconv.Atoi(word)
			if err != nil {
				return 0, 0, nil, err
			}
			switch f[0] {
			case "Uid:":
				uid = n
			case "Gid:":
				gid = n
			default:
				groups = append(groups, uint32(n))
			}
		}
	}
	return uid, gid, groups, nil
}
