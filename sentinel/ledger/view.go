// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// view is what decisions read, kept in memory: what is durable, and of labels and counts also what is on its way, so
// that two decisions at once cannot both overlook the other.
type view struct {
	mu       sync.RWMutex // guards what follows
	grants   map[string]Grant
	labels   map[string]map[string]Label // by cell and name
	coming   map[string]map[string]int   // labels on their way, by cell and name
	sessions map[string]Session
	settings map[string]Setting
	reads    map[readKey]ReadCount
	waits    map[string]Waiting // by call
	waited   uint64             // grows with each change of waits; 0 is before any
}

type readKey struct{ session, connector string }

// ReadCount is what a session has read through a connector.
type ReadCount struct {
	Count int
	Bytes int64
}

func (v *view) setGrant(g Grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.grants[g.ID] = g
}

func (v *view) setLabel(lb Label) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.labels[lb.Cell] == nil {
		v.labels[lb.Cell] = map[string]Label{}
	}
	v.labels[lb.Cell][lb.Name] = lb
}

func (v *view) clearLabel(cell, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.labels[cell], name)
}

func (v *view) setSession(s Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[s.ID] = s
}

// endSession keeps the session's end, and forgets what it read: nothing of it can read again.
func (v *view) endSession(s Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[s.ID] = s
	maps.DeleteFunc(v.reads, func(k readKey, _ ReadCount) bool { return k.session == s.ID })
}

func (v *view) setSetting(s Setting) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settings[s.Key] = s
}

// reading puts a read that begins (by 1), or that could not (by -1), into the counts, and its labels on the cell.
func (v *view) reading(c *Call, by int) {
	if by > 0 && len(c.Labels) > 0 {
		v.mu.Lock()
		if v.coming[c.Cell] == nil {
			v.coming[c.Cell] = map[string]int{}
		}
		for _, n := range c.Labels {
			v.coming[c.Cell][n]++
		}
		v.mu.Unlock()
	}
	v.read(c, by, 0)
}

// started takes back what reading put on the cell: by now the label is durable, or the call is none.
func (v *view) started(c *Call) {
	if len(c.Labels) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range c.Labels {
		if v.coming[c.Cell][n]--; v.coming[c.Cell][n] <= 0 {
			delete(v.coming[c.Cell], n)
		}
	}
}

func (v *view) read(c *Call, count int, bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := readKey{c.Session, c.Connector}
	n := v.reads[k]
	v.reads[k] = ReadCount{n.Count + count, n.Bytes + bytes}
}

// Reads returns what the session has read through the connector, reads under way included. A session of more than 12 h
// ago has none.
func (l *Ledger) Reads(session, connector string) ReadCount {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.reads[readKey{session, connector}]
}

// Grants returns the grants that f chooses, oldest first.
func (l *Ledger) Grants(f GrantFilter) []Grant {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	var out []Grant
	for _, g := range l.view.grants {
		if f.match(g) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Grant) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Labels returns a cell's labels with their causes, by name. One on its way has no cause yet.
func (l *Ledger) Labels(cell string) []Label {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	have := maps.Clone(l.view.labels[cell])
	if have == nil {
		have = map[string]Label{}
	}
	for name := range l.view.coming[cell] {
		if _, ok := have[name]; !ok {
			have[name] = Label{Cell: cell, Name: name}
		}
	}
	return slices.SortedFunc(maps.Values(have), func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
}

// Labelled returns the cells that carry a label, by name.
func (l *Ledger) Labelled(name string) []string {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	var out []string
	for cell, labels := range l.view.labels {
		if _, ok := labels[name]; ok {
			out = append(out, cell)
		}
	}
	slices.Sort(out)
	return out
}

// Sessions returns the sessions of a cell, or of all if cell is "", that have not ended.
func (l *Ledger) Sessions(cell string) []Session {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	var out []Session
	for _, s := range l.view.sessions {
		if s.Ended.IsZero() && (cell == "" || cell == s.Cell) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Session) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Session returns a session, ended or not.
func (l *Ledger) Session(id string) (Session, bool) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	s, ok := l.view.sessions[id]
	return s, ok
}

// Setting returns a setting as it was decided last.
func (l *Ledger) Setting(key string) (Setting, bool) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	s, ok := l.view.settings[key]
	return s, ok
}

// Settings returns the settings whose key begins with prefix, in no order.
func (l *Ledger) Settings(prefix string) []Setting {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	var out []Setting
	for k, s := range l.view.settings {
		if strings.HasPrefix(k, prefix) {
			out = append(out, s)
		}
	}
	return out
}

// sessionLimit is the longest life of a session (design section 7).
const sessionLimit = 12 * time.Hour

// loadView reads everything that decisions read.
func (l *Ledger) loadView(ctx context.Context) error {
	v := &l.view
	v.grants, v.labels, v.coming = map[string]Grant{}, map[string]map[string]Label{}, map[string]map[string]int{}
	v.sessions, v.settings, v.reads = map[string]Session{}, map[string]Setting{}, map[readKey]ReadCount{}
	v.waits, v.waited = map[string]Waiting{}, 1
	past := l.now().Add(-2 * sessionLimit)
	rows, err := l.conn.QueryContext(ctx, "SELECT kind, key, body FROM state")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, key string
		var body []byte
		if err := rows.Scan(&kind, &key, &body); err != nil {
			return err
		}
		switch kind {
		case kindGrant:
			err = loadRow(body, v.setGrant)
		case kindLabel:
			err = loadRow(body, v.setLabel)
		case kindSession:
			err = loadRow(body, func(s Session) {
				if s.Ended.IsZero() || !past.Reached(s.Ended) {
					v.setSession(s) // one that is long over is in the record only
				}
			})
		case kindSetting:
			err = loadRow(body, v.setSetting)
		case kindNotice: // their owner reads them
		default:
			err = fmt.Errorf("nobody writes such a row")
		}
		if err != nil {
			return fmt.Errorf("%w: %s %s: %w", ErrCorrupt, kind, key, err)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := l.loadWaiting(ctx); err != nil {
		return err
	}
	return l.loadReads(ctx)
}

func loadRow[T any](body []byte, set func(T)) error {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	set(v)
	return nil
}

// loadReads counts the reads of the last 12 h again: they have no row of their own that could be wrong.
func (l *Ledger) loadReads(ctx context.Context) error {
	since := l.now().Add(-sessionLimit)
	return l.eachCall(ctx, func(c *Call) {
		if c.Class == classRead {
			l.view.read(c, 1, c.In)
		}
	}, "c.id >= ? AND c.state IN ('executing', 'done', 'failed', 'unknown')", idAt(since.Time()))
}

// eachCall reads the calls that cond chooses.
func (l *Ledger) eachCall(ctx context.Context, fn func(*Call), cond string, args ...any) error {
	rows, err := l.conn.QueryContext(ctx, "SELECT c.n, c.body, f.body FROM calls c JOIN frames f USING (id) WHERE "+cond,
		args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var body, fixed []byte
		if err := rows.Scan(&n, &body, &fixed); err != nil {
			return err
		}
		c, _, err := decodeCall(n, body, fixed)
		if err != nil {
			return err
		}
		fn(&c)
	}
	return rows.Err()
}
