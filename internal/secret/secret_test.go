// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/vmihailenco/msgpack/v5"
)

const value = "hunter2-secret-value"

// forms are the spellings in which a leak could show: plain, hex in both cases, base64, and decimal byte lists.
func forms() []string {
	dec := strings.Trim(fmt.Sprint([]byte(value)), "[]")
	return []string{
		value, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
		base64.StdEncoding.EncodeToString([]byte(value))[:20], dec, strings.ReplaceAll(dec, " ", ", "),
		strings.TrimSuffix(fmt.Sprintf("%#v", []byte(value)), "}")[len("[]byte{"):],
		strings.Trim(fmt.Sprintf("% x", []byte(value)), " "), strings.Trim(fmt.Sprintf("%o", []byte(value)), "[]"),
		strings.Trim(fmt.Sprintf("%b", []byte(value)), "[]"),
	}
}

func leaks(out string) bool {
	for _, f := range forms() {
		if strings.Contains(out, f) {
			return true
		}
	}
	return false
}

type exported struct{ S Bytes }
type exportedPtr struct{ S *Bytes }
type unexported struct{ s Bytes }
type unexportedPtr struct{ s *Bytes }
type embedded struct{ Bytes }
type deep struct {
	m map[string]unexported
	l []Bytes
	a any
}

// shapes are every way in which a secret sits in a value that somebody prints.
func shapes() map[string]any {
	s := New([]byte(value))
	return map[string]any{
		"value": s, "pointer": &s, "exported": exported{s}, "pointer to exported": &exported{s},
		"exported pointer": exportedPtr{&s}, "unexported": unexported{s}, "pointer to unexported": &unexported{s},
		"unexported pointer": unexportedPtr{&s}, "pointer to unexported pointer": &unexportedPtr{&s},
		"embedded": embedded{s}, "slice": []Bytes{s}, "slice of pointers": []*Bytes{&s}, "array": [1]Bytes{s},
		"map": map[string]Bytes{"k": s}, "any": []any{s, &s}, "error": fmt.Errorf("wrapped: %w", errors.New(s.String())),
		"deep": deep{map[string]unexported{"k": {s}}, []Bytes{s}, s},
	}
}

func TestNoVerbPrintsASecret(t *testing.T) {
	for name, v := range shapes() {
		for verb := rune(33); verb < 127; verb++ {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "#+", "+-# 0", "40", ".3", "40.3", "#40.40"} {
				format := "%" + flags + string(verb)
				if out := fmt.Sprintf(format, v); leaks(out) {
					t.Errorf("%s under %s: %s", name, format, out)
				}
			}
		}
		if out := fmt.Sprint(v) + fmt.Sprintln(v) + fmt.Errorf("%w %v", errors.New("x"), v).Error(); leaks(out) {
			t.Errorf("%s: %s", name, out)
		}
	}
	// The control: the same looking finds a secret that is not wrapped.
	for _, verb := range []string{"%s", "%x", "%X", "%d", "%v", "%#v", "% x", "%o", "%b", "%q"} {
		if out := fmt.Sprintf(verb, []byte(value)); !leaks(out) {
			t.Errorf("control: a bare secret under %s was not found in %s", verb, out)
		}
	}
}

func TestNoEncoderPrintsASecret(t *testing.T) {
	encoders := map[string]func(any) ([]byte, error){
		"json": json.Marshal, "xml": xml.Marshal, "msgpack": msgpack.Marshal, "toml": toml.Marshal,
		"gob": func(v any) ([]byte, error) {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(v)
			return b.Bytes(), err
		},
	}
	for enc, marshal := range encoders {
		for name, v := range shapes() {
			out, err := marshal(v)
			if leaks(string(out)) || (err != nil && leaks(err.Error())) {
				t.Errorf("%s of %s: %s %v", enc, name, out, err)
			}
		}
	}
	out, err := json.Marshal(exported{New([]byte(value))})
	if err != nil || string(out) != `{"S":"[secret]"}` {
		t.Errorf("json: %s %v, want the fixed word", out, err)
	}
	for _, enc := range []string{"msgpack", "gob"} {
		if _, err := encoders[enc](exported{New([]byte(value))}); err == nil {
			t.Errorf("%s encoded a secret; a wire must get an error", enc)
		}
	}
	var back exported
	if json.Unmarshal([]byte(`{"S":"[secret]"}`), &back) == nil {
		t.Error("the fixed word was decoded into a secret")
	}
}

func TestNoLoggerPrintsASecret(t *testing.T) {
	for name, v := range shapes() {
		var b bytes.Buffer
		for _, h := range []slog.Handler{
			slog.NewJSONHandler(&b, &slog.HandlerOptions{AddSource: true, Level: slog.LevelDebug}),
			slog.NewTextHandler(&b, &slog.HandlerOptions{AddSource: true, Level: slog.LevelDebug}),
		} {
			l := slog.New(h)
			l.Info("message", "key", v)
			l.With("key", v).WithGroup("g").Debug("message", slog.Group("h", slog.Any("key", v)))
		}
		if leaks(b.String()) {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}

func TestRevealAndWipe(t *testing.T) {
	raw := []byte(value)
	s := New(raw)
	other := s
	if string(s.Reveal()) != value {
		t.Fatal("Reveal gave something else than what went in")
	}
	other.Wipe()
	if s.Reveal() != nil {
		t.Error("a copy still reveals after Wipe")
	}
	if !bytes.Equal(raw, make([]byte, len(value))) {
		t.Errorf("Wipe left %q in memory", raw)
	}
	var zero Bytes
	zero.Wipe()
	if zero.Reveal() != nil || fmt.Sprint(zero) != word {
		t.Error("the zero value holds or prints something")
	}
}
