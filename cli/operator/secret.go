// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/doorward/doorward/internal/wire"
)

// maxSecret is the longest credential in bytes, with room; authd has the exact bound.
const maxSecret = 8192

// source is where a command takes a secret from.
type source struct {
	stdin bool
	fd    int
}

func (s *source) flags(c *cobra.Command) {
	c.Flags().BoolVar(&s.stdin, "secret-stdin", false, "read the secret from stdin instead of asking for it")
	c.Flags().IntVar(&s.fd, "secret-fd", -1, "read the secret from this descriptor instead of asking for it")
}

// read takes one secret: its first line, without the line end. The caller clears it.
func (a *app) secret(s *source, prompt string) ([]byte, error) {
	var b []byte
	var err error
	switch {
	case s.stdin && s.fd >= 0:
		return nil, wire.Refuse(wire.CodeUsage, "--secret-stdin and --secret-fd are two sources", "give one")
	case s.stdin:
		b, err = io.ReadAll(io.LimitReader(a.in, maxSecret+1))
	case s.fd >= 0:
		b, err = readFD(s.fd, maxSecret+1)
	case term.IsTerminal(int(a.in.Fd())):
		fmt.Fprint(a.err, prompt+" (not shown): ")
		b, err = term.ReadPassword(int(a.in.Fd()))
		fmt.Fprintln(a.err)
	default:
		return nil, wire.Refuse(wire.CodeUsage, "no terminal to ask for the secret at",
			"pipe it in with --secret-stdin, or name a descriptor with --secret-fd N; never as an argument")
	}
	if err != nil {
		return nil, unreadSecret(err)
	}
	if len(b) > maxSecret {
		clear(b)
		return nil, wire.Refuse(wire.CodeTooLarge, "the secret is too long", "it has at most 8192 bytes")
	}
	b = bytes.TrimRight(b, "\r\n")
	if bytes.ContainsAny(b, "\r\n") {
		clear(b)
		return nil, wire.Refuse(wire.CodeBadCredential, "the secret has more than one line", "give it alone, on one line")
	}
	if len(b) == 0 {
		return nil, wire.Refuse(wire.CodeBadCredential, "the secret is empty", "give it on the first line")
	}
	return b, nil
}

// readFD reads at most limit bytes of a descriptor that whoever started the command has opened.
func readFD(fd int, limit int64) ([]byte, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, wire.Refuse(wire.CodeUsage, fmt.Sprintf("descriptor %d is not open", fd),
			fmt.Sprintf("open it for the command: --secret-fd %d %d<FILE", fd, fd))
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd))
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func unreadSecret(err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused
	}
	return wire.Refuse(wire.CodeUsage, "read the secret: "+err.Error(), "use --secret-stdin, or --secret-fd N of a descriptor "+
		"that is open for reading")
}

// asks says whether the secret will be asked for at a terminal.
func (a *app) asks(s *source) bool { return !s.stdin && s.fd < 0 && term.IsTerminal(int(a.in.Fd())) }

// secretNames are words that flags for secrets are made of elsewhere.
var secretNames = [...]string{"password", "passwd", "pass", "passphrase", "token", "secret", "apikey", "key",
	"credential",
	"credentials", "pat", "bearer", "auth", "authorization"}

func secretName(name string) bool {
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' }) {
		for _, n := range secretNames {
			if w == n {
				return true
			}
		}
	}
	return false
}

func notAnArgument(what string) error {
	return wire.Refuse(wire.CodeUsage,
		what+": a secret is never taken from an argument: every process of this machine can read those",
		"leave it out to be asked, or use --secret-stdin or --secret-fd N; if it was real, it has been seen: make a new one")
}

// secretPrefixes are how well-known credentials begin.
var secretPrefixes = [...]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxb-", "xoxp-",
	"xoxa-",
	"xoxr-", "xapp-", "sk-", "ya29.", "AKIA", "ASIA", "eyJ", "ntn_", "secret_", "Bearer ", "Basic "}

// secretArgs refuses arguments that are, or carry, a credential, before anything else is done with them. What belongs
// to another program (watch -- COMMAND) is that program's affair.
func (a *app) secretArgs(args []string) error {
	for i, s := range args {
		if s == "--" {
			return nil
		}
		what := s
		if name, value, ok := strings.Cut(s, "="); ok && strings.HasPrefix(s, "--") {
			if secretName(name[2:]) && !ours(name[2:]) {
				return notAnArgument(name)
			}
			what = value
		}
		if looksSecret(what) {
			where := "an argument"
			if i > 0 && strings.HasPrefix(args[i-1], "--") {
				where = args[i-1]
			}
			return notAnArgument(where)
		}
	}
	return nil
}

// ours are the flags of this command that sound like a secret and take none.
func ours(name string) bool { return name == "secret-stdin" || name == "secret-fd" || name == "key" }

func looksSecret(s string) bool {
	for _, p := range secretPrefixes {
		if rest, ok := strings.CutPrefix(s, p); ok && len(rest) >= 12 && !strings.ContainsFunc(rest, unicode.IsSpace) {
			return true
		}
	}
	if _, rest, ok := strings.Cut(s, "://"); ok { // user:password@host
		host, _, _ := strings.Cut(rest, "/")
		return strings.Contains(host, "@")
	}
	return false
}
