// SPDX-License-Identifier: Apache-2.0

// Package trust gives a cell the root of its egress's certificates: where egress@CELL ends TLS it answers with a leaf of that
// root, and programs of the cell are to take it, unmodified and with verification on.
//
// The egress writes its root, and nothing else of it is read here: not its key, which the cell could answer itself with. The
// egress reads what strangers write, so what it wrote is parsed and written anew, by root, into a folder that root alone makes:
// a link, a pipe, a key or a second certificate in its place is an error. What the cell's tree trusted before is the cell's to
// write, and goes back to that cell only.
//
// It is made before a cell starts, by `cells nspawn` in the cell's unit: that is root already and still outside, has the egress
// before it (After=), and runs for each start whoever asked for it. cellnet, which would be the other, runs before the egress.
package trust

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// File is the egress's root in its state directory.
const File = "ca.pem"

// Bounds of what is read, in bytes.
const (
	maxRoot   = 16 << 10
	MaxBundle = 4 << 20 // of what a tree trusts; Debian's has 220 KiB
)

// Root reads the root that the egress with that state directory has. A file that is not there is fs.ErrNotExist.
func Root(state string) (*x509.Certificate, error) {
	dir, err := unix.Open(state, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", state, err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, File, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", File, state, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(state, File))
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is no regular file", f.Name())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRoot+1))
	if err != nil {
		return nil, err
	}
	c, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return c, nil
}

// parse reads one certificate of an authority, and nothing else beside it.
func parse(b []byte) (*x509.Certificate, error) {
	if len(b) > maxRoot {
		return nil, fmt.Errorf("more than %d bytes", maxRoot)
	}
	block, rest := pem.Decode(b)
	switch {
	case block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 || !bytes.HasPrefix(b, []byte("-----BEGIN ")):
		return nil, errors.New("want one certificate in PEM")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("want one certificate and nothing behind it")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !c.BasicConstraintsValid || !c.IsCA {
		return nil, errors.New("the certificate is none of an authority")
	}
	return c, nil
}

// Fingerprint is SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` counts it, in lower case without colons.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// files is what a cell trusts, by name of the file: root.pem, bundle.pem, cacerts, and chromium.json, a policy of that browser.
func files(root *x509.Certificate, bundle []byte) (map[string][]byte, error) {
	if len(bundle) > MaxBundle {
		return nil, fmt.Errorf("what the tree trusts has more than %d bytes", MaxBundle)
	}
	mine := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	all := slices.Clone(bundle)
	if len(all) > 0 && all[len(all)-1] != '\n' {
		all = append(all, '\n')
	}
	all = append(all, mine...)
	policy, err := json.Marshal(map[string][]string{"CACertificates": {base64.StdEncoding.EncodeToString(root.Raw)}})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"root.pem": mine, "bundle.pem": all, "cacerts": jks(root, certificates(bundle)),
		"chromium.json": policy}, nil
}

// certificates are those of a bundle, in DER. What of it is none is passed over: one would have Java read none at all.
func certificates(bundle []byte) [][]byte {
	var out [][]byte
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return out
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			out = append(out, block.Bytes)
		}
	}
}

// Make writes what a cell is to trust into dir, which it makes: the root, and with it what its tree trusts, bundle, in PEM. Each
// file is there whole or not at all. dir is root's, and everybody may read it.
func Make(dir string, root *x509.Certificate, bundle []byte) error {
	all, err := files(root, bundle)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), mkdir(dir)); err != nil {
		return fmt.Errorf("make what the cell trusts: %w", err)
	}
	for name, text := range all {
		path := filepath.Join(dir, name)
		fresh := path + ".new"
		err := errors.Join(os.RemoveAll(fresh), os.WriteFile(fresh, text, 0o644))
		if err == nil { // whatever the umask is
			err = errors.Join(os.Chmod(fresh, 0o644), os.Rename(fresh, path))
		}
		if err != nil {
			return fmt.Errorf("make what the cell trusts: %w", err)
		}
	}
	return nil
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// Bind is one file or folder of this machine that the cell sees, read-only, at To.
type Bind struct{ From, To string }

// Binds are those of a cell whose files Make wrote into dir. has says whether the cell has a file of that path: where a program
// has no store, there is nothing to put over.
func Binds(dir, inCell, bundle string, root *x509.Certificate, has func(path string) bool) []Bind {
	list := []Bind{{dir, filepath.Clean(inCell)}, {filepath.Join(dir, "bundle.pem"), bundle},
		// Where OpenSSL looks by name, for a program that has no environment: sudo's, a unit's.
		{filepath.Join(dir, "root.pem"), filepath.Join(filepath.Dir(bundle), subjectHash(root)+".0")}}
	if java := "/etc/ssl/certs/java/cacerts"; has(java) {
		list = append(list, Bind{filepath.Join(dir, "cacerts"), java})
	}
	for _, b := range []struct{ program, policies string }{
		{"/usr/bin/chromium", "/etc/chromium/policies/managed"},
		{"/usr/bin/google-chrome", "/etc/opt/chrome/policies/managed"},
	} {
		if has(b.program) {
			list = append(list, Bind{filepath.Join(dir, "chromium.json"), b.policies + "/doorward.json"})
		}
	}
	return list
}
