// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/wire"
)

// version of the journal's form.
const version = 1

// Journal is what setup has chosen and done. A record is on the disk before what it tells of is begun, so that all of it
// can be taken back after a cut at any point; so every undoing is of something that may not, or only in part, have
// happened, and may be repeated.
type Journal struct {
	Version int       `json:"version"`
	Config  Config    `json:"config"`
	Found   []Found   `json:"found"`
	Records []*Record `json:"records"`

	path string
}

// Record is one thing done to the machine.
type Record struct {
	Op    opName   `json:"op"`
	Path  string   `json:"path,omitempty"` // what it was done to
	To    string   `json:"to,omitempty"`   // where it went
	Name  string   `json:"name,omitempty"` // of a user, an account, an agent
	Group string   `json:"group,omitempty"`
	Units []string `json:"units,omitempty"`
	// Sum is of a command that was put there, so that it is known again whatever a later doorward writes there.
	Sum  string `json:"sum,omitempty"`
	Done bool   `json:"done"`
	// Owners were written by earlier versions, and are not used.
	Owners json.RawMessage `json:"owners,omitempty"`
}

type owner struct{ UID, GID int }

// same says whether two records tell of the same thing.
func (r *Record) same(o *Record) bool {
	return r.Op == o.Op && r.Path == o.Path && r.Name == o.Name
}

// openJournal reads the journal of an earlier setup. ok is false where there is none.
func openJournal(path string) (j *Journal, ok bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Journal{Version: version, path: path}, false, nil
	}
	if err != nil {
		return nil, false, wire.Refuse(wire.CodeInternal, "read what an earlier setup has done: "+err.Error(),
			"look at "+path+", which only setup writes")
	}
	var newer struct{ Version int } // one may have what this program does not know
	if json.Unmarshal(b, &newer) == nil && newer.Version > version {
		return nil, false, otherVersion(path, newer.Version)
	}
	j = &Journal{path: path}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(j); err != nil {
		return nil, false, wire.Refuse(wire.CodeInternal, "read what an earlier setup has done: "+path+": "+err.Error(),
			"without it setup cannot say what to take back; put the file right")
	}
	if j.Version != version {
		return nil, false, otherVersion(path, j.Version)
	}
	return j, true, nil
}

func otherVersion(path string, is int) error {
	return wire.Refuse(wire.CodeInternal, fmt.Sprintf("%s is of version %d, here %d", path, is, version),
		"use the doorward that wrote it")
}

// save puts the journal on the disk.
func (j *Journal) save() error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return err
	}
	if err := writeDurably(j.path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write down what is done: %w", err)
	}
	return nil
}

// begin writes down what is about to be done.
func (j *Journal) begin(r *Record) (*Record, error) {
	for _, o := range j.Records {
		if o.same(r) {
			o.Done = false
			return o, j.save()
		}
	}
	j.Records = append(j.Records, r)
	return r, j.save()
}

// find is the record of the same thing, or nil.
func (j *Journal) find(r *Record) *Record {
	for _, o := range j.Records {
		if o.same(r) {
			return o
		}
	}
	return nil
}

// halfWritten is where a file's content is until it is whole. It is always the same, so that undoing finds what a cut has left.
func halfWritten(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// writeDurably replaces a file as a whole.
func writeDurably(path string, b []byte, mode fs.FileMode) error {
	if err := gone(os.Remove(halfWritten(path))); err != nil {
		return err
	}
	f, err := os.OpenFile(halfWritten(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
