// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Versions holds what runs to what is installed, and what is installed to the package. dir is the folder of the
// descriptions; the daemons are beside it.
func (m *Machine) Versions(dir string) []Finding {
	libexec := filepath.Join(filepath.Dir(filepath.Dir(dir)), "libexec", "doorward")
	var out []Finding
	for _, v := range m.vendors {
		out = append(out, described(filepath.Join(libexec, "worker-"+v), filepath.Join(dir, v+".desc"), v))
	}
	if m.err == nil {
		for _, name := range m.services() {
			if u := m.units[name]; u.active() {
				out = append(out, running(name, u["MainPID"], libexec))
			}
		}
	}
	if dir == "/usr/share/doorward" {
		out = append(out, dpkg()...)
	}
	return out
}

// described holds an installed description to what the installed worker says of itself.
func described(worker, desc, vendor string) Finding {
	const check, next = "version.describes", "reinstall doorward"
	want, err := os.ReadFile(desc)
	if err != nil {
		return Bad(check, next, "the description of %s cannot be read: %v", vendor, err)
	}
	said, err := run(worker, "describe")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Bad(check, next, "connector %s has a description and no worker", vendor)
	case err != nil:
		return Bad(check, next, "the worker of %s does not describe itself: %v", vendor, Detail(err.Error()))
	case !bytes.Equal([]byte(said), want):
		return Bad(check, next, "the worker of %s and its description are of two builds", vendor)
	}
	return Ok(check, "the worker of %s is of the build that its description is of", vendor)
}

// running compares the program of a process with the installed one.
func running(unit, pid, libexec string) Finding {
	const check = "version.running"
	exe := "/proc/" + pid + "/exe"
	link, err := os.Readlink(exe)
	if errors.Is(err, fs.ErrPermission) {
		return rootOnly(check, "%s: only root may look at its program", unit)
	}
	if err != nil {
		return Not(check, "%s: its program cannot be looked at (%v)", unit, err)
	}
	file := filepath.Join(libexec, programOf(unit))
	if link == file {
		return Ok(check, "%s runs the installed program", unit)
	}
	// The file was replaced, perhaps by the same again.
	have, err1 := digest(exe)
	want, err2 := digest(file)
	switch {
	case err1 != nil || err2 != nil:
		return Bad(check, "reinstall doorward", "%s and its file cannot be compared: %v", unit, errors.Join(err1, err2))
	case have != want:
		return Bad(check, "systemctl restart "+unit, "%s runs another program than the installed %s", unit, file)
	}
	return Ok(check, "%s runs the installed program", unit)
}

// programOf is the name of a unit's program.
func programOf(unit string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(unit, "doorward-"), ".service")
	return strings.Replace(name, "@", "-", 1)
}

func digest(path string) ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	h.Sum(sum[:0])
	return sum, err
}

// dpkg asks the package manager: a package whose scripts failed, or of which files were changed, is not what was tested.
func dpkg() []Finding {
	const check = "version.package"
	status, err := run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "doorward")
	if err != nil {
		return []Finding{Not(check, "doorward is not installed as a package")}
	}
	state, version, _ := strings.Cut(strings.TrimSpace(status), " ")
	if state != "installed" {
		return []Finding{Bad(check, "dpkg --configure doorward", "the package is %s: its scripts did not come to an end", state)}
	}
	out := []Finding{Ok(check, "package %s", version)}
	if os.Geteuid() != 0 {
		return append(out, rootOnly("version.files", "only root may read all files of the package"))
	}
	said, err := run("dpkg", "--verify", "doorward")
	n := 0
	for line := range strings.Lines(said) {
		f := strings.Fields(line) // rpm's form: what differs, perhaps "c" for a configuration, the path
		if len(f) < 2 || f[1] == "c" {
			continue
		}
		if p := f[len(f)-1]; f[0] == "missing" && strings.HasPrefix(p, "/usr/share/") && !strings.HasPrefix(p, "/usr/share/doorward/") {
			continue // documentation that dpkg was told to leave out
		}
		n++
		out = append(out, Bad("version.files", "apt-get install --reinstall doorward", "%s is not the package's", f[len(f)-1]))
	}
	switch {
	case n == 0 && err != nil:
		out = append(out, Not("version.files", "files of the package: %v", Detail(err.Error())))
	case n == 0:
		out = append(out, Ok("version.files", "every file is the package's"))
	}
	return out
}

// Bounds of free space in bytes.
const (
	noSpace   = 64 << 20
	lowSpace  = 512 << 20
	stateRoot = "/var/lib/doorward"
)

// Disk says how much space there is for the record, which lets nothing through without it.
func Disk() Finding {
	const check, next = "disk", "make room on the file system of " + stateRoot
	place := stateRoot
	var st unix.Statfs_t
	err := unix.Statfs(place, &st)
	for err != nil && place != "/" {
		place = filepath.Dir(place)
		err = unix.Statfs(place, &st)
	}
	if err != nil {
		return Not(check, "space on disk: %v", err)
	}
	free := int64(st.Bavail) * st.Bsize
	const mib = 1 << 20
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return Bad(check, next, "%s is on a file system that is read-only: nothing is let through", stateRoot)
	case free < noSpace:
		return Bad(check, next, "%d MiB are free for the record: soon nothing is let through", free/mib)
	case free < lowSpace:
		return Less(check, next, "%d MiB are free for the record", free/mib)
	}
	return Ok(check, "%d MiB are free for the record", free/mib)
}
