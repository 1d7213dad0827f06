// SPDX-License-Identifier: Apache-2.0
// What is other in one card than in another, both as sentinel signed them.

import { el, hex, parted, shown, size } from "/view.js";

const most = 1e6; // pairs of lines that are compared; more is shown as all of it

/** lines are the steps from one list to another: [" ", x] stays, ["-", x] goes, ["+", x] comes. */
export function lines(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail);
  const y = b.slice(head, b.length - tail);
  const keep = (all) => all.map((l) => [" ", l]);
  return [...keep(a.slice(0, head)), ...between(x, y), ...keep(a.slice(a.length - tail))];
}

function between(x, y) {
  if (x.length * y.length > most) return [...x.map((l) => ["-", l]), ...y.map((l) => ["+", l])];
  const w = y.length + 1;
  const common = new Uint32Array((x.length + 1) * w); // [i, j]: how many lines x from i and y from j have in common, in order
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      common[i * w + j] = x[i] === y[j] ? common[(i + 1) * w + j + 1] + 1 : Math.max(common[(i + 1) * w + j], common[i * w + j + 1]);
    }
  }
  const out = [];
  let i = 0;
  let j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      out.push([" ", x[i++]]);
      j++;
    } else if (i < x.length && (j === y.length || common[(i + 1) * w + j] >= common[i * w + j + 1])) out.push(["-", x[i++]]);
    else out.push(["+", y[j++]]);
  }
  return out;
}

/** sheet is all of a card that a person decides by, as [label, lines], no label twice. */
function sheet(c) {
  const out = new Map();
  const put = (label, text) => {
    let name = label;
    for (let n = 2; out.has(name); n++) name = `${label} (${n})`;
    out.set(name, text);
  };
  put("What it does", [c.title]);
  for (const f of c.fields || []) put(f.label, (f.values || []).flatMap((v) => v.split("\n")));
  put("Whom it reaches", c.facts || []);
  put("Kind", [`${c.class || ""}, seen by ${c.reach || "none"}${c.sensitive ? ", sensitive" : ""}`]);
  for (const b of c.bodies || []) {
    put(b.name || "File", b.binary || b.cut ? [`${size(b.size)}, SHA-256 ${hex(b.sha256)}`, ...(b.binary ? [] : b.text.split("\n"))]
      : (b.text || "").split("\n"));
  }
  return out;
}

/** changes are [label, steps] of what is other in the card now than in the card before. */
export function changes(before, now) {
  const a = sheet(before);
  const b = sheet(now);
  const labels = [...b.keys(), ...[...a.keys()].filter((k) => !b.has(k))];
  return labels.map((k) => [k, lines(a.get(k) || [], b.get(k) || [])]).filter(([, steps]) => steps.some(([s]) => s !== " "));
}

const near = 2; // lines that stay are shown so far from one that does not

/** difference shows changes, each line with a word for who does not see colours. */
export function difference(before, now) {
  const step = ([s, text]) => (s === " " ? el("div", { class: "text", dir: "auto" }, parted(text))
    : el(s === "-" ? "del" : "ins", { class: "text", dir: "auto" }, el("span", { class: "said" }, s === "-" ? "was: " : "is now: "), parted(text)));
  return el("dl", { class: "changes" }, changes(before, now).map(([label, steps]) => {
    const shows = steps.map((_, i) => steps.slice(Math.max(0, i - near), i + near + 1).some(([s]) => s !== " "));
    return [el("dt", {}, shown(label)), el("dd", {}, el("pre", {}, steps.map((s, i) => (shows[i] ? step(s) : shows[i - 1] ? el("div", { class: "soft" }, "…") : ""))
      .filter(Boolean)))];
  }).flat());
}
