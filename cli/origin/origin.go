// SPDX-License-Identifier: Apache-2.0

// Package origin sets up where a person's page is: what root answers becomes approver.toml and, where the page is to listen elsewhere
// than on this machine alone, a drop-in of both sockets; then both ports are asked what a browser would ask. Everything is checked before
// anything is written, and no address is listened on that root has not named.
package origin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/keypair"
	"github.com/doorward/doorward/internal/wire"
)

// Tunnel is the host where people come through a tunnel: a name of Doorward's own, on the machine where the browser is.
const Tunnel = "doorward.localhost"

// soon is the time before a certificate's end in which it is said.
const soon = 14 * 24 * time.Hour

// Options are what root answers.
type Options struct {
	Host             string
	Certificate, Key string // files, PEM; empty for a tunnel
	Page, API        uint16
	Listen           string // an address of this machine; empty is 127.0.0.1
}

// Setup is what is to be: a place, and the address on which both of its ports listen.
type Setup struct {
	approver.Place
	Listen netip.Addr
}

// Calls are what this package needs of the machine.
type Calls struct {
	Config   string                     // directory of approver.toml
	Units    string                     // directory of the admin's units
	Run      func(args ...string) error // systemctl
	Readable func(file string) error    // by page, as its user and in its groups
	Mine     func(a netip.Addr) bool    // whether this machine has an address
	Dial     func(network, addr string) (net.Conn, error)
	Now      func() time.Time
}

// Choose makes a Setup of answers, or says which of them is wrong.
func Choose(o Options) (*Setup, error) {
	bad := func(next, format string, a ...any) (*Setup, error) {
		return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf(format, a...), next)
	}
	s := &Setup{Place: approver.Place{Host: o.Host, Page: o.Page, API: o.API, Certificate: o.Certificate, Key: o.Key}, Listen: loopback}
	b, err := toml.Marshal(&s.Place)
	if err != nil {
		return nil, err
	}
	// It is held to what both daemons will read.
	if _, err := approver.Parse(b); err != nil {
		return bad("doorward help approver setup", "%v", err)
	}
	if o.Listen == "" {
		return s, nil
	}
	at, err := netip.ParseAddr(o.Listen)
	switch {
	case err != nil || at.Zone() != "":
		return bad("ip address lists those of this machine", "%q is no address, such as 192.0.2.7 or 2001:db8::7", o.Listen)
	case o.Certificate == "" && !at.IsLoopback():
		return bad("give --certificate and --key, or leave --listen out",
			"without a certificate everybody on the way to %s can read along, and be the page; it is for a tunnel, which ends here", at)
	}
	s.Listen = at.Unmap()
	return s, nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// unseen are the places that page's unit does not show it.
var unseen = []string{"/home/", "/root/", "/run/", "/tmp/", "/var/tmp/"}

// Check holds the files of a certificate to what page will need of them. It returns what root should know besides.
func (s *Setup) Check(c Calls) (notes []string, err error) {
	if s.Certificate == "" {
		return nil, nil
	}
	now := c.Now()
	pair, err := keypair.Load(&s.Place, now)
	if err != nil {
		next := "give the chain, leaf first, and its key, as PEM; see docs/approvals.md"
		switch {
		case errors.Is(err, keypair.ErrOver):
			next = "run the ACME client, and see that it is run again by itself; then the same again"
		case errors.Is(err, keypair.ErrHost):
			next = "give the --host that it names, or a certificate for " + s.Host
		}
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), next)
	}
	if until := pair.Leaf.NotAfter; until.Sub(now) < soon {
		notes = append(notes, fmt.Sprintf("the certificate ends %s: see that it is renewed", until.UTC().Format("2006-01-02")))
	}
	for _, file := range []string{s.Certificate, s.Key} {
		if err := seen(file); err != nil {
			return nil, err
		}
		if err := c.Readable(file); err != nil {
			return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("page may not read %s: %v", file, err),
				"have the ACME client put it where group doorward-tls can read it: install -d -m 0750 -g doorward-tls /etc/doorward/tls; "+
					"install -m 0640 -g doorward-tls FILE /etc/doorward/tls/; see docs/approvals.md")
		}
	}
	if info, err := os.Stat(s.Key); err == nil && info.Mode().Perm()&0o007 != 0 {
		notes = append(notes, fmt.Sprintf("every user of this machine can read %s: chmod o= it", s.Key))
	}
	return notes, nil
}

// seen refuses a file where page's unit has another directory, or none, in its place.
func seen(file string) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return wire.Refuse(wire.CodeBadArgument, err.Error(), "give the path of the file")
	}
	for _, at := range []string{file, real} {
		for _, dir := range unseen {
			if strings.HasPrefix(filepath.Clean(at)+"/", dir) {
				return wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("page does not see %s: its unit hides %s", at, dir),
					"keep it elsewhere, as in /etc/doorward/tls")
			}
		}
	}
	return nil
}

// Plan says in lines what Apply will do. old is the place that is set up now, nil for none.
func (s *Setup) Plan(c Calls, old *approver.Place) []string {
	lines := []string{fmt.Sprintf("%s: the page is %s, and asks %s", filepath.Join(c.Config, approver.File), s.PageOrigin(), s.APIOrigin())}
	if s.Certificate != "" {
		lines = append(lines, fmt.Sprintf("certificate %s, key %s; they are read again when they change", s.Certificate, s.Key))
	}
	at := fmt.Sprintf("both ports, %d and %d, listen on ", s.Page, s.API)
	switch {
	case s.Listen.IsLoopback():
		at += s.Listen.String() + ": only this machine, and who has a tunnel to it, reaches them"
	case s.Listen.IsUnspecified():
		at += "every address of this machine: whoever reaches one may knock"
	case s.Listen.IsPrivate() || s.Listen.IsLinkLocalUnicast() || shared.Contains(s.Listen):
		at += s.Listen.String() + ": whoever is in that network may knock"
	default:
		at += s.Listen.String() + ", which is public: anybody may knock"
	}
	lines = append(lines, at)
	if !s.Listen.IsLoopback() && !s.Listen.IsUnspecified() && !c.Mine(s.Listen) {
		lines = append(lines, fmt.Sprintf("this machine does not have %s now; the ports are there as soon as it has", s.Listen))
	}
	if old != nil && old.Host != s.Host {
		lines = append(lines, fmt.Sprintf("passkeys belong to a host's name: those of %s are worth nothing at %s; invite again who has one",
			old.Host, s.Host))
	}
	return lines
}

// shared is the space of carriers and of Tailscale (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

const (
	next   = "journalctl -u doorward-page -u doorward-approvals says more; then doorward approver setup again"
	said   = "# Written by doorward approver setup, which writes it anew.\n"
	dropIn = "50-doorward-approver.conf"
)

// Apply writes the files and starts what serves them. What it could not do may be tried again.
func (s *Setup) Apply(c Calls) error {
	if err := s.write(c); err != nil {
		return wire.Refuse(wire.CodeInternal, err.Error(), "then doorward approver setup again")
	}
	// A port cannot be made anew while it is served, nor may one that is dialled meanwhile start its daemon: sockets first.
	const api = "doorward-approvals-page.socket"
	for _, args := range [][]string{{"daemon-reload"}, {"stop", "doorward-page.socket", "doorward-page-api.socket", api},
		{"stop", "doorward-page.service", "doorward-approvals.service"}, {"start", api, "doorward-page.socket", "doorward-page-api.socket"},
		{"start", "doorward-approvals.service", "doorward-page.service"}} {
		if err := c.Run(args...); err != nil {
			return wire.Refuse(wire.CodeUnavailable, err.Error(), next)
		}
	}
	return nil
}

func (s *Setup) write(c Calls) error {
	b, err := toml.Marshal(&s.Place)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(c.Config, approver.File), append([]byte(said), b...)); err != nil {
		return err
	}
	for _, p := range []struct {
		unit         string
		port, itsOwn uint16
	}{{"doorward-page.socket", s.Page, 8440}, {"doorward-page-api.socket", s.API, 8441}} {
		file := filepath.Join(c.Units, p.unit+".d", dropIn)
		if s.Listen == loopback && p.port == p.itsOwn {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		text := fmt.Sprintf(said+"[Socket]\nListenStream=\nListenStream=%s\nFreeBind=yes\n", netip.AddrPortFrom(s.Listen, p.port))
		if err := replace(file, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file that is there whole or as it was.
func replace(name string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	for _, step := range []func() error{func() error { return f.Chmod(0o644) }, f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
