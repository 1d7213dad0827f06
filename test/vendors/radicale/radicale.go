// SPDX-License-Identifier: Apache-2.0

// Package radicale runs the real Radicale for tests: Debian's package, over TLS, with Basic credentials and a storage
// of its own that goes away with it. In front of it stands a recorder that passes everything on, so that a test can
// hold what Doorward reports to what reached the server, and can break the connection at a chosen point.
package radicale

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/vendors/standin"
)

// ErrAbsent says that this machine has no Radicale.
var ErrAbsent = errors.New("radicale ground skipped: Debian's package radicale is not installed")

// startWait bounds how long Radicale may take to answer first.
const startWait = 30 * time.Second

// Options of a run.
type Options struct {
	User     string // "ada" when empty
	Password string
	Dir      string // for its files; a temporary one when empty
	Listen   string // of the recorder in front
	Names    []string
	NoHTTP2  bool
	Empty    bool // without the calendar "personal" and the address book "people"
}

// A Server is a running Radicale with its recorder.
type Server struct {
	*standin.Server
	user, password string
	base, direct   string
	client         *http.Client
}

// Start runs Radicale for a test and skips the test where there is none.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if errors.Is(err, ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// New runs Radicale. Its processes and files are gone after Close.
func New(o Options) (*Server, error) {
	program, err := exec.LookPath("radicale")
	if err != nil {
		return nil, ErrAbsent
	}
	if o.User == "" {
		o.User = "ada"
	}
	base, err := standin.New()
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, user: o.User, password: o.Password}
	s.client = s.Client()
	if err := s.run(program, o); err != nil {
		s.Close()
		return nil, err
	}
	target, err := url.Parse(s.direct)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("read radicale's address: %w", err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.CA.Pool(), MinVersion: tls.VersionTLS12}, DisableCompression: true,
	}
	s.OnClose(transport.CloseIdleConnections)
	address, err := s.Open(standin.Options{
		Listener: "dav", Listen: o.Listen, Names: o.Names, NoHTTP2: o.NoHTTP2,
		Classify: standin.Basic(o.User, o.Password), Vendor: standin.Forward(target, transport),
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	s.base = "https://" + address
	if !o.Empty {
		if err := s.seed(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Base is the recorder's address, which an account names; without a slash at its end.
func (s *Server) Base() string { return s.base }

// Direct is Radicale's own address, for looking at it unrecorded.
func (s *Server) Direct() string { return s.direct }

// Calendar is the path of the seeded calendar.
func (s *Server) Calendar() string { return "/" + s.user + "/personal/" }

// Book is the path of the seeded address book.
func (s *Server) Book() string { return "/" + s.user + "/people/" }

// run writes the configuration and starts the program; a port that was taken meanwhile is tried anew.
func (s *Server) run(program string, o Options) error {
	dir := o.Dir
	if dir == "" {
		made, err := os.MkdirTemp("", "doorward-radicale-")
		if err != nil {
			return fmt.Errorf("make radicale's folder: %w", err)
		}
		s.OnClose(func() { _ = os.RemoveAll(made) })
		dir = made
	}
	cert, err := s.CA.Issue(standin.Leaf{Names: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := standin.PEMPair(cert)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"cert.pem": certPEM, "key.pem": keyPEM, "users": []byte(o.User + ":" + o.Password + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("write radicale's files: %w", err)
		}
	}
	for range 5 {
		err = s.try(program, dir)
		if !errors.Is(err, errEnded) {
			return err
		}
	}
	return err
}

var errEnded = errors.New("radicale ended at its start")

func (s *Server) try(program, dir string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "config")
	text := fmt.Sprintf(`[server]
hosts = 127.0.0.1:%d
ssl = True
certificate = %s/cert.pem
key = %s/key.pem
max_connections = 64
[auth]
type = htpasswd
htpasswd_filename = %s/users
htpasswd_encryption = plain
delay = 0
[rights]
type = owner_only
[storage]
filesystem_folder = %s/collections
[web]
type = none
[logging]
level = warning
`, port, dir, dir, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write radicale's configuration: %w", err)
	}
	var log bytes.Buffer
	command := exec.Command(program, "--config", config)
	command.Dir = dir
	command.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8"}
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start radicale: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	stop := func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	s.direct = fmt.Sprintf("https://127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	for {
		if status, _, err := s.Do(ctx, http.MethodGet, "/", nil); err == nil && status > 0 {
			s.OnClose(stop)
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%w: %s", errEnded, strings.TrimSpace(log.String()))
		case <-ctx.Done():
			stop()
			return fmt.Errorf("radicale does not answer on %s: %s", s.direct, strings.TrimSpace(log.String()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("choose a port for radicale: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

// Do speaks to Radicale itself, past the recorder. Pairs of header names and values may follow.
func (s *Server) Do(ctx context.Context, method, path string, body []byte, header ...string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.direct+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("ask radicale: %w", err)
	}
	r.SetBasicAuth(s.user, s.password)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask radicale: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("read radicale's answer: %w", err)
	}
	return response.StatusCode, text, nil
}

// Put stores an object past the recorder.
func (s *Server) Put(path string, body []byte) error {
	kind := "text/calendar; charset=utf-8"
	if strings.HasSuffix(path, ".vcf") {
		kind = "text/vcard; charset=utf-8"
	}
	status, text, err := s.Do(context.Background(), http.MethodPut, path, body, "Content-Type", kind)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("put %s: status %d: %s", path, status, text)
	}
	return err
}

// Object returns an object's bytes past the recorder; ok is false when it is not there.
func (s *Server) Object(path string) (body []byte, ok bool) {
	status, text, err := s.Do(context.Background(), http.MethodGet, path, nil)
	return text, err == nil && status == http.StatusOK
}

// MakeCalendar makes a calendar that takes events.
func (s *Server) MakeCalendar(path, title string) error {
	return s.make("MKCALENDAR", path, `<C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set>`+
		`<D:prop><D:displayname>`+title+`</D:displayname><C:supported-calendar-component-set><C:comp name="VEVENT"/>`+
		`</C:supported-calendar-component-set></D:prop></D:set></C:mkcalendar>`)
}

// MakeBook makes an address book.
func (s *Server) MakeBook(path, title string) error {
	return s.make("MKCOL", path, `<D:mkcol xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:carddav"><D:set><D:prop>`+
		`<D:resourcetype><D:collection/><C:addressbook/></D:resourcetype><D:displayname>`+title+
		`</D:displayname></D:prop></D:set></D:mkcol>`)
}

func (s *Server) make(method, path, body string) error {
	status, text, err := s.Do(context.Background(), method, path, []byte(body), "Content-Type", "application/xml")
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, text)
	}
	return err
}

func (s *Server) seed() error {
	if err := s.MakeCalendar(s.Calendar(), "Personal"); err != nil {
		return err
	}
	return s.MakeBook(s.Book(), "People")
}
