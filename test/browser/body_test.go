// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

func (s *standIn) bodyVerb() daemon.Verb {
	return answer(s, "body", func(q *wire.BodyReq) (*wire.BodyResp, error) {
		b, ok := s.content[wire.Digest(q.SHA256)]
		if !ok || s.find(q.Call) == nil {
			return nil, wire.Refuse(wire.CodeNotFound, "no such body", "")
		}
		rest := b[min(q.From, int64(len(b))):]
		return &wire.BodyResp{Data: rest[:min(len(rest), 512<<10)]}, nil
	})
}

// holds gives the stand-in content, and a card of it that is cut at a kilobyte.
func (s *standIn) holds(name string, content []byte, binary bool) wire.Shown {
	if s.content == nil {
		s.content = map[wire.Digest][]byte{}
	}
	sum := wire.Sum(content)
	s.content[sum] = content
	w := wire.Shown{Name: name, Size: int64(len(content)), SHA256: sum, Cut: true, Binary: binary}
	if w.Text = string(content[:min(len(content), 1024)]); binary {
		w.Text = fmt.Sprintf("%d bytes that are no text", len(content))
	}
	return w
}

const cutLine = "You have not seen all that this is about: "

// What a card cuts is opened here, held to the digest that was signed, and until then it says so beside the button.
func TestTheWholeContentIsOpened(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		text := strings.Repeat("a line of what is sent\n", 30_000) + "and at the very end: pay\u202eeve\n"
		c := card("c1")
		c.Bodies = []wire.Shown{r.holds("letter.txt", []byte(text), false)}
		r.cards = []wire.Card{c}
		b := r.enrolled(t, w, h)
		b.press("Open an issue")
		b.Sees(cutLine + "letter.txt. It runs as a whole all the same.")
		b.press("letter.txt (690 kB)")
		b.Sees("Not all of it is shown.")
		fits(t, b)
		b.press("Open all of it")
		b.Sees("It is what the card has the digest of.")
		for !strings.Contains(b.Text(), "and at the very end") {
			b.Eval(`(() => { const e = [...document.querySelectorAll("button")].find((e) => e.innerText.startsWith("Show more (")); e?.click(); return Boolean(e); })()`, new(bool))
			if !strings.Contains(b.Text(), cutLine) && !strings.Contains(b.Text(), "and at the very end") {
				t.Fatal("it counts as seen before its end")
			}
		}
		b.Sees("pay⟨U+202E⟩eve")
		var shown string
		b.Eval(`[...document.querySelectorAll("details pre .text")].map((l) => l.textContent).join("\n") + "\n"`, &shown)
		if asTerminal(shown) != strings.ReplaceAll(text, "\u202e", `\u{202e}`) {
			t.Errorf("what is shown is another text, of %d characters in place of %d", len(shown), len(text))
		}
		b.Until(`!document.body.innerText.includes("You have not seen all")`, "all was seen")
		fits(t, b)
		b.press("Approve once")
		b.Sees("Approved.")
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

// Whoever carries the parts can change, leave out and add: nothing of it is shown. The control is in the test before this.
func TestContentOfAnotherDigestIsNotShown(t *testing.T) {
	r := newRig(t)
	text := []byte(strings.Repeat("what was asked for\n", 200))
	c := card("c1")
	c.Bodies = []wire.Shown{r.holds("letter.txt", text, false)}
	r.cards = []wire.Card{c}
	b := r.enrolled(t, 1280, 900)
	for name, other := range map[string][]byte{
		"a word":    bytes.Replace(text, []byte("asked for"), []byte("not asked"), 1),
		"shorter":   text[:2000],
		"longer":    append(bytes.Clone(text), "not asked"...),
		"something": bytes.Repeat([]byte("not asked\n"), len(text)/10),
	} {
		t.Run(name, func(t *testing.T) {
			r.with(func() { r.content[wire.Sum(text)] = other })
			b.Eval(`location.hash = "#pending"`, nil)
			b.Sees("Waiting for you")
			b.press("Open an issue")
			b.press("letter.txt (3800 bytes)")
			b.press("Open all of it")
			b.Sees("Nothing of it is shown.")
			if s := b.Text(); strings.Contains(s, "not asked") || !strings.Contains(s, cutLine) {
				t.Errorf("it is shown:\n%s", s)
			}
		})
	}
}

// A file is saved, under a name that is none of a program's, and is nothing in this page.
func TestContentIsSavedAsAFile(t *testing.T) {
	r := newRig(t)
	evil := []byte("<script>window.ran = 1</script>\xff\x00")
	big := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
	c := card("c1")
	c.Bodies = []wire.Shown{r.holds("..\\../\u202ecod.html", evil, true), r.holds("big.txt", big, false)}
	r.cards = []wire.Card{c}
	b := r.enrolled(t, 390, 844)
	dir := t.TempDir()
	all := cdp.WithExecutor(b.Ctx, chromedp.FromContext(b.Ctx).Browser)
	window, err := target.GetTargetInfo().WithTargetID(chromedp.FromContext(b.Ctx).Target.TargetID).Do(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := cdpbrowser.SetDownloadBehavior(cdpbrowser.SetDownloadBehaviorBehaviorAllow).WithDownloadPath(dir).
		WithBrowserContextID(window.BrowserContextID).Do(all); err != nil {
		t.Fatal(err)
	}
	b.press("Open an issue")
	b.Sees("Approve once")
	b.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
	b.Sees("33 bytes that are no text")
	if strings.Contains(b.Text(), "Open all of it") {
		t.Error("what is no text, or large, can be opened here")
	}
	for i, want := range []struct {
		name string
		body []byte
	}{{"card-_cod.html.bin", evil}, {"card-big.txt", big}} {
		b.Eval(fmt.Sprintf(`[...document.querySelectorAll("button")].filter((e) => e.innerText === "Save it as a file")[%d].click()`, i), nil)
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got, _ := os.ReadFile(filepath.Join(dir, want.name))
			if bytes.Equal(got, want.body) {
				break
			}
			if time.Now().After(end) {
				all, _ := filepath.Glob(dir + "/*")
				t.Fatalf("%s has %d bytes; there are %q; %s", want.name, len(got), all, b.Text())
			}
		}
		b.Sees("Saved. It may be anything")
	}
	b.Until(`!document.body.innerText.includes("You have not seen all")`, "all was seen")
	var ran bool
	b.Eval(`Boolean(window.ran)`, &ran)
	if c := b.Complaints(); ran || len(c) > 0 {
		t.Errorf("it ran: %t; the console: %q", ran, c)
	}
}

func TestNamesOfSavedFiles(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	for name, want := range map[string]string{"": "card-content.bin", "a.pdf": "card-a.pdf", "a.PDF": "card-a.PDF", "a.pdf.exe": "card-a.pdf.exe.bin",
		"a.html": "card-a.html.bin", "a.svg": "card-a.svg.bin", "/etc/passwd": "card-passwd.bin", "..": "card-content.bin",
		"con": "card-con.bin", ".bashrc": "card-bashrc.bin", "a.pdf.": "card-a.pdf", "x\u202efdp.exe": "card-x_fdp.exe.bin", "a\x00.pdf": "card-a_.pdf",
		"what is sent": "card-what_is_sent.bin", "-rf.txt": "card-rf.txt", strings.Repeat("a", 300) + ".txt": "card-" + strings.Repeat("a", 76) + ".txt"} {
		var got string
		if b.Call("body.js", `return m.fileName(args[0])`, &got, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A text that is all line ends, or one line, or nothing but marks, comes in pieces, none of which is much.
func TestPiecesOfAText(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	for _, text := range []string{"", "x", "x\n", strings.Repeat("\n", 5000), strings.Repeat("x", 200_000), strings.Repeat("😀", 100_000),
		strings.Repeat("\u202e", 100_000), "x" + strings.Repeat("😀", 100_000), strings.Repeat("line\n", 1000) + strings.Repeat("y", 70_000) + "\nend"} {
		var got []int
		b.Call("body.js", `let rest = args[0]; const out = []; while (rest) { const n = m.ends(rest); if (n < 1 || n > 65536 || /[\ud800-\udbff]$/.test(rest.slice(0, n)) ||
			rest.slice(0, n).split("\n").length > 1001) return [-n]; out.push(n); rest = rest.slice(n); } return out;`, &got, text)
		for _, n := range got {
			if n < 0 {
				t.Errorf("%.20q: a piece of %d", text, -n)
			}
		}
	}
}
