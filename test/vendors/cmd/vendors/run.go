// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/vendors/radicale"
	"github.com/doorward/doorward/test/vendors/standin"
)

const usage = "usage: vendors github|caldav|radicale -dir DIR ... | vendors ctl -socket SOCKET VERB [FAULT]"

// A hello is the first line on stdout.
type hello struct {
	Vendor   string `json:"vendor"`
	Base     string `json:"base"`
	LogBase  string `json:"log_base,omitempty"`
	Calendar string `json:"calendar,omitempty"`
	Book     string `json:"book,omitempty"`
	CA       string `json:"ca"`
	Control  string `json:"control"`
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	if args[0] == "ctl" {
		return control(ctx, args[1:], out)
	}
	flags := flag.NewFlagSet("vendors "+args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "existing folder `DIR` for the CA file and the control socket")
	listen := flags.String("listen", "127.0.0.1:0", "`ADDRESS` of the vendor")
	user := flags.String("user", "ada", "`NAME` of the account (caldav, radicale)")
	passwordFile := flags.String("password-file", "", "`FILE` with the password (caldav, radicale)")
	credentialFile := flags.String("credential-file", "", "`FILE` with the accepted tokens, one a line (github)")
	logListen := flags.String("log-listen", "127.0.0.1:0", "`ADDRESS` of the second host (github)")
	base := flags.String("base", "", "`URL` by which answers name the vendor (github)")
	logBase := flags.String("log-base", "", "`URL` by which answers name the second host (github)")
	names := flags.String("names", "", "further `NAMES` of the certificate, comma-separated")
	description := flags.String("description", "", "`FILE` of GitHub's description; by default that of make specs")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New(usage)
	}
	var more []string
	if *names != "" {
		more = strings.Split(*names, ",")
	}
	h := hello{
		Vendor: args[0], CA: filepath.Join(*dir, "ca.pem"), Control: filepath.Join(*dir, "control.sock"),
	}
	var server *standin.Server
	var state func() any
	switch args[0] {
	case "github":
		tokens, err := secrets(*credentialFile)
		if err != nil {
			return err
		}
		if *description == "" {
			if *description, err = github.Description(); err != nil {
				fmt.Fprintln(os.Stderr, "vendors: requests are not held to GitHub's description:", err)
			}
		}
		s, err := github.New(github.Options{
			Credentials: tokens, Listen: *listen, LogListen: *logListen, Base: *base, LogBase: *logBase, Names: more,
			Description: *description,
		})
		if err != nil {
			return err
		}
		server, state = s.Server, func() any { return s.State.View() }
		h.Base, h.LogBase = s.Base(), s.LogBase()
	case "caldav":
		password, err := secrets(*passwordFile)
		if err != nil {
			return err
		}
		s, err := caldav.New(caldav.Options{User: *user, Password: password[0], Listen: *listen, Names: more})
		if err != nil {
			return err
		}
		server, state = s.Server, func() any { return s.View() }
		h.Base, h.Calendar, h.Book = s.Base(), s.Calendar(), s.Book()
	case "radicale":
		password, err := secrets(*passwordFile)
		if err != nil {
			return err
		}
		s, err := radicale.New(radicale.Options{User: *user, Password: password[0], Listen: *listen, Names: more})
		if err != nil {
			return err
		}
		server = s.Server
		h.Base, h.Calendar, h.Book = s.Base(), s.Calendar(), s.Book()
	default:
		return errors.New(usage)
	}
	defer server.Close()
	if err := os.WriteFile(h.CA, server.CAPEM(), 0o644); err != nil {
		return fmt.Errorf("write the CA file: %w", err)
	}
	if err := server.ServeControl(h.Control, state); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(h); err != nil {
		return fmt.Errorf("say where the vendor is: %w", err)
	}
	<-ctx.Done()
	return nil
}

// secrets reads the lines of a file.
func secrets(path string) ([]string, error) {
	if path == "" {
		return nil, errors.New("a file with the credential is needed; see -h")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the credential: %w", err)
	}
	var out []string
	for _, line := range strings.Split(string(text), "\n") {
		if line != "" {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read the credential: %s is empty", path)
	}
	return out, nil
}

// control does one verb on the control socket of a running stand-in.
func control(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("vendors ctl", flag.ContinueOnError)
	socket := flags.String("socket", "", "control `SOCKET` of the stand-in")
	method := flags.String("method", "", "requests with that `METHOD` only")
	path := flags.String("path", "", "requests whose path begins with `PREFIX` only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *socket == "" || flags.NArg() == 0 {
		return errors.New(usage)
	}
	c := standin.Dial(*socket)
	var answer any
	var err error
	switch verb := flags.Arg(0); verb {
	case "requests":
		answer, err = c.Requests(ctx, *method, *path)
	case "violations":
		answer, err = c.Violations(ctx)
	case "state":
		var state json.RawMessage
		err = c.State(ctx, &state)
		answer = state
	case "reset":
		return c.Reset(ctx)
	case "clear":
		return c.Clear(ctx)
	case "fault":
		var fault standin.Fault
		decoder := json.NewDecoder(bytes.NewReader([]byte(flags.Arg(1))))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&fault); err != nil {
			return fmt.Errorf("read the fault: %w", err)
		}
		return c.Fault(ctx, fault)
	default:
		return fmt.Errorf("unknown verb %q; %s", verb, usage)
	}
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("show the answer: %w", err)
	}
	_, err = fmt.Fprintln(out, string(text))
	return err
}
