// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// released are the steps of this program.
var released = slices.Clone(steps)

// later has this program know n versions that there are not yet. Each leads an account from one vendor's version of the
// world to the next: it gives the owner another name.
func later(n int) {
	steps = slices.Clone(released)
	for i := range n {
		from, to := fmt.Sprintf("owner%d", i+1), fmt.Sprintf("owner%d", i+2)
		steps = append(steps, func(p purpose, plain []byte) ([]byte, error) {
			if p != purposeAccount {
				return plain, nil
			}
			return bytes.ReplaceAll(plain, []byte(from), []byte(to)), nil
		})
	}
}

const migrateEnv = "STORE_TEST_KILLED_AT" // point, and folder

// TestMain is also the process that is killed in a migration.
func TestMain(m *testing.M) {
	at, dir, child := strings.Cut(os.Getenv(migrateEnv), " ")
	if !child {
		os.Exit(m.Run())
	}
	later(2)
	point, err := strconv.Atoi(at)
	if err != nil {
		panic(err)
	}
	killedAt = func(n int) {
		if n == point {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	s, err := Open(dir)
	if err == nil {
		err = s.UnlockCredential(rootKey())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// content is every file's bytes below a folder but those of the lock.
func content(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %x\n", strings.TrimPrefix(path, dir), b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// versionOf reads a store's header.
func versionOf(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, headerName))
	if err != nil {
		t.Fatal(err)
	}
	for v := range 9 {
		if bytes.Contains(b, fmt.Appendf(nil, `"version":%d,`, v)) {
			return v
		}
	}
	t.Fatalf("the header is %s", b)
	return 0
}

// firstStore is a store of this version with two accounts, a surrogate and a checkpoint.
func firstStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	for _, set := range []Settings{github("work"), bot("bot")} {
		set.Owner = "owner1"
		if err := s.Add(set, []byte(token), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.KeepCheckpoint([]byte("note"), 7); err != nil {
		t.Fatal(err)
	}
	mintBot(t, s, "issue", "value")
	shut()
	return dir
}

// holds opens a store as a program that knows two more versions, and holds it to what was in it.
func holds(t *testing.T, dir string) {
	t.Helper()
	later(2)
	defer later(0)
	s, shut := opened(t, dir)
	defer shut()
	if n := len(s.Accounts()); n != 2 {
		t.Fatalf("%d accounts", n)
	}
	for _, a := range s.Accounts() {
		if a.Owner != "owner3" || reveal(a) != token || a.Generation == 0 {
			t.Errorf("%s is of %q in generation %d", a.Name, a.Owner, a.Generation)
		}
	}
	if note, size := s.Checkpoint(); string(note) != "note" || size != 7 {
		t.Errorf("the checkpoint is %q of %d", note, size)
	}
	if v := versionOf(t, dir); v != Version+2 {
		t.Errorf("it is of version %d", v)
	}
	if !lives(s, "issue", "value") {
		t.Error("its surrogate is lost")
	}
	if err := s.Rename("work", "job", now); err != nil {
		t.Errorf("it cannot be changed: %v", err)
	}
	if _, err := os.Stat(dir + nextSuffix); err == nil {
		t.Error("the folder beside it is left")
	}
}

// A process that is killed at any point of a migration leaves the old store or the new one, and the next start goes on.
func TestAStoreIsMigratedWholeOrNot(t *testing.T) {
	first := firstStore(t)
	old := content(t, first)
	points := map[int]int{} // point to the version that it leaves
	for point := 1; point <= 6; point++ {
		points[point] = Version
	}
	points[0], points[-1] = Version, Version+2
	for point, version := range points {
		t.Run(strconv.Itoa(point), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			if err := errors.Join(os.CopyFS(dir, os.DirFS(first)), os.Chmod(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", migrateEnv, point, dir))
			if said, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != -1 {
				t.Fatalf("it was not killed: %v\n%s", err, said)
			}
			if v := versionOf(t, dir); v != version {
				t.Errorf("it is of version %d, want %d", v, version)
			}
			if version == Version && content(t, dir) != old {
				t.Error("the old store is not as it was")
			}
			holds(t, dir)
		})
	}
	t.Run("control: not killed", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		if err := errors.Join(os.CopyFS(dir, os.DirFS(first)), os.Chmod(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		holds(t, dir)
	})
}

// A step that fails, and a wrong key, leave the store as it is.
func TestAMigrationThatFailsChangesNothing(t *testing.T) {
	dir := firstStore(t)
	old := content(t, dir)
	defer later(0)
	later(1)
	wrong := rootKey()
	wrong[0] ^= 1
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnlockCredential(wrong); !errors.Is(err, ErrWrongKey) || !s.Locked() {
		t.Errorf("with a wrong key: %v", err)
	}
	broken := errors.New("it cannot be led on")
	steps = append(slices.Clone(released), func(p purpose, plain []byte) ([]byte, error) {
		if p == purposeAccount {
			return nil, broken
		}
		return plain, nil
	})
	if err := s.UnlockCredential(rootKey()); !errors.Is(err, broken) || !s.Locked() {
		t.Errorf("with a step that fails: %v", err)
	}
	steps = append(slices.Clone(released), func(p purpose, plain []byte) ([]byte, error) {
		if p == purposeAccount {
			return append([]byte(`{"odd":1,`), plain[1:]...), nil
		}
		return plain, nil
	})
	if err := s.UnlockCredential(rootKey()); !errors.Is(err, ErrCorrupt) || !s.Locked() {
		t.Errorf("with a step that makes what this version does not read: %v", err)
	}
	s.Close()
	if content(t, dir) != old {
		t.Error("the store has changed")
	}
}

// An older program refuses a store of a newer one in words, and leaves it as it is.
func TestANewerStoreIsRefusedAsItIs(t *testing.T) {
	dir := firstStore(t)
	later(1)
	_, shut := opened(t, dir)
	shut()
	later(0)
	if err := os.Mkdir(dir+nextSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	as := content(t, dir)
	_, err := Open(dir)
	if !errors.Is(err, ErrNewer) {
		t.Fatalf("it is opened: %v", err)
	}
	for _, words := range []string{"version 3", "knows 2", "install the newer program again"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("it does not say %q: %v", words, err)
		}
	}
	if content(t, dir) != as {
		t.Error("it has changed the store that it refuses")
	}
	if _, err := os.Stat(dir + nextSuffix); err != nil {
		t.Error("it has deleted what it does not know")
	}
	if newest() != Version {
		t.Errorf("Version is %d, and the steps lead to %d", Version, newest())
	}
}

// A store of the version before opens, as it was, and takes what is new.
func TestAStoreOfVersion1IsLedOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	defer later(0)
	steps = nil // a program of that version
	s, shut := opened(t, dir)
	if err := errors.Join(s.Add(github("work"), []byte(token), now), s.KeepCheckpoint([]byte("note"), 7)); err != nil {
		t.Fatal(err)
	}
	was, _ := s.Account("work")
	shut()
	if v := versionOf(t, dir); v != 1 {
		t.Fatalf("it is of version %d", v)
	}
	later(0)
	s, shut = opened(t, dir)
	a, ok := s.Account("work")
	if note, size := s.Checkpoint(); !ok || a.Digest != was.Digest || reveal(a) != token || string(note) != "note" || size != 7 {
		t.Errorf("it is not as it was: %+v", a)
	}
	if err := s.Add(bot("bot"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	mintBot(t, s, "issue", "value")
	shut()
	s, _ = opened(t, dir)
	if v := versionOf(t, dir); v != Version || !lives(s, "issue", "value") {
		t.Errorf("version %d", v)
	}
}
