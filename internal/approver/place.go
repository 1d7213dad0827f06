// SPDX-License-Identifier: Apache-2.0

// Package approver says where a person's page is: one host name, on which page and approvals have a port each. The name is the
// passkeys' RP id (WebAuthn Level 3, 5.1.2), so another name is another place to which no passkey of the first belongs.
package approver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// File is the configuration's name, below the configuration directory. Root writes it.
const File = "approver.toml"

const maxFile = 64 << 10 // bytes

// Place is File. Without Certificate the host is localhost or a name below it, and people come through a tunnel of both ports: browsers
// take both for a secure context, and find them on their own machine (RFC 6761, 6.3). Passkeys and cookies of localhost itself are
// those of everything on it, of any port; a name below it is Doorward's own.
type Place struct {
	Host        string `toml:"host"`                  // a DNS name, lower case, without a final dot
	Page        uint16 `toml:"page"`                  // port of the static files
	API         uint16 `toml:"api"`                   // port of approvals
	Certificate string `toml:"certificate,omitempty"` // file, PEM, leaf first
	Key         string `toml:"key,omitempty"`         // file, PEM
}

// ErrNone says that no place was set up.
var ErrNone = errors.New("no place for approvals is set up; root does it by: sudo doorward approver setup")

// Load reads File of dir. A key that is not known is an error: a typo must not weaken.
func Load(dir string) (*Place, error) {
	f, err := os.Open(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	p, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; correct it", f.Name(), err)
	}
	return p, nil
}

// Parse reads the text of File.
func Parse(b []byte) (*Place, error) {
	p := &Place{Page: 8440, API: 8441}
	if err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(p); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) && len(strict.Errors) > 0 {
			row, _ := strict.Errors[0].Position()
			return nil, fmt.Errorf("line %d: there is no key %q", row, strings.Join(strict.Errors[0].Key(), "."))
		}
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Place) check() error {
	switch {
	case p.Host == "":
		return errors.New("host is missing")
	case net.ParseIP(p.Host) != nil:
		return fmt.Errorf("host = %q is an address; passkeys belong to a name", p.Host)
	case strings.Trim(p.Host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || len(p.Host) > 253 ||
		strings.HasPrefix(p.Host, ".") || strings.HasSuffix(p.Host, ".") || strings.Contains(p.Host, ".."):
		return fmt.Errorf("host = %q is no host name in lower case", p.Host)
	case p.Page == 0 || p.API == 0 || p.Page == p.API:
		return errors.New("page and api have to be two different ports")
	case (p.Certificate == "") != (p.Key == ""):
		return errors.New("certificate and key go together")
	case p.Certificate == "" && p.Host != "localhost" && !strings.HasSuffix(p.Host, ".localhost"):
		return fmt.Errorf("host = %q needs a certificate; without one the host is localhost, or a name as doorward.localhost", p.Host)
	case p.Certificate != "" && (!filepath.IsAbs(p.Certificate) || !filepath.IsAbs(p.Key)):
		return errors.New("certificate and key have to be absolute paths")
	}
	return nil
}

// PageOrigin is the origin of the static files, the only one whose assertions count; APIOrigin is that of approvals.
func (p *Place) PageOrigin() string { return p.scheme() + "://" + p.PageHost() }

// APIOrigin is where the script asks.
func (p *Place) APIOrigin() string { return p.scheme() + "://" + p.APIHost() }

// PageHost is the Host of a request for the page; APIHost that of one to approvals. Both are as a browser writes them.
func (p *Place) PageHost() string { return p.at(p.Page) }

// APIHost is as PageHost.
func (p *Place) APIHost() string { return p.at(p.API) }

func (p *Place) scheme() string {
	if p.Certificate != "" {
		return "https"
	}
	return "http"
}

func (p *Place) at(port uint16) string {
	if port == map[string]uint16{"http": 80, "https": 443}[p.scheme()] {
		return p.Host
	}
	return net.JoinHostPort(p.Host, strconv.Itoa(int(port)))
}
