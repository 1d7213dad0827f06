// SPDX-License-Identifier: Apache-2.0

// Package daemon is what every daemon of Doorward shares: how it starts and ends, and how it speaks on its sockets.
//
// A daemon is started by systemd, or by something that does the same: sockets come as descriptors with names,
// directories and readiness by the environment. Main makes the process undumpable and its core empty, forgets every
// environment variable and descriptor that is not on a short list, so that nobody who can set those gets a word in, and
// hands the rest to the daemon's run.
//
// The message server trusts nothing that arrives. Who calls is the kernel's word (package peer); what may be asked, and
// by whom, is one table per socket. Anything else (a stranger, a verb that is not in the table or not for this caller,
// bytes that are no message, a frame that does not end, more than the bounds allow) ends that one connection, is
// counted and, within limits, logged. An attacker at a socket can make the daemon close the attacker's own connections.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/doorward/doorward/internal/peer"
)

// Process is what a daemon gets at its start.
type Process struct {
	Name string
	Log  *slog.Logger
	Dirs Dirs
	Args []string // behind the program's name
	// Kernel identifies callers.
	Kernel *peer.Kernel
	// Alive, where set before Run, is asked at each beat of the watchdog; while it fails or does not return, there is
	// no beat, and systemd restarts the daemon.
	Alive func(context.Context) error

	sockets  map[string]passedSocket
	claimed  map[string]bool
	watchdog time.Duration
}

// Main runs a daemon and ends the process: with 0 after SIGTERM or SIGINT or when run returns nil, else with 1 and one
// line that says why.
func Main(name string, run func(context.Context, *Process) error) {
	if len(os.Args) == 2 && (os.Args[1] == "--help" || os.Args[1] == "-h") {
		fmt.Println(name + " is a daemon of Doorward and takes no words: systemd starts it, see: man doorward, doorward doctor")
		os.Exit(0)
	}
	log := newLog(os.Stderr, name, toJournal())
	err := start(name, log, run)
	if err != nil {
		log.Error("ended", KeyErr, err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

func start(name string, log *slog.Logger, run func(context.Context, *Process) error) error {
	env, err := harden()
	if err != nil {
		return fmt.Errorf("harden the process: %w", err)
	}
	p := &Process{Name: name, Log: log, Args: os.Args[1:], claimed: map[string]bool{}}
	if p.Dirs, err = dirs(env); err != nil {
		return err
	}
	if p.watchdog, err = watchdogInterval(env); err != nil {
		return err
	}
	if p.Kernel, err = peer.Open(); err != nil {
		return err
	}
	if p.sockets, err = sockets(env, p); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = run(ctx, p)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// Run says that the daemon is ready, runs the tasks side by side, beats the watchdog, and waits for all of them. The
// first task that fails ends the others; a task that returns nil just ended. Cancelling ctx is success.
//
// Preconditions: every socket that was passed has been claimed by Listener, TCPListener or UDPConn.
func (p *Process) Run(ctx context.Context, tasks ...func(context.Context) error) error {
	for name := range p.sockets {
		if !p.claimed[name] {
			return fmt.Errorf("socket %q was passed and nobody serves it; see the units' FileDescriptorName", name)
		}
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	run := func(task func(context.Context) error) {
		wg.Go(func() {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	for _, task := range tasks {
		run(task)
	}
	debug.FreeOSMemory() // what the start took and nothing needs any more, such as a policy's compilation
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		cancel(fmt.Errorf("report readiness: %w", err))
	}
	if p.watchdog > 0 { // no beat before that
		run(p.beat)
	}
	p.Log.Info("ready")
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-ctx.Done():
	case <-done:
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	cancel(nil)
	<-done
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) || parent.Err() != nil && errors.Is(err, context.Cause(parent)) {
		return nil // the cause may be a signal's own error (Go 1.26)
	}
	return err
}

// beat tells the watchdog that the daemon lives, twice in its interval.
func (p *Process) beat(ctx context.Context) error {
	tick := time.NewTicker(p.watchdog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if p.Alive != nil {
			if err := p.Alive(ctx); err != nil {
				p.Log.Error("no beat for the watchdog", KeyErr, err.Error())
				continue
			}
		}
		if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
			p.Log.Error("no beat for the watchdog", KeyErr, err.Error())
		}
	}
}

// watchdogInterval is what sd_watchdog_enabled(3) says; 0 is none.
func watchdogInterval(env map[string]string) (time.Duration, error) {
	if env["WATCHDOG_USEC"] == "" || (env["WATCHDOG_PID"] != "" && env["WATCHDOG_PID"] != strconv.Itoa(os.Getpid())) {
		return 0, nil
	}
	usec, err := strconv.ParseInt(env["WATCHDOG_USEC"], 10, 64)
	if err != nil || usec <= 0 || usec > int64(24*time.Hour/time.Microsecond) {
		return 0, fmt.Errorf("read WATCHDOG_USEC=%q: not a number of microseconds", env["WATCHDOG_USEC"])
	}
	return time.Duration(usec) * time.Microsecond, nil
}
