// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"

	"github.com/doorward/doorward/internal/wire"
)

// Config is what was chosen: by answers, or by the file of `doorward setup --config`. No secret is ever in it.
type Config struct {
	Person   string   `toml:"person" json:"person"`             // a user of this machine
	Cell     string   `toml:"cell" json:"cell"`                 // [a-z0-9]{1,32}; "work"
	Agents   []string `toml:"agents" json:"agents"`             // their commands; left out: all that are found
	Projects []string `toml:"projects" json:"projects"`         // folders that the cell may write
	Sites    []string `toml:"sites" json:"sites,omitempty"`     // sets of sites that cells reach without asking
	Tree     string   `toml:"tree" json:"tree"`                 // "usr", this machine's, or "mmdebstrap"
	Key      string   `toml:"key" json:"key"`                   // "machine", or "passphrase"
	Workers  []string `toml:"workers" json:"workers,omitempty"` // connectors beside the account's
	Memory   string   `toml:"memory" json:"memory,omitempty"`   // of the cell, as "4G"
	Tasks    int64    `toml:"tasks" json:"tasks,omitempty"`
	// PassphraseFile has the passphrase where Key says so; without it it is asked for.
	PassphraseFile string   `toml:"passphrase_file" json:"-"`
	Account        *Account `toml:"account" json:"account,omitempty"` // the first account; nil is none
}

// Account is the first account.
type Account struct {
	Connector string   `toml:"connector" json:"connector"`
	Name      string   `toml:"name" json:"name"` // the connector's own
	Base      string   `toml:"base" json:"base,omitempty"`
	CA        string   `toml:"ca" json:"ca,omitempty"`
	User      string   `toml:"user" json:"user,omitempty"`
	Owner     string   `toml:"owner" json:"owner,omitempty"`
	Permit    []string `toml:"permit" json:"permit,omitempty"`
	Also      []string `toml:"also" json:"also,omitempty"`
	Scopes    []string `toml:"scopes" json:"scopes,omitempty"`
	// The secret comes from a file that its owner alone may read, or from a descriptor. In a file of settings it would be
	// copied, shown and kept.
	SecretFile string `toml:"secret_file" json:"-"`
	SecretFD   int    `toml:"secret_fd" json:"-"`
	// Approve decides at once that the account may be used. Without it a person at a terminal does.
	Approve bool `toml:"approve" json:"-"`
}

// Bounds of a configuration. Those of a cell are as its start has them: there, they would be found out last of all.
const (
	maxConfig   = 64 << 10 // bytes
	maxProjects = 64
	maxTasks    = 1 << 22
)

var memory = regexp.MustCompile(`^([1-9][0-9]{0,6}[KMGT]|[1-9][0-9]{0,17})$`)

// Load reads a file of `doorward setup --config`. What is wrong is named with its line.
func Load(path string) (*Config, error) {
	bad := func(why, next string) (*Config, error) {
		return nil, wire.Refuse(wire.CodeUsage, "read "+path+": "+why, next)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return bad(err.Error(), "name a file that is there")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return bad(err.Error(), "name a file that can be read")
	}
	if !st.Mode().IsRegular() {
		return bad("no regular file", "write it into one")
	}
	// Who writes it chooses a file whose content goes to a server of theirs.
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid != 0 && strconv.Itoa(int(sys.Uid)) != os.Getenv("SUDO_UID") && int(sys.Uid) != os.Getuid() ||
		st.Mode().Perm()&0o022 != 0 {
		return bad("others than root and you may write it", "chown root "+path+"; chmod go-w "+path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return bad(err.Error(), "name a file that can be read")
	}
	if len(b) > maxConfig {
		return bad(fmt.Sprintf("more than %d bytes", maxConfig), "see: doorward setup --help")
	}
	c, err := parse(path, b)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "correct "+path+"; see: doorward setup --help")
	}
	return c, nil
}

func parse(path string, b []byte) (*Config, error) {
	c := &Config{}
	var strict *toml.StrictMissingError
	var where *toml.DecodeError
	switch err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(c); {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		line, col := strict.Errors[0].Position()
		key := strict.Errors[0].Key()
		return nil, fmt.Errorf("%s:%d:%d: there is no key %q%s", path, line, col, strings.Join(key, "."), instead(key))
	case errors.As(err, &where):
		line, col := where.Position()
		why := strings.TrimPrefix(where.Error(), "toml: ")
		if key := strings.Join(where.Key(), "."); key != "" && kinds()[key] != "" {
			why = key + ": want " + kinds()[key]
		}
		return nil, fmt.Errorf("%s:%d:%d: %s", path, line, col, why)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if reflect.DeepEqual(c, &Config{}) { // an empty file is sooner a mistake than the wish to take in all that is found
		return nil, fmt.Errorf("%s: it says nothing; say at least who: person = \"NAME\"", path)
	}
	if err := c.fill(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// kinds are the keys there are, and what each takes.
func kinds() map[string]string {
	out := map[string]string{}
	for prefix, t := range map[string]reflect.Type{"": reflect.TypeFor[Config](), "account.": reflect.TypeFor[Account]()} {
		for i := range t.NumField() {
			f := t.Field(i)
			kind := "a table [account]"
			switch f.Type.Kind() {
			case reflect.String:
				kind = "a text in quotes"
			case reflect.Slice:
				kind = `a list of texts, as ["one", "two"]`
			case reflect.Bool:
				kind = "true or false"
			case reflect.Int, reflect.Int64:
				kind = "a whole number"
			}
			out[prefix+f.Tag.Get("toml")] = kind
		}
	}
	return out
}

// instead is what was probably meant by a key that there is not.
func instead(key []string) string {
	switch key[len(key)-1] {
	case "secret", "password", "token":
		return "; no secret is in this file: secret_file names the file that has it"
	}
	best, least := "", 3 // two letters may be wrong
	for _, k := range slices.Sorted(maps.Keys(kinds())) {
		if d := distance(strings.Join(key, "."), k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is how many letters are to be put in, taken out or changed to come from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := before
			if a[i-1] != b[j-1] {
				cost++
			}
			before = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// fill sets what was left out and refuses what cannot be.
func (c *Config) fill() error {
	def := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	def(&c.Cell, "work")
	def(&c.Tree, "usr")
	def(&c.Key, "machine")
	switch {
	case !isName(c.Cell):
		return fmt.Errorf("cell: %.40q is no name of a cell: 1 to 32 of a-z and 0-9", c.Cell)
	case c.Tree != "usr" && c.Tree != "mmdebstrap":
		return fmt.Errorf("tree: %.40q is neither \"usr\" nor \"mmdebstrap\"", c.Tree)
	case c.Key != "machine" && c.Key != "passphrase":
		return fmt.Errorf("key: %.40q is neither \"machine\" nor \"passphrase\"", c.Key)
	case c.PassphraseFile != "" && c.Key != "passphrase":
		return errors.New("passphrase_file: it goes with key = \"passphrase\"")
	}
	switch {
	case c.Memory != "" && !memory.MatchString(c.Memory):
		return fmt.Errorf("memory: %.40q: want bytes, as \"4G\" or \"512M\"", c.Memory)
	case c.Tasks < 0 || c.Tasks > maxTasks:
		return fmt.Errorf("tasks: %d: want a number of processes up to %d", c.Tasks, maxTasks)
	case len(c.Projects) > maxProjects:
		return fmt.Errorf("projects: more than %d", maxProjects)
	}
	for _, name := range c.Agents {
		if names := agentNames(); !slices.Contains(names, name) {
			return fmt.Errorf("agents: %.40q is none of %s", name, strings.Join(names, ", "))
		}
	}
	for i, name := range c.Sites {
		if !slices.Contains(siteSets, name) || slices.Contains(c.Sites[:i], name) {
			return fmt.Errorf("sites: %.40q is none of %s, or named twice", name, strings.Join(siteSets, ", "))
		}
	}
	for _, w := range c.Workers {
		if !isName(w) {
			return fmt.Errorf("workers: %.40q is no connector", w)
		}
	}
	a := c.Account
	if a == nil {
		return nil
	}
	def(&a.Name, a.Connector)
	switch {
	case !isName(a.Connector):
		return fmt.Errorf("account.connector: %.40q is no connector", a.Connector)
	case a.SecretFile != "" && a.SecretFD != 0:
		return errors.New("account: secret_file and secret_fd are two sources; give one")
	case a.SecretFD != 0 && a.SecretFD < 3:
		return errors.New("account.secret_fd: want a descriptor from 3 on, opened for this command")
	}
	return nil
}

func isName(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}
