// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// journal makes of the journal's lines those of a report. A daemon's line is a constant message and fields; kept are the
// message, numbers, and fields whose values are words of Doorward's own. Of systemd's lines, which name units, the kind
// is kept; of a Go program that fell, where it fell; of a cell's lines nothing.
func (r *redactor) journal(lines []byte) []map[string]any {
	out := []map[string]any{}
	sc := bufio.NewScanner(bytes.NewReader(lines))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var e map[string]any
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			continue
		}
		text := func(key string) string { s, _ := e[key].(string); return s }
		unit := orElse(text("UNIT"), text("_SYSTEMD_UNIT"))
		l := map[string]any{"unit": r.unit(unit)}
		if at, err := strconv.ParseInt(text("__REALTIME_TIMESTAMP"), 10, 64); err == nil {
			l["time"] = at / 1e6 // seconds
		}
		switch {
		case text("_PID") == "1" && text("UNIT") != "":
			l["from"] = "systemd"
			for key, form := range ofSystemd {
				if v := text(key); form.MatchString(v) {
					l[strings.ToLower(key)] = v
				}
			}
		case strings.HasPrefix(l["unit"].(string), "#"): // a cell's: it says what it likes
			l["left_out"] = len(text("MESSAGE"))
		default:
			r.daemonLine(l, text("MESSAGE"))
		}
		out = append(out, l)
	}
	return out
}

var (
	// ofSystemd are the fields of systemd's own lines, systemd.journal-fields(7), that name nothing.
	ofSystemd = map[string]*regexp.Regexp{
		"MESSAGE_ID":  regexp.MustCompile(`^[0-9a-f]{32}$`),
		"JOB_TYPE":    regexp.MustCompile(`^(start|stop|restart|reload|try-restart)$`),
		"JOB_RESULT":  regexp.MustCompile(`^(done|failed|canceled|timeout|dependency|skipped|invalid|assert|unsupported)$`),
		"UNIT_RESULT": regexp.MustCompile(`^(success|protocol|timeout|exit-code|signal|core-dump|watchdog|start-limit-hit|oom-kill)$`),
		"EXIT_CODE":   regexp.MustCompile(`^(exited|killed|dumped)$`),
		"EXIT_STATUS": regexp.MustCompile(`^([0-9]{1,3}|[A-Z]{3,6}[0-9]?)$`),
	}
	// numbers are the fields whose values are counts or sizes.
	numbers = []string{"count", "bytes", "size", "status", "code", "entries", "uses"}
	// Where a Go program fell: files are of the build, which was told to leave the builder's folders out.
	place    = regexp.MustCompile(`^\s+(?:[a-z0-9.]+/)*[a-z0-9_.@-]+\.go:\d+(?: \+0x[0-9a-f]+)?$`)
	function = regexp.MustCompile(`^(github\.com/doorward/doorward/[A-Za-z0-9_./*()]+|runtime\.[A-Za-z0-9_.]+)\(`)
)

// daemonLine adds what is kept of a daemon's line.
func (r *redactor) daemonLine(l map[string]any, message string) {
	var fields map[string]any
	if json.Unmarshal([]byte(message), &fields) != nil {
		switch f := function.FindStringSubmatch(message); {
		case strings.HasPrefix(message, "panic: runtime error: ") && r.plain(strings.TrimPrefix(message, "panic: ")),
			place.MatchString(message):
			l["trace"] = strings.TrimSpace(message)
		case f != nil:
			l["trace"] = f[1]
		default:
			l["left_out"] = len(message)
		}
		return
	}
	if msg, _ := fields["msg"].(string); r.plain(msg) {
		l["msg"] = msg
	}
	if level, _ := fields["level"].(string); slices.Contains([]string{"DEBUG", "INFO", "WARN", "ERROR"}, level) {
		l["level"] = level
	}
	for key, v := range fields {
		s, isText := v.(string)
		switch n, isNumber := v.(float64); {
		case isNumber && slices.Contains(numbers, key):
			l[key] = n
		case !isText:
		case key == "verb" && verbs[s], key == "vendor" && slices.Contains(r.vendors, s):
			l[key] = s
		case key == "err":
			if no := errno(s); no != "" {
				l[key] = no
			}
		}
	}
}

// plain says whether a message is one of our own: lower-case words, none of them a name that is the person's.
func (r *redactor) plain(msg string) bool {
	if msg == "" || len(msg) > 160 || strings.Trim(msg, "abcdefghijklmnopqrstuvwxyz ,;:'-") != "" {
		return false
	}
	for _, w := range strings.FieldsFunc(msg, func(c rune) bool { return strings.ContainsRune(" ,;:'", c) }) {
		if slices.ContainsFunc(append(strings.Split(w, "-"), w), func(w string) bool { return slices.Contains(r.private, w) }) {
			return false
		}
	}
	return true
}

var verbs = func() map[string]bool {
	m := map[string]bool{}
	for _, e := range wire.Graph() {
		for _, v := range append(e.Verbs, e.Back...) {
			m[v] = true
		}
	}
	return m
}()

// errno is the kernel's words at the end of an error's text.
func errno(s string) string {
	for no := unix.Errno(1); no < 134; no++ {
		if words := no.Error(); strings.HasSuffix(s, ": "+words) {
			return words
		}
	}
	return ""
}
