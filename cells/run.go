// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

const nsenter = "/usr/bin/nsenter"

// endFor is how long the end of a run may take: a killed process ends when the kernel lets it.
const endFor = 10 * time.Second

// run is a command in a cell that a person started.
type run struct {
	session wire.CellSessionReq
	link    *daemon.Link
	cmd     *exec.Cmd
	first   *leader
	done    chan struct{} // closed when its cgroup is empty and sentinel was told, or could not be
	code    int           // then

	mu     sync.Mutex // guards what follows
	group  group
	closed bool
}

// kill kills everything in the run, if it still has its cgroup.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		_ = r.group.write("cgroup.kill", "1")
	}
}

func (r *run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.group.Close()
}

// runVerb begins a run, or waits for the end of one.
func (c *Cells) runVerb(ctx context.Context, call *daemon.Call, req *wire.RunReq) (*wire.RunResp, error) {
	switch {
	case (req.Start == nil) == (req.Wait == ""):
		return nil, wire.Refuse(wire.CodeUsage, "either a start or a wait", "")
	case req.Start != nil:
		return c.start(ctx, call, req.Start)
	}
	c.mu.Lock()
	r := c.runs[req.Wait]
	c.mu.Unlock()
	if r == nil || r.link != call.Link {
		return nil, wire.Refuse(wire.CodeNotFound, "no run of that name began on this connection", "")
	}
	select {
	case <-r.done:
		c.forget(r)
		return &wire.RunResp{Session: r.session.Session, Code: r.code}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cells) forget(r *run) {
	c.mu.Lock()
	delete(c.runs, r.session.Session)
	c.mu.Unlock()
}

// isTerm holds TERM to names that stand in an environment as themselves.
func isTerm(s string) bool {
	return len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-._", r)
	})
}

func (c *Cells) start(ctx context.Context, call *daemon.Call, s *wire.RunStart) (*wire.RunResp, error) {
	n := 0
	for _, a := range s.Args {
		n += len(a) + 1
	}
	switch {
	case len(s.Args) > wire.MaxRunArgs || n > wire.MaxRunBytes:
		return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("a command of more than %d words or %d bytes", wire.MaxRunArgs,
			wire.MaxRunBytes), "give it a file of the cell")
	case slices.ContainsFunc(s.Args, noWord) || len(s.Args) > 0 && s.Args[0] == "" || !isTerm(s.Term):
		return nil, wire.Refuse(wire.CodeBadArgument, "a word of the command, or TERM, is none", "")
	}
	conf, err := load(c.config, s.Cell)
	if err != nil {
		return nil, err
	}
	g, err := c.open(s.Cell)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	r := &run{link: call.Link, done: make(chan struct{})}
	if r.first, err = findLeader(g, s.Cell); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notRunning(s.Cell)
		}
		return nil, c.fault("cell "+s.Cell+" is not entered", err)
	}
	if err := conf.mayRun(s.Cell, r.first.root); err != nil {
		r.first.Close()
		return nil, err
	}
	master, err := c.begin(ctx, call.Peer, r, g, conf, s)
	if err != nil {
		r.first.Close()
		return nil, err
	}
	call.Attach(master)
	go func() { // whoever started it is gone, and nobody can see any more what it does
		select {
		case <-r.done:
		case <-call.Link.Done():
			r.kill()
			<-r.done
		}
		r.close()
		<-call.Link.Done() // who waits may still ask
		c.forget(r)
	}()
	return &wire.RunResp{Session: r.session.Session}, nil
}

// begin makes the run's cgroup, tells sentinel and starts the command, in that order: nothing that runs in a cell is
// unknown to sentinel. It returns the terminal's master.
func (c *Cells) begin(ctx context.Context, who peer.Identity, r *run, g group, conf *config, s *wire.RunStart) (*os.File, error) {
	user, err := r.first.user(conf.User)
	if err != nil {
		return nil, wire.Refuse(wire.CodeNotConfigured, err.Error(), "name a user of the cell in "+c.config+"/"+s.Cell+".toml")
	}
	uid, err1 := r.first.uids.outside(user.uid)
	gid, err2 := r.first.gids.outside(user.gid)
	root, err3 := r.first.uids.outside(0)
	rootGroup, err4 := r.first.gids.outside(0)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, c.fault("the users of cell "+s.Cell, err)
	}
	master, slave, err := r.first.terminal(s, uid, gid)
	if err != nil {
		return nil, c.fault("the terminal", err)
	}
	defer slave.Close()
	name := "run-" + strings.ToLower(rand.Text()[:16])
	if err := unix.Mkdirat(int(g.dir.Fd()), name, 0o755); err != nil {
		_ = master.Close()
		return nil, c.fault("the run's cgroup", err)
	}
	fail := func(err error) (*os.File, error) {
		_ = master.Close()
		if r.group.dir != nil {
			r.group.Close()
		}
		_ = g.remove(name)
		return nil, err
	}
	if r.group, err = g.child(name); err != nil {
		return fail(c.fault("the run's cgroup", err))
	}
	id, err := r.group.id()
	if err != nil {
		return fail(c.fault("the run's cgroup", err))
	}
	r.session = wire.CellSessionReq{Cell: s.Cell, Session: name, Start: id, Attended: s.Attended, By: who.String()}
	if len(conf.Command) > 0 { // what the cell's start runs can act for this run, so sentinel is to know of it
		if err := c.tellPayload(ctx, g, s.Cell); err != nil {
			return fail(err)
		}
	}
	if err := c.sentinel.Call(ctx, "session", &r.session, &wire.Empty{}); err != nil {
		if errors.Is(err, daemon.ErrSent) { // it may know of it
			go c.ended(r.session)
		}
		return fail(err)
	}
	if err := c.spawn(r, g, conf, s, user, root, rootGroup, slave); err != nil {
		c.ended(r.session)
		return fail(err)
	}
	c.mu.Lock()
	c.runs[name] = r
	c.mu.Unlock()
	c.log.Info("a run began", "cell", s.Cell, "session", name, "by", who.String(), "attended", s.Attended)
	go c.finish(r, s.Cell)
	return master, nil
}

// spawn starts the command. Until it is in the cell's user namespace it has the ids of the cell's root, not this
// machine's: a process of the cell that seized it in the moment before it runs the command would hold them. It has no
// descriptor but the terminal; the namespaces it finds at this process.
func (c *Cells) spawn(r *run, g group, conf *config, s *wire.RunStart, user account, root, rootGroup int, slave *os.File) error {
	args := []string{"--wdns=/", "--setuid=" + strconv.FormatInt(user.uid, 10), "--setgid=" + strconv.FormatInt(user.gid, 10)}
	for _, place := range conf.workDirs(s.Dir, user.home) {
		if r.first.hasFolder(place) {
			args[0] = "--wdns=" + place
			break
		}
	}
	for _, k := range kinds {
		if f := r.first.ns[k.option]; f != nil {
			args = append(args, fmt.Sprintf("--%s=/proc/%d/fd/%d", k.option, os.Getpid(), f.Fd()))
		}
	}
	args = append(args, "--")
	if len(s.Args) == 0 {
		args = append(args, user.shell, "-l")
	} else {
		args = append(args, s.Args...)
	}
	r.cmd = exec.Command(nsenter, args...)
	term := s.Term
	if term == "" {
		term = "dumb"
	}
	// The user's own programs come last: an agent may be installed there, and nothing of this machine's is hidden by it.
	r.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:" + filepath.Join(user.home, ".local/bin"),
		"HOME=" + user.home, "USER=" + user.name,
		"LOGNAME=" + user.name, "SHELL=" + user.shell, "LANG=C.UTF-8", "TERM=" + term}
	if r.first.trusts() { // a cell that started before there was a root has none, and what is named must be there
		r.cmd.Env = append(r.cmd.Env, trustEnv()...)
	}
	r.cmd.Dir = "/"
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = slave, slave, slave
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Setctty: true, Ctty: 0,
		UseCgroupFD: true, CgroupFD: int(r.group.dir.Fd()),
		Credential: &syscall.Credential{Uid: uint32(root), Gid: uint32(rootGroup)},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE,
			unix.CAP_DAC_READ_SEARCH},
	}
	// A process that starts in a frozen cgroup would stop the thread that starts it, and no other could start one.
	unlock, ok := c.lock(s.Cell, endFor)
	if !ok {
		return wire.Refuse(wire.CodeUnavailable, "cell "+s.Cell+" is busy", "try again")
	}
	defer unlock()
	if by := g.frozenBy(); len(by) > 0 {
		return frozen(s.Cell, by)
	}
	if err := r.cmd.Start(); err != nil {
		return c.fault("the command does not start", err)
	}
	return nil
}

// finish waits for the command, ends what it left behind, and tells sentinel.
func (c *Cells) finish(r *run, cell string) {
	err := r.cmd.Wait()
	r.code = codeOf(err)
	ctx, cancel := context.WithTimeout(context.Background(), endFor)
	defer cancel()
	stays := r.group.end(ctx)
	if stays != nil && !errors.Is(stays, fs.ErrNotExist) && !errors.Is(stays, unix.ENODEV) { // not gone with the cell
		c.log.Error("a run does not end", "cell", cell, "session", r.session.Session, "err", stays.Error())
	} else {
		c.ended(r.session)
	}
	if g, err := open(c.kernel, cell); err == nil {
		if err := g.remove(r.session.Session); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("a run's cgroup stays", "cell", cell, "session", r.session.Session, "err", err.Error())
		}
		g.Close()
	}
	r.first.Close()
	c.log.Info("a run ended", "cell", cell, "session", r.session.Session, "code", r.code)
	close(r.done)
}

func codeOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 126
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}
