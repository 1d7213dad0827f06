// SPDX-License-Identifier: Apache-2.0
// Text that an agent, a vendor or a stranger chose, written so that a person sees what is there: the rules of internal/visible, which
// the terminal has, with marks of their own style in place of \u{202e}. Without it such text could reorder or hide what stands
// beside it, or name a domain that only looks like the one the person knows.

const maxRun = 8; // spaces, or equal marks, one after the other before they are counted
const maxMarks = 3; // combining marks on one letter
const shows = /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u;
const letterMark = /^\p{M}$/u;
const symbol = /^\p{So}$/u;
const blank = new Set([0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xffa0, 0x2800, 0x16fe4, 0x1d159]); // as there

function hidden(c, n) {
  if (c === " ") return false;
  if (!shows.test(c)) return true; // control, bidirectional, tags, zero width, private, unassigned, other spaces
  return (n >= 0xfe00 && n <= 0xfe0f) || (n >= 0xe0100 && n <= 0xe01ef) || (n >= 0x180b && n <= 0x180f) || blank.has(n);
}

const mark = (n) => `⟨U+${n.toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** line is text on one line as parts {text, odd}: odd ones stand for what would show nothing, or change how the rest shows. */
export function line(text) {
  if (/^[!-~]*( {1,8}[!-~]+)* {0,8}$/.test(text)) return text ? [{ text, odd: false }] : [];
  const out = [];
  const put = (s, odd) => {
    const last = out[out.length - 1];
    if (last && last.odd === odd) last.text += s;
    else out.push({ text: s, odd });
  };
  const all = Array.from(String(text));
  let marks = 0;
  let last = "";
  for (let i = 0; i < all.length;) {
    const c = all[i];
    const n = c.codePointAt(0);
    let odd = "";
    if (letterMark.test(c) && !hidden(c, n)) {
      if (++marks > maxMarks) odd = mark(n);
    } else if (!(n === 0xfe0f && symbol.test(last)) && hidden(c, n)) { // which asks for the coloured form of a symbol
      odd = mark(n);
    }
    if (!odd && c !== " ") {
      if (!letterMark.test(c)) marks = 0;
      put(c, false);
      last = c;
      i++;
      continue;
    }
    let run = 1;
    while (all[i + run] === c) run++;
    if (run > maxRun) put(`${odd || mark(n)}×${run}`, true);
    else put((odd || " ").repeat(run), Boolean(odd));
    i += run;
    last = "";
  }
  return out;
}

/** block is text line by line, each as line writes it. Lines end at LF or CR LF; tabs become spaces. */
export function block(text) {
  return String(text).replace(/\n$/, "").split("\n").map((l) => {
    l = l.replace(/\r$/, "");
    const indent = /^[ \t]*/.exec(l)[0];
    const spaces = (s) => s.replaceAll("\t", "    ");
    const head = spaces(indent);
    const parts = head.length > 40 ? line(head) : head ? [{ text: head, odd: false }] : [];
    return parts.concat(line(spaces(l.slice(indent.length))));
  });
}

// What may be taken for something else: the rules of internal/visible/warn.go.

const scripts = ["Latin", "Cyrillic", "Greek", "Armenian", "Cherokee", "Coptic", "Georgian", "Lisu", "Hebrew", "Arabic", "Devanagari", "Thai"]
  .map((name) => ({ name, is: new RegExp(`\\p{Script=${name}}`, "u") }));
const likeLatin = new Set("ɑɡıȷʟʀʏᴠᴡᴢᴏᴄᴍᴋᴛавсԁеһіјӏкмпорԛѕтухԝуАВСЕНІЈКМОРЅТХҮΑΒΕΖΗΙΚΜΝΟΡΤΥΧανοριυօոսցհ");
const otherDots = /[。．｡]/;
const ranges = [[0xff10, 0xff5a], [0x1d400, 0x1d7ff], [0x24b6, 0x24e9], [0x2160, 0x217f], [0x1f130, 0x1f189]];
const fancy = (w) => Array.from(w).some((c) => ranges.some(([a, b]) => c.codePointAt(0) >= a && c.codePointAt(0) <= b));

/** warnings says in words what of a text may be taken for something else, at most 8. Nothing found is no proof. */
export function warnings(text) {
  const out = [];
  const add = (w) => {
    if (!out.includes(w) && out.length < 8) out.push(w);
  };
  for (const w of String(text).split(/[\s\u0085]+/u).filter(Boolean)) {
    if (fancy(w)) add(`${quote(w)} has letters that are fancy forms of a to z`);
    for (const word of w.split(/[^\p{L}\p{Nd}]+/u).filter(Boolean)) {
      const names = mixed(word);
      if (names) add(`${quote(word)} mixes ${names} letters`);
    }
    for (const part of w.split(/[@/:<>()[\]{},;"'`?#=&|\\]+/u)) {
      const d = part.replace(/^[.。．｡]+|[.。．｡]+$/gu, "");
      if (/[.。．｡]/u.test(d)) domain(d, add);
    }
  }
  return out;
}

function quote(s) {
  const all = Array.from(s);
  const short = all.length > 60 ? all.slice(0, 60).join("") + "…" : s;
  return `“${line(short).map((p) => p.text).join("")}”`;
}

function mixed(word) {
  const names = [];
  for (const c of word) {
    if (c < "\u0080" && !/[A-Za-z]/.test(c)) continue;
    for (const s of scripts) if (s.is.test(c) && !names.includes(s.name)) names.push(s.name);
  }
  return names.length < 2 ? "" : names.join(" and ");
}

function domain(d, add) {
  if (otherDots.test(d)) add(`${quote(d)} has dots that are not the usual one`);
  for (const label of d.split(/[.。．｡]/u).filter(Boolean)) {
    let shown = label;
    if (label.toLowerCase().startsWith("xn--")) {
      shown = punycode(label.toLowerCase().slice(4));
      if (!shown) {
        add(`${quote(d)} has a label that says it is international and is not`);
        continue;
      }
      add(`${quote(d)} stands for ${quote(shown)}`);
    }
    const names = mixed(shown);
    if (names) add(`${quote(d)} mixes ${names} letters`);
    else if (latinLooking(shown)) add(`${quote(d)} is written in letters that only look like a to z`);
  }
}

function latinLooking(word) {
  let other = false;
  for (const c of word) {
    if (c < "\u0080" || !/\p{L}/u.test(c)) continue;
    if (!likeLatin.has(c)) return false;
    other = true;
  }
  return other;
}

/** punycode decodes what stands behind xn-- (RFC 3492, 6.2), or gives "" where it is none. */
function punycode(text) {
  const cut = text.lastIndexOf("-");
  const out = cut > 0 ? Array.from(text.slice(0, cut), (c) => c.codePointAt(0)) : [];
  let n = 128, i = 0, bias = 72, at = cut + 1;
  if (at >= text.length) return "";
  while (at < text.length) {
    const before = i;
    for (let w = 1, k = 36; ; k += 36) {
      const d = "abcdefghijklmnopqrstuvwxyz0123456789".indexOf(text[at++] || " ");
      if (d < 0) return "";
      i += d * w;
      const t = Math.min(Math.max(k - bias, 1), 26);
      if (d < t) break;
      w *= 36 - t;
      if (w > 0x7fffffff || i > 0x7fffffff) return "";
    }
    let delta = Math.floor((i - before) / (before === 0 ? 700 : 2));
    delta += Math.floor(delta / (out.length + 1));
    let k = 0;
    for (; delta > 455; k += 36) delta = Math.floor(delta / 35);
    bias = k + Math.floor((36 * delta) / (delta + 38));
    n += Math.floor(i / (out.length + 1));
    i %= out.length + 1;
    if (n > 0x10ffff || (n >= 0xd800 && n <= 0xdfff)) return "";
    out.splice(i++, 0, n);
  }
  return String.fromCodePoint(...out);
}
