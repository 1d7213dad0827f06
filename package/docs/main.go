// SPDX-License-Identifier: Apache-2.0

// Command docs makes what the package has beside programs and units: manual pages from the short sources beside it and
// from what the commands take, completion for three shells, the changelog, and the licences of what is linked in.
// `docs OUT BIN VERSION` writes below OUT, laid out as below /usr/share, with the commands of BIN. Equal trees give equal
// bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: docs OUT BIN VERSION")
	}
	out, bin, version := args[0], args[1], args[2]
	all, err := pages()
	if err != nil {
		return err
	}
	for name, roff := range all {
		if err := write(filepath.Join(out, "man", "man"+name[len(name)-1:], name+".gz"), compressed(roff)); err != nil {
			return err
		}
	}
	if err := completion(out, bin); err != nil {
		return err
	}
	log, err := changelog(version)
	if err != nil {
		return err
	}
	licences, err := notices()
	if err != nil {
		return err
	}
	doc := filepath.Join(out, "doc", "doorward")
	if err := write(filepath.Join(doc, "changelog.gz"), compressed(log)); err != nil {
		return err
	}
	return write(filepath.Join(doc, "NOTICES.gz"), compressed(licences))
}

// completion has the commands say their scripts, each where its shell looks.
func completion(out, bin string) error {
	for shell, place := range map[string]string{"bash": "bash-completion/completions/%s", "zsh": "zsh/vendor-completions/_%s",
		"fish": "fish/vendor_completions.d/%s.fish"} {
		for _, command := range []string{"doorward", "connector"} {
			script, err := exec.Command(filepath.Join(bin, command), "completion", shell).Output()
			if err != nil || len(script) == 0 {
				return fmt.Errorf("completion of %s for %s: %w", command, shell, err)
			}
			if err := write(filepath.Join(out, fmt.Sprintf(place, command)), script); err != nil {
				return err
			}
		}
	}
	return nil
}

// changelog is package/changelog, with an entry for a version that it does not have: one that was built by hand.
func changelog(version string) ([]byte, error) {
	b, err := os.ReadFile("package/changelog")
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(b), "doorward ("+version+") ") {
		return b, nil
	}
	at := time.Unix(0, 0).UTC().Format(time.RFC1123Z)
	return fmt.Appendf(nil, "doorward (%s) unstable; urgency=medium\n\n  * Built from the source as it is.\n\n"+
		" -- The Doorward authors <doorward@example.org>  %s\n\n%s", version, at, b), nil
}

// compressed is gzip without a time or a name in it.
func compressed(b []byte) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(b)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // memory takes everything
	}
	return out.Bytes()
}

func write(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
