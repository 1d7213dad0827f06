// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim": // what systemd does between fork and exec
			os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
			panic(syscall.Exec("/proc/self/exe", append([]string{"d", "daemon"}, os.Args[2:]...), os.Environ()))
		case "--help": // as somebody at a shell would, who looks what this is
			Main("under-test", underTest)
		case "daemon":
			Main("under-test", underTest)
		case "echo":
			panic(serveEcho(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// state is what a daemon finds itself to be.
type state struct {
	Environ  string
	Env      []string
	FDs      []string
	Dumpable int
	NoNew    int
	Core     uint64
	Mask     int
	Dirs     Dirs
	Secret   string
	Args     []string
}

// underTest reports what it is, serves the sockets named by its arguments, and runs until it is told to stop.
func underTest(ctx context.Context, p *Process) error {
	if slices.Contains(p.Args, "fails") {
		return errors.New("try something: it failed")
	}
	var s state
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return err
	}
	s.Environ, s.Env, s.Dirs, s.Args = string(b), os.Environ(), p.Dirs, p.Args[1:]
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		s.FDs = append(s.FDs, to)
	}
	s.Dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	s.NoNew, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err != nil {
		return err
	}
	s.Core = lim.Max
	s.Mask = unix.Umask(0o077)
	if p.Dirs.Credentials != "" {
		c, err := p.Dirs.Credential("store-key")
		if err != nil {
			return err
		}
		s.Secret = string(c.Reveal())
	}
	var tasks []func(context.Context) error
	for _, name := range p.Args[1:] {
		if name, ok := strings.CutPrefix(name, "tcp:"); ok {
			if _, err := p.TCPListener(name); err != nil {
				return err
			}
			continue
		}
		if name, ok := strings.CutPrefix(name, "udp:"); ok {
			if _, err := p.UDPConn(name); err != nil {
				return err
			}
			continue
		}
		ln, err := p.Listener(name)
		if err != nil {
			return err
		}
		srv := &Server{Name: name, Listener: ln, Log: p.Log, Verbs: []Verb{On("echo", peer.Workers, echo)}}
		tasks = append(tasks, srv.Serve)
	}
	tasks = append(tasks, func(ctx context.Context) error {
		if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	return p.Run(ctx, tasks...)
}

// passedFile is a socket as systemd makes it: a Unix listener at a path, or `tcp`, `udp`, `unixgram`.
func passedFile(t *testing.T, at string) *os.File {
	t.Helper()
	var s interface {
		File() (*os.File, error)
		Close() error
	}
	var err error
	switch at {
	case "tcp":
		s, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv6loopback})
	case "udp":
		s, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
	case "unixgram":
		s, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	default:
		var ln *net.UnixListener
		ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
		if err == nil {
			ln.SetUnlinkOnClose(false)
		}
		s = ln
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// launch starts a daemon with passed sockets by name.
func launch(t *testing.T, env []string, sockets [][2]string, args ...string) (*exec.Cmd, *bytes.Buffer, *json.Decoder) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"shim"}, args...)...)
	cmd.Env = env
	var names []string
	for _, s := range sockets {
		f := passedFile(t, s[1])
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		names = append(names, s[0])
	}
	if len(names) > 0 {
		cmd.Env = append(cmd.Env, "LISTEN_FDS="+strconv.Itoa(len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	extra, err := os.Open("/dev/zero") // something that nobody asked for
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, extra)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, &stderr, json.NewDecoder(out)
}

func needCgroup2(t *testing.T) {
	t.Helper()
	k, err := peer.Open()
	if err != nil {
		t.Skip("skipped: daemons do not start here: ", err)
	}
	k.Close()
}

// LK-06: nothing of the starter's environment or descriptors reaches a daemon.
func TestLK06ADaemonStartsClean(t *testing.T) {
	needCgroup2(t)
	dir := t.TempDir()
	cred := filepath.Join(dir, "cred")
	if err := errors.Join(os.Mkdir(cred, 0o700), os.WriteFile(cred+"/store-key", []byte("k"), 0o400)); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"AWS_SECRET_ACCESS_KEY=x", "NODE_OPTIONS=--require /tmp/p.js", "LD_PRELOAD=/tmp/p.so", "SSL_CERT_FILE=/tmp/evil.pem",
		"GODEBUG=tlsrsakex=1", "GOTRACEBACK=crash", "HTTPS_PROXY=http://evil.test", "DOORWARD_TRUST=me", "PATH=/evil",
		"STATE_DIRECTORY=" + dir, "CREDENTIALS_DIRECTORY=" + cred,
	}
	cmd, stderr, out := launch(t, env, [][2]string{{"one", dir + "/1"}, {"two", dir + "/2"}}, "one", "two")
	var s state
	if err := out.Decode(&s); err != nil {
		t.Fatal(err, stderr)
	}
	for _, name := range []string{"AWS_", "NODE_", "LD_", "SSL_", "GODEBUG", "GOTRACEBACK", "PROXY", "TRUST", "PATH="} {
		if strings.Contains(s.Environ, name) || strings.Contains(strings.Join(s.Env, "\n"), name) {
			t.Errorf("%s reached the daemon: %q and %q", name, s.Environ, s.Env)
		}
	}
	sockets := 0
	for _, fd := range s.FDs {
		if strings.Contains(fd, "/dev/zero") {
			t.Error("an inherited descriptor is open")
		}
		if strings.HasPrefix(fd, "socket:") {
			sockets++
		}
	}
	if sockets != 2 {
		t.Errorf("%d sockets among %q", sockets, s.FDs)
	}
	if s.Dumpable != 0 || s.NoNew != 1 || s.Core != 0 || s.Mask != 0o077 {
		t.Errorf("dumpable %d, no new privileges %d, core %d, umask %o", s.Dumpable, s.NoNew, s.Core, s.Mask)
	}
	if s.Dirs != (Dirs{State: dir, Credentials: cred}) || s.Secret != "k" || !slices.Equal(s.Args, []string{"one", "two"}) {
		t.Errorf("dirs %+v, secret %q, args %q", s.Dirs, s.Secret, s.Args)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM is not success: %v\n%s", err, stderr)
	}
	// SO-03: it removed nothing.
	for _, name := range []string{"/1", "/2"} {
		if _, err := os.Stat(dir + name); err != nil {
			t.Error(err)
		}
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "ERROR: ld.so:") {
			continue // the test binary is dynamic, the daemons are not
		}
		var v map[string]any
		if json.Unmarshal([]byte(line), &v) != nil || v["daemon"] != "under-test" {
			t.Errorf("not a log line: %s", line)
		}
	}
}

// SO-03: a daemon makes no socket; it takes exactly those that its units name, or does not start.
func TestSO03OnlyPassedSocketsAreServed(t *testing.T) {
	needCgroup2(t)
	for _, tt := range []struct {
		name    string
		passed  []string
		serves  []string
		problem string
	}{
		{"none passed", nil, []string{"one"}, `socket \"one\" was not passed`},
		{"another passed", []string{"two"}, []string{"one"}, `socket \"one\" was not passed`},
		{"one more passed", []string{"one", "two"}, []string{"one"}, `socket \"two\" was passed and nobody serves it`},
		{"one served twice", []string{"one"}, []string{"one", "one"}, `is served twice`},
		{"two of a name", []string{"one", "one"}, []string{"one"}, `two are named`},
		{"one without name", []string{""}, nil, `one has no name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var sockets [][2]string
			for i, name := range tt.passed {
				sockets = append(sockets, [2]string{name, dir + "/" + strconv.Itoa(i)})
			}
			cmd, stderr, _ := launch(t, nil, sockets, tt.serves...)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v", err)
			}
			if !strings.Contains(stderr.String(), tt.problem) {
				t.Errorf("said %s", stderr)
			}
			if left, _ := os.ReadDir(dir); len(left) != len(tt.passed) {
				t.Errorf("%d files where %d sockets were passed", len(left), len(tt.passed))
			}
		})
	}
}

// SO-03: a socket is claimed as what it is, so that nothing without a kernel's word on its callers is taken for one that has it.
func TestSO03ASocketIsClaimedAsWhatItIs(t *testing.T) {
	needCgroup2(t)
	for _, c := range []struct{ passed, serves, problem string }{
		{"tcp", "tcp:one", ""},
		{"udp", "udp:one", ""},
		{"tcp", "one", `socket \"one\" is no Unix stream socket`},
		{"udp", "one", `socket \"one\" is no Unix stream socket`},
		{"udp", "tcp:one", `socket \"one\" is no TCP listener`},
		{"tcp", "udp:one", `socket \"one\" is no UDP socket`},
		{"/1", "tcp:one", `socket \"one\" is no TCP listener`},
		{"/1", "udp:one", `socket \"one\" is no UDP socket`},
		{"unixgram", "udp:one", `not a UDP socket`},
	} {
		at := c.passed
		if at == "/1" {
			at = t.TempDir() + at
		}
		cmd, stderr, out := launch(t, nil, [][2]string{{"one", at}}, c.serves)
		if c.problem == "" {
			var s state
			if err := out.Decode(&s); err != nil {
				t.Errorf("%s as %s: %v, %s", c.passed, c.serves, err, stderr)
			}
			continue
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(stderr.String(), c.problem) {
			t.Errorf("%s as %s: %v, %s", c.passed, c.serves, err, stderr)
		}
	}
}

// SO-03: no code of a daemon binds a Unix socket: between bind and chmod it would be open to others.
func TestSO03NoCodeBindsAUnixSocket(t *testing.T) {
	root := "../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() && (rel == "test" || rel == "build" || rel == ".git" || strings.HasSuffix(rel, "test") ||
			d.Name() == "fake") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if rel == "cli/operator/machine/inside.go" { // doctor listens on TCP for a moment, where no daemon is to get through
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil // the compiler's business
		}
		found++
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch pkg.Name + "." + sel.Sel.Name {
			case "net.Listen", "net.ListenUnix", "net.ListenConfig", "net.ListenUnixgram", "unix.Bind", "syscall.Bind":
				t.Errorf("%s: %s.%s: sockets are passed by systemd", rel, pkg.Name, sel.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || found < 10 {
		t.Fatalf("looked at %d files: %v", found, err)
	}
}

func TestReadinessAndWatchdog(t *testing.T) {
	needCgroup2(t)
	dir := t.TempDir()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/n", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	cmd, stderr, _ := launch(t, []string{"NOTIFY_SOCKET=" + dir + "/n", "WATCHDOG_USEC=20000"}, nil)
	read := func() string {
		b := make([]byte, 100)
		_ = notify.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, err := notify.Read(b)
		if err != nil {
			t.Fatal(err, stderr)
		}
		return string(b[:n])
	}
	if got := read(); got != "READY=1" {
		t.Errorf("first said %q", got)
	}
	for range 3 {
		if got := read(); got != "WATCHDOG=1" {
			t.Errorf("then said %q", got)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for read() != "STOPPING=1" {
	}
}

func TestAFailureIsOneLineAndExitCodeOne(t *testing.T) {
	needCgroup2(t)
	cmd, stderr, _ := launch(t, nil, nil, "fails")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	if n := strings.Count(stderr.String(), "\n"); n != 1 || !strings.Contains(stderr.String(), "try something: it failed") {
		t.Errorf("said %s", stderr)
	}
}

func TestWrongEnvironmentIsRefused(t *testing.T) {
	needCgroup2(t)
	for _, env := range []string{
		"STATE_DIRECTORY=relative", "STATE_DIRECTORY=/a:/b", "WATCHDOG_USEC=soon", "WATCHDOG_USEC=-1",
		"CREDENTIALS_DIRECTORY=/nowhere",
	} {
		cmd, stderr, _ := launch(t, []string{env}, nil)
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: started: %s", env, stderr)
		}
	}
}

func TestCredentialsAreHeldToTheirForm(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/good", []byte("abc"), 0o400), os.WriteFile(dir+"/open", []byte("abc"), 0o644),
		os.WriteFile(dir+"/large", make([]byte, maxCredential+1), 0o400), os.Symlink(dir+"/good", dir+"/link"),
		os.Mkdir(dir+"/dir", 0o700), unix.Mkfifo(dir+"/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	d := Dirs{Credentials: dir}
	got, err := d.Credential("good")
	if err != nil || string(got.Reveal()) != "abc" {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	for _, name := range []string{"open", "large", "link", "dir", "fifo", "absent", "../good", "", ".", "a/b"} {
		if got, err := d.Credential(name); err == nil || got.Reveal() != nil {
			t.Errorf("%q: got %q", name, got.Reveal())
		}
	}
	if _, err := d.Credential("absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// In the journal each line has its priority; elsewhere, and where $JOURNAL_STREAM names another file, there is none.
func TestPrioritiesAreForTheJournal(t *testing.T) {
	needCgroup2(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(w.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]string{
		strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10): "<3>{", "1:1": "{", "": "{",
	} {
		cmd := exec.Command("/proc/self/exe", "shim", "fails")
		cmd.Env, cmd.Stderr = []string{"JOURNAL_STREAM=" + stream, "FOREIGN=1"}, w
		if err := cmd.Run(); err == nil {
			t.Fatal("it did not fail")
		}
		buf := make([]byte, 4096)
		n, err := r.Read(buf)
		if line := strings.TrimPrefix(string(buf[:n]), "ERROR: ld.so:"); err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("stream %q: %s, %v", stream, line, err)
		}
	}
	w.Close()
	var out bytes.Buffer
	log := newLog(&out, "d", true).With("x", 1)
	log.Warn("one")
	log.Info("two")
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "<4>{") ||
		!strings.HasPrefix(lines[1], "<6>{") || !strings.Contains(lines[1], `"x":1`) {
		t.Errorf("wrote %s", out.String())
	}
}

// Somebody at a shell who asks a daemon what it is gets an answer, and not the error of one that systemd has not started.
func TestADaemonSaysWhatItIs(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "systemd starts it") || strings.Contains(string(out), "ERROR") {
		t.Errorf("%v: %s", err, out)
	}
}
