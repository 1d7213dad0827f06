// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDebianIsTheMachinesOwn(t *testing.T) {
	const main, updates, security = "deb http://a/debian/ trixie main", "deb http://a/debian/ trixie-updates main",
		"deb http://b/debian-security/ trixie-security main"
	for said, want := range map[string][]string{
		main + "\n" + updates + "\n" + main + "\n" + security + "\n": {"trixie", main, updates, security},
		security + "\n" + main + "\n":                                {"trixie", security, main},
		updates + "\n":                                               {"stable"},
		"":                                                           {"stable"},
		"deb http://a/debian/ trixie\n":                              {"stable"},
	} {
		answer := func(context.Context, []byte, string, ...string) (string, error) { return said, nil }
		if release, sources := debian(t.Context(), answer); !slices.Equal(append([]string{release}, sources...), want) {
			t.Errorf("%q: %s %q, want %q", said, release, sources, want)
		}
	}
	none := func(context.Context, []byte, string, ...string) (string, error) { return "", errors.New("no apt") }
	if release, sources := debian(t.Context(), none); release != "stable" || sources != nil {
		t.Errorf("%s %q", release, sources)
	}
}

// A tree of its own is a Debian that knows the person by the same name, number and home. It takes half a minute and a
// mirror.
func TestATreeByMmdebstrap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a tree with owners needs root")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skip("apt-get install -y --no-install-recommends mmdebstrap")
	}
	dir := filepath.Join(t.TempDir(), "tree")
	ada := person{name: "ada", uid: 1000, gid: 1000, home: "/home/ada"}
	if err := debootstrap(t.Context(), run, dir, "work", ada); err != nil {
		t.Fatal(err)
	}
	if err := mountPoints(dir, []string{"/home/ada/site", "/srv/site"}, ada); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("chroot", dir, "sh", "-c",
		`id -u ada; id -g ada; echo ~ada; stat -c '%n %u %a' ~ada ~ada/site /srv/site; cat /etc/hostname; git --version`).CombinedOutput()
	want := "1000\n1000\n/home/ada\n/home/ada 1000 700\n/home/ada/site 1000 755\n/srv/site 1000 755\nwork\ngit version "
	if err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("%v\n%s\nwant %s", err, said, want)
	}
}
