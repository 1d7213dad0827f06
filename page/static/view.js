// SPDX-License-Identifier: Apache-2.0
// What is seen. Text goes in as text nodes only; what others chose goes through visible.js first.

import { block, line, warnings } from "/visible.js";
import { bytes } from "/verify.js";

/** el makes an element. Attributes are set as such, functions are listeners; strings among the content become text, never markup. */
export function el(name, attributes = {}, ...content) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (typeof v === "function") e.addEventListener(k, v);
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...content.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}

const parts = (ps) => ps.map((p) => (p.odd ? el("span", { class: "odd" }, p.text) : p.text));

/** shown is a line of text that others chose. */
export const shown = (text) => el("span", { class: "text", dir: "auto" }, parts(line(text ?? "")));

/** whole is text of several lines that others chose. */
export const whole = (text) => el("pre", {}, block(text).map((l) => el("div", { class: "text", dir: "auto" }, parts(l), l.length ? "" : " ")));

const warned = (text) => warnings(text).map((w) => el("p", { class: "warn" }, shown(w)));

export const heading = (text) => el("h1", { tabindex: "-1" }, shown(text));
export const button = (text, act, kind) => el("button", { type: "button", class: kind, click: act }, text);

export function when(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "never";
}

export function left(seconds, now = Date.now() / 1000) {
  const s = seconds - now;
  if (s <= 0) return "now";
  const [n, unit] = s < 3600 ? [Math.ceil(s / 60), "minute"] : s < 48 * 3600 ? [Math.round(s / 3600), "hour"] : [Math.round(s / 86400), "day"];
  return `in ${n} ${unit}${n === 1 ? "" : "s"}`;
}

const reach = (r) => ({ "": "Only you see it.", none: "Only you see it.", people: "The people named in it see it.",
  space: "Members of the place see it.", public: "Anyone may see it." })[r || ""] || `Who sees it: ${r}.`;
const kinds = { read: "It reads.", write: "It changes something.", destructive: "It deletes something." };
const size = (n) => (n < 10000 ? `${n} bytes` : `${Math.round(n / 1000)} kB`);
const hex = (data) => Array.from(typeof data === "string" ? bytes(data) : data || [], (b) => b.toString(16).padStart(2, "0")).join("");
const rows = (pairs, kind) => el("dl", { class: kind }, pairs.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]).flat());

const field = (f) => [shown(f.label), (f.values || []).map((v) => [/\n/.test(v) ? whole(v) : el("div", {}, shown(v)), warned(v)]).flat()];

/** card is what a person decides on, of an offer that verify.js has opened. */
export function card(c) {
  const main = (c.fields || []).filter((f) => f.main);
  const others = (c.fields || []).filter((f) => !f.main);
  const first = (f) => f.startsWith("first time");
  return [
    heading(c.title),
    c.state === "parked" ? "" : el("p", { class: "note" }, "This is ", shown(c.state), ": there is nothing to decide any more. ",
      c.error ? shown(c.error.reason) : ""),
    (c.facts || []).filter(first).map((f) => el("p", { class: "warn" }, el("strong", {}, shown(f)))),
    main.length ? rows(main.map(field), "first") : "",
    others.length ? rows(others.map(field)) : "",
    (c.facts || []).filter((f) => !first(f)).map((f) => el("p", { class: "note" }, shown(f), warned(f))),
    c.kind === "call" ? el("p", {}, kinds[c.class] || "", " ", reach(c.reach)) : "",
    (c.bodies || []).length ? el("h2", {}, "Content") : "",
    (c.bodies || []).map(body),
    el("h2", {}, "Who asks"),
    rows([
      c.cell && ["Cell", shown(c.cell)],
      c.session && ["Session", [shown(c.session), c.attended ? ", somebody sits at it" : ", nobody sits at it"]],
      c.connector && ["With", [shown(`${c.connector} ${c.method || ""}`), c.account ? [", account ", shown(c.account)] : ""].flat()],
      c.made && ["Asked", when(c.made)],
      c.state === "parked" && c.expires && ["Without an answer", `it is refused ${left(c.expires)}`],
    ].filter(Boolean)),
    (c.labels || []).map((l) => el("p", { class: "note" }, "It has read what is ", shown(l.label), ": ", shown(l.why),
      l.unix ? ` (${when(l.unix)})` : "")),
    c.reason ? el("p", {}, "You are asked because ", shown(c.reason)) : "",
    el("details", {}, el("summary", {}, "For comparing"), rows([
      ["Number", shown(c.id)], c.mark && ["Mark", shown(c.mark)], ["SHA-256", el("span", { class: "text" }, hex(c.hash))],
      (c.policies || []).length && ["Policy", c.policies.map((p) => el("div", {}, shown(p)))],
    ].filter(Boolean))),
  ].flat().filter(Boolean);
}

/** body is one body or file, built when it is opened. */
function body(b) {
  const d = el("details", {}, el("summary", {}, shown(b.name || "File"), ` (${size(b.size)}`, b.media ? [", ", shown(b.media)] : "", ")"));
  d.addEventListener("toggle", () => d.append(
    b.cut ? el("p", { class: "warn" }, el("strong", {}, "Not all of it is shown.")) : "",
    b.text ? whole(b.text) : "", ...warned(b.text || ""),
    el("p", { class: "soft text" }, `SHA-256 ${hex(b.sha256)}`),
  ), { once: true });
  return d;
}

/** entry is one of the record's, of which an agent may have chosen any word. */
export function entry(e) {
  const about = [["Cell", e.cell], ["Session", e.session], ["By", e.actor], ["About", e.subject]].filter(([, v]) => v);
  return el("li", {}, el("div", {}, el("strong", {}, shown(e.type)), ` ${when(Date.parse(e.time) / 1000)}`),
    rows(about.map(([k, v]) => [k, shown(v)])),
    e.call ? el("p", {}, el("a", { href: `#card=${encodeURIComponent(e.call)}` }, "Call ", shown(e.call))) : "",
    e.details ? el("details", {}, el("summary", {}, "Details"), whole(JSON.stringify(e.details, null, 2))) : "");
}

/** row is a card in a list, which nothing vouches for: it only leads to the card. */
export function row(c) {
  return el("li", {}, el("a", { href: `#card=${encodeURIComponent(c.id)}` }, shown(c.title)),
    el("div", { class: "soft" }, shown([c.connector, c.account, c.cell && `cell ${c.cell}`].filter(Boolean).join(", ")),
      c.state === "parked" ? `, ends ${left(c.expires)}` : [", ", shown(c.state)], c.alike ? `; ${c.alike} more like it` : ""));
}

const plain = /^[\w.~@/+:#=-]+$/;
const value = (v) => (plain.test(v) ? v : JSON.stringify(v));

/** sentence says what a grant allows, exactly as it would be signed. */
export function sentence(g) {
  let s = g.connector === "site" ? `Programs of cell ${g.cell} may connect to ${value(g.account)}`
    : `Cell ${g.cell} may use ${g.connector} ${g.method} with account ${g.account}`;
  s += { once: ", once more", session: `, until session ${g.session} ends`, until: `, until ${when(g.until)}`,
    standing: `, until ${when(g.until)}` }[g.kind] || "";
  if (g.kind !== "once") s += g.count ? `, ${g.count} times at most` : ", as often as it asks";
  const limits = g.limits || [];
  s += limits.map((l, i) => (i ? " and " : "; only where ") + l.field + (l.max ? ` is at most ${l.max}`
    : !l.values?.length ? " is not given" : l.values.length === 1 ? ` is ${value(l.values[0])}`
      : ` is among ${l.values.map(value).join(", ")}`)).join("");
  if (!limits.length) s += "; whatever its arguments are";
  return `${s}${g.tainted ? "; also" : "; not"} after the cell has read what others wrote.`;
}

const day = 86400;
const local = (seconds) => new Date((seconds - new Date(seconds * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, 16);

/** grantForm edits a card's grant. It returns {form, read}; read gives the grant as the form stands, or throws with what is wrong. */
export function grantForm(c) {
  const from = c.grantable;
  const fixed = from.connector === "site" || (from.limits || []).some((l) => l.field === "begins");
  const now = Math.floor(Date.now() / 1000);
  const option = (kind, text) => el("option", { value: kind, selected: from.kind === kind }, text);
  const kind = el("select", { id: "kind" }, fixed ? "" : option("once", "one more time"),
    from.session ? option("session", "until this session ends") : "", option("until", "until a time (7 days at most)"),
    c.sensitive ? "" : option("standing", "for long (90 days at most)"));
  const until = el("input", { id: "until", type: "datetime-local", value: local(from.until || now + day) });
  const count = el("input", { id: "count", type: "number", min: "0", step: "1", inputmode: "numeric", value: from.count || "" });
  const tainted = el("input", { type: "checkbox", checked: Boolean(from.tainted) });
  const limits = (from.limits || []).map((l) => limit(l, fixed, c.sensitive));
  const says = el("p", { class: "sentence", "aria-live": "polite" });

  function read() {
    const g = structuredClone(from);
    for (const k of ["id", "used", "last_use", "made", "by", "revoked", "sentence", "until", "count", "tainted"]) delete g[k];
    g.kind = kind.value;
    if (g.kind !== "session") delete g.session;
    if (g.kind === "until" || g.kind === "standing") {
      g.until = Math.floor(new Date(until.value).getTime() / 1000);
      if (!Number.isSafeInteger(g.until) || g.until * 1000 <= Date.now()) throw new Error("Choose an end that is still to come.");
    }
    if (count.value && count.value !== "0") {
      g.count = Number(count.value);
      if (!Number.isSafeInteger(g.count) || g.count < 0) throw new Error("How many times has to be a whole number.");
    }
    if (tainted.checked) g.tainted = true;
    g.limits = limits.map((l) => l.read()).filter(Boolean);
    return g;
  }
  const form = el("fieldset", {}, el("legend", {}, "Allow the like of it ahead"),
    el("label", { for: "kind" }, "How long"), kind,
    el("div", {}, el("label", { for: "until" }, "Until"), until),
    fixed ? "" : el("div", {}, el("label", { for: "count" }, "How many times at most (empty: any number)"), count),
    limits.map((l) => l.form),
    c.sensitive ? "" : el("label", { class: "tick" }, tainted, "Also after the cell has read what others wrote"),
    says);
  const tell = () => {
    until.parentElement.hidden = kind.value !== "until" && kind.value !== "standing";
    try {
      says.replaceChildren(shown(sentence(read())));
    } catch (e) {
      says.replaceChildren(e.message);
    }
  };
  form.addEventListener("input", tell);
  form.addEventListener("click", (e) => e.target.matches("button") && tell());
  tell();
  return { form, read };
}

/** limit edits one wire.Limit. Values are ticked or not and never edited: an input could not show all that is in them. */
function limit(l, fixed, sensitive) {
  const any = el("input", { type: "checkbox" });
  const name = shown(l.field);
  const drop = fixed || sensitive ? "" : el("label", { class: "tick" }, any, "whatever it is");
  if (l.max) {
    const most = el("input", { type: "number", min: "1", step: "1", value: l.max });
    return { form: el("fieldset", { disabled: fixed }, el("legend", {}, name), el("label", {}, "At most ", most), drop), read() {
      if (any.checked) return null;
      const max = Number(most.value);
      if (!Number.isSafeInteger(max) || max < 1) throw new Error(`${l.field}: at most how much has to be a whole number from 1.`);
      return { field: l.field, max };
    } };
  }
  const ticks = el("div");
  const tick = (v) => {
    const box = el("input", { type: "checkbox", checked: true });
    box.value = v;
    ticks.append(el("label", { class: "tick" }, box, shown(v)), ...warned(v));
  };
  (l.values || []).forEach(tick);
  const more = el("input", { type: "text", "aria-label": `Another value of ${l.field}` });
  const add = button("Add", () => {
    if (more.value) tick(more.value);
    more.value = "";
  });
  return {
    form: el("fieldset", { disabled: fixed }, el("legend", {}, name), ticks, fixed ? "" : el("div", { class: "actions" }, more, add), drop),
    read() {
      if (any.checked) return null;
      const values = Array.from(ticks.querySelectorAll("input"), (b) => b.checked && b.value).filter((v) => v !== false);
      return values.length ? { field: l.field, values } : { field: l.field };
    },
  };
}
