// SPDX-License-Identifier: Apache-2.0

// Package github is a stand-in for GitHub's REST API, for tests and the demo. It keeps repositories in memory, answers
// every operation of the github rows of specs/methods.tsv, and holds each request to GitHub's own description: a query
// parameter, header or body field that the description does not list is a violation, and a violation is refused.
//
// It also knows a few operations that no method of ours sends (delete a repository, add a collaborator), so that an
// attack which reaches it succeeds and is seen; a stand-in that refused them would hide the attack.
package github

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/test/vendors/standin"
)

// Options of a stand-in. The zero value is useful but for Credentials.
type Options struct {
	Credentials []string // tokens that are accepted
	Login       string   // whose account it is; "ada" when empty
	Listen      string   // address of the API; a free port of 127.0.0.1 when empty
	LogListen   string   // address of the second host, which serves job logs
	Base        string   // what answers call the API; "https://" and its address when empty
	LogBase     string   // what Location headers call the second host
	Names       []string // further names of the certificates
	NoHTTP2     bool
	Description string // path of GitHub's description; requests are not held to it when empty
	Empty       bool   // start without the seeded repositories
}

// A Server is a running stand-in.
type Server struct {
	*standin.Server
	State *State

	base, logBase string
	check         *checker // nil: not held to the description
}

// New starts a stand-in.
func New(o Options) (*Server, error) {
	base, err := standin.New()
	if err != nil {
		return nil, err
	}
	if o.Login == "" {
		o.Login = "ada"
	}
	s := &Server{Server: base, State: newState(o.Login)}
	if !o.Empty {
		s.State.seed()
	}
	if o.Description != "" {
		if s.check, err = newChecker(o.Description); err != nil {
			return nil, err
		}
	}
	address, err := s.Open(standin.Options{
		Listener: "api", Listen: o.Listen, Names: o.Names, NoHTTP2: o.NoHTTP2,
		Classify: standin.Bearer(o.Credentials...), Vendor: s.api(standin.Bearer(o.Credentials...)),
	})
	if err != nil {
		return nil, err
	}
	logAddress, err := s.Open(standin.Options{
		Listener: "logs", Listen: o.LogListen, Names: o.Names, NoHTTP2: o.NoHTTP2,
		Classify: standin.Bearer(o.Credentials...), Vendor: s.logs,
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	s.base, s.logBase = o.Base, o.LogBase
	if s.base == "" {
		s.base = "https://" + address
	}
	if s.logBase == "" {
		s.logBase = "https://" + logAddress
	}
	return s, nil
}

// Base is the address of the API, without a slash at its end.
func (s *Server) Base() string { return s.base }

// LogBase is the address of the second host.
func (s *Server) LogBase() string { return s.logBase }

// Start runs a stand-in for a test, held to GitHub's description. Without the description the test is skipped, unless
// the options say where one is.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Description == "" {
		path, err := Description()
		if err != nil {
			t.Skip("vendor-description ground skipped: ", err)
		}
		o.Description = path
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Description returns the path of GitHub's description in the repository around the working directory.
func Description() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "specs", "vendor-descriptions", "github.openapi.json")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("GitHub's description is absent; run make specs: %w", err)
	}
	return path, nil
}

// Root returns the folder of go.mod at or above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the repository: no go.mod at or above the working directory")
		}
		dir = parent
	}
}

// logs serves what a signed address points at. Like the real store it refuses a request that carries authorization.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, _ []byte, note *standin.Note) {
	note.Operation = "logs"
	if r.Header.Get("Authorization") != "" || r.Method != http.MethodGet {
		note.Refused = true
		note.Violations = append(note.Violations, "the signed address was asked with a credential or to act")
		http.Error(w, "InvalidAuthenticationInfo", http.StatusUnauthorized)
		return
	}
	text, ok := s.State.signedLog(r.URL.Path, r.URL.Query().Get("sig"))
	if !ok {
		note.Refused = true
		http.Error(w, "AuthenticationFailed: signature did not match or has expired", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(text)
}
