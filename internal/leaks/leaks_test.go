// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

const secret = `pa"s&w<rd/3f9 b2?c71`

func scanner(t testing.TB) *Scanner {
	t.Helper()
	s, err := New(Secret{"the password", []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEachUsualFormIsFound(t *testing.T) {
	s := scanner(t)
	encoded, err := json.Marshal(map[string]string{"k": secret})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"itself": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"percent in small letters": strings.ToLower(url.PathEscape(secret)),
		"JSON":                     string(encoded),
		"JSON with slashes":        strings.NewReplacer(`"`, `\"`, "/", `\/`).Replace(secret),
		"HTML":                     html.EscapeString(secret),
		"HTML by name":             strings.ReplaceAll(html.EscapeString(secret), "&#34;", "&quot;"),
		"hex":                      fmt.Sprintf("%x", secret), "HEX": fmt.Sprintf("%X", secret),
		"every byte by percent": "%" + strings.Join(strings.Fields(fmt.Sprintf("% X", secret)), "%"),
		"UTF-16":                strings.Join(strings.Split(secret, ""), "\x00") + "\x00",
	}
	for before := range 6 {
		for after := range 4 {
			around := strings.Repeat("x", before) + secret + strings.Repeat("y", after)
			texts[fmt.Sprintf("base64 %d %d", before, after)] = base64.StdEncoding.EncodeToString([]byte(around))
			texts[fmt.Sprintf("base64url %d %d", before, after)] = base64.URLEncoding.EncodeToString([]byte(around))
		}
	}
	for name, text := range texts {
		found := s.Bytes("here", []byte("some words "+text+" and more"))
		if len(found) == 0 {
			t.Errorf("%s: not found in %q", name, text)
		}
		for _, f := range found {
			if strings.Contains(f.String(), secret) {
				t.Errorf("the report prints the secret: %v", f)
			}
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "half of it": secret[:len(secret)/2], "another": "pa_s_w_rd_3f9_b2_c71",
		"base64 of another": base64.StdEncoding.EncodeToString([]byte(strings.ToUpper(secret))),
	} {
		if found := s.Bytes("here", []byte(text)); len(found) > 0 {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

func TestShortSecretsAreRefused(t *testing.T) {
	for _, secrets := range [][]Secret{nil, {{"short", []byte("1234567")}}} {
		if s, err := New(secrets...); err == nil || s != nil {
			t.Errorf("%v was taken", secrets)
		}
	}
}

func TestReaderFindsAcrossBorders(t *testing.T) {
	s := scanner(t)
	for _, at := range []int{0, 1, window - len(secret), window - 5, window, window + s.longest - 3, window + s.longest,
		2*window + 17, 3*window - 1} {
		text := bytes.Repeat([]byte{'.'}, 3*window+100)
		copy(text[at:], secret)
		for name, r := range map[string]io.Reader{
			"whole": bytes.NewReader(text), "in halves": iotest.HalfReader(bytes.NewReader(text)),
		} {
			found, err := s.Reader("here", r)
			if err != nil || len(found) != 1 || found[0].Offset != int64(at) {
				t.Errorf("%s at %d: %v, %v", name, at, found, err)
			}
		}
	}
	if _, err := s.Reader("here", iotest.ErrReader(io.ErrClosedPipe)); err == nil {
		t.Error("a read that failed passed for a clean one")
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"clean": "nothing", "a/b/log": "token=" + url.QueryEscape(secret)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := scanner(t)
	r := s.Files(dir)
	if len(r.Findings) != 1 || r.Findings[0].Where != dir+"/a/b/log" || len(r.Skipped) != 0 || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
	if r := s.Files(dir + "/clean"); !r.Clean() {
		t.Errorf("%+v", r)
	}
	if r := s.Files(dir + "/missing"); r.Clean() || len(r.Findings) != 0 {
		t.Errorf("a file that is not there passed for a clean one: %+v", r)
	}
}

// TestMain makes the test's binary a process that holds the secret where the test asks it to.
func TestMain(m *testing.M) {
	if where := os.Getenv("LEAKS_HOLD"); where != "" || len(os.Args) > 1 && os.Args[1] == "hold" {
		hold(where)
		return
	}
	os.Exit(m.Run())
}

func hold(where string) {
	key, _ := io.ReadAll(os.Stdin) // so that neither arguments nor environment hold it by themselves
	var kept []byte
	switch where {
	case "memory":
		kept = append(bytes.Repeat([]byte{'.'}, window-7), key...)
	case "mapping": // across two windows, in pages beside the heap
		b, err := unix.Mmap(-1, 0, 3*window, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			panic(err)
		}
		copy(b[window-5:], key)
		clear(key)
		kept = b
	case "file":
		f, err := os.CreateTemp("", "leaks")
		if err != nil {
			panic(err)
		}
		f.Write(key)
		os.Remove(f.Name())
		clear(key)
		defer f.Close()
	case "memfd":
		fd, err := unix.MemfdCreate("leaks", unix.MFD_CLOEXEC)
		if err != nil {
			panic(err)
		}
		unix.Write(fd, key)
		clear(key)
	default:
		clear(key)
	}
	fmt.Println("ready")
	os.Stdout.Close()
	// The parent keeps this descriptor open until it has looked.
	io.Copy(io.Discard, os.NewFile(3, "until"))
	_ = kept
}

func TestProcesses(t *testing.T) {
	plain := "canary-" + rand.Text() // no constant: those stand in the test's own binary
	s, err := New(Secret{"the canary", []byte(plain)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ where, want string }{
		{"memory", "memory"}, {"mapping", "memory"}, {"file", "open file"}, {"memfd", "open file"},
		{"environ", "environ"}, {"cmdline", "cmdline"}, {"nothing", ""},
	} {
		t.Run(test.where, func(t *testing.T) {
			until, keep, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer keep.Close()
			cmd := exec.Command(os.Args[0], "hold")
			cmd.Env = []string{"LEAKS_HOLD=" + test.where}
			cmd.ExtraFiles = []*os.File{until}
			cmd.Stdin = strings.NewReader(plain)
			switch test.where {
			case "environ":
				cmd.Env = append(cmd.Env, "KEY="+plain)
			case "cmdline":
				cmd.Args = append(cmd.Args, "--key="+plain)
			}
			if test.where == "nothing" {
				cmd.Stdin = nil
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { keep.Close(); _ = cmd.Wait() }()
			until.Close()
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			r := s.Processes(cmd.Process.Pid)
			if len(r.Skipped) > 0 && os.Geteuid() != 0 {
				t.Skipf("this user may not read its child: %v", r.Skipped)
			}
			if r.Bytes < 100<<10 || len(r.Skipped) > 0 {
				t.Fatalf("looked through %d bytes only; skipped %v", r.Bytes, r.Skipped)
			}
			has := false
			for _, f := range r.Findings {
				has = has || strings.Contains(f.Where, test.want)
			}
			if has != (test.want != "") || (test.want == "" && len(r.Findings) > 0) {
				t.Errorf("found %v", r.Findings)
			}
		})
	}
	if r := s.Processes(os.Getpid()); r.Clean() {
		t.Error("it looked at itself")
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]mapping{
		"7f00-8000 rw-p 00000000 00:00 0 \n":               {0x7f00, 0x8000, "rw-p", ""},
		"7f00-8000 rw-p 00000000 00:00 0    [heap]\n":      {0x7f00, 0x8000, "rw-p", "[heap]"},
		"7f00-8000 r--s 00000000 00:01 9 /a b/c (deleted)": {0x7f00, 0x8000, "r--s", "/a b/c (deleted)"},
		"8000-7f00 rw-p 00000000 00:00 0":                  {},
		"x-y rw-p 00000000 00:00 0":                        {},
		"7f00-8000":                                        {},
		"":                                                 {},
		"ffffffffff600000-ffffffffff601000 --xp 0 0 0 [vsyscall]": {},
	} {
		got, ok := parseMapping(line)
		if got != want || ok != (want != mapping{}) {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for name, want := range map[string]bool{
		"": true, "[heap]": true, "[vvar]": false, "/dev/nvidia0": false, "/dev/shm/x": true,
		"/memfd:x (deleted)": true, "/secretmem (deleted)": true, "[stack]": true,
	} {
		if (mapping{name: name}).looked() != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

func TestPids(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"cgroup.procs": "12\n7\n", "a/cgroup.procs": "0\n9\n", "a/b/cgroup.procs": "",
		"a/memory.max": "max"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pids, err := Pids(dir)
	if err != nil || fmt.Sprint(pids) != "[7 9 12]" {
		t.Errorf("%v, %v", pids, err)
	}
	if _, err := Pids(dir + "/missing"); err == nil {
		t.Error("a cgroup that is not there passed for an empty one")
	}
}

// Whatever the secret: wherever it stands in base64, it is found.
func FuzzBase64(f *testing.F) {
	f.Add([]byte(secret), []byte("before"), []byte("after"))
	f.Fuzz(func(t *testing.T, key, before, after []byte) {
		if len(key) < 2*MinSecret || len(key) > 4096 {
			return
		}
		s, err := New(Secret{"k", key})
		if err != nil {
			t.Fatal(err)
		}
		text := base64.StdEncoding.EncodeToString(append(append(before[:len(before):len(before)], key...), after...))
		if len(s.Bytes("here", []byte(text))) == 0 {
			t.Fatalf("%q is not found in %q", key, text)
		}
	})
}

// The scanner finds exactly what a plain search finds.
func FuzzScan(f *testing.F) {
	f.Add([]byte(secret), []byte("before"+secret+"after"))
	f.Add([]byte("aaaaaaaaab"), []byte("aaaaaaaaaaaaaaaab"))
	f.Fuzz(func(t *testing.T, key, text []byte) {
		if len(key) < MinSecret || len(key) > 4096 {
			return
		}
		s, err := New(Secret{"k", key})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, found := range s.Bytes("here", text) {
			if at, ok := got[found.Form]; !ok || found.Offset < at {
				got[found.Form] = found.Offset
			}
		}
		want := map[string]int64{}
		for _, form := range Forms(key) {
			if i := bytes.Index(text, form.Bytes); i >= 0 {
				if at, ok := want[form.Name]; !ok || int64(i) < at {
					want[form.Name] = int64(i)
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}

func BenchmarkBytes(b *testing.B) {
	s := scanner(b)
	text := make([]byte, window)
	for i := range text {
		text[i] = byte(i * i >> 3)
	}
	b.SetBytes(window)
	for b.Loop() {
		if len(s.Bytes("here", text)) > 0 {
			b.Fatal("found")
		}
	}
}
