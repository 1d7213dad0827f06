// SPDX-License-Identifier: Apache-2.0
// A card in full, in a list, and in the record.

import { body } from "/body.js";
import { away, chip, el, heading, hex, left, mark, person, shown, warned, when, whole } from "/view.js";

const reach = (r) => ({ "": "Only you see it.", none: "Only you see it.", people: "The people named in it see it.",
  space: "Members of the place see it.", public: "Anyone may see it." })[r || ""] || ["Who sees it: ", shown(r), "."];
const kinds = { read: "It reads.", write: "It changes something.", destructive: "It deletes something." };
const labelled = { untrusted: "others wrote, who may have told it what to do", private: "is private" };
// ends says of each state what it means for who wonders whether something happened.
const ends = { approved: "It was allowed, and has not run yet.", executing: "It runs now.", done: "It was carried out.",
  failed: "It does not go again by itself; the agent may ask anew.", unknown: "It may have taken effect, or not: look there, before anybody does it again.",
  denied: "It does not run, and the agent is told so.", expired: "Its time was over before it ran, so it does not run; the agent may ask anew.",
  revoked: "It was taken back before it ran, so it does not run." };
const rows = (pairs, kind) => el("dl", { class: kind }, pairs.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]).flat());

/** foremost are the fields that say what a card is about, of one without recipient, amount or destination all. */
export function foremost(c) {
  const main = (c.fields || []).filter((f) => f.main);
  return rows((main.length ? main : c.fields || []).map(field), main.length ? "first" : undefined);
}

export const firstTimes = (c) => (c.facts || []).filter(isFirst).map((f) => el("p", { class: "warn" }, el("strong", {}, shown(f))));
export const otherFacts = (c) => (c.facts || []).filter((f) => !isFirst(f)).map((f) => el("p", { class: "note" }, shown(f), warned(f)));
export const labels = (c) => (c.labels || []).map((l) => el("p", { class: "note" }, "It has read what ", labelled[l.label] || ["is ", shown(l.label)], ": ", shown(l.why),
  l.unix ? ` (${when(l.unix)})` : ""));
export const effect = (c) => (c.kind === "call" ? el("p", {}, kinds[c.class] || "", " ", reach(c.reach)) : "");
const isFirst = (f) => f.startsWith("first time");

const field = (f) => [shown(f.label), (f.values || []).map((v) => [/\n/.test(v) ? whole(v) : el("div", {}, shown(v)), warned(v)]).flat()];

/**
 * card is what a person decides on, of an offer that verify.js has opened. seen is called when all of a body was; part is set
 * where it stands below a heading of its own.
 */
export function card(c, seen, part) {
  const main = (c.fields || []).filter((f) => f.main);
  const others = (c.fields || []).filter((f) => !f.main);
  return [
    part ? "" : heading(c.title),
    c.state === "parked" ? "" : el("div", { class: "note" }, "This is ", shown(c.state), c.became?.unix ? `, since ${when(c.became.unix)}` : "",
      ". ", ends[c.state] || "", " There is nothing to decide any more.", c.became ? outcome(c) : c.error ? [" ", shown(c.error.reason)] : ""),
    firstTimes(c),
    main.length ? rows(main.map(field), "first") : "",
    others.length ? rows(others.map(field)) : "",
    otherFacts(c),
    effect(c),
    (c.bodies || []).length ? el("h2", {}, "Content") : "",
    (c.bodies || []).map((b) => body(c.id, b, seen)),
    el("h2", {}, "Who asks"),
    rows([
      c.cell && ["Cell", shown(c.cell)],
      c.session && ["Session", [shown(c.session), c.attended ? ", somebody sits at it" : ", nobody sits at it"]],
      c.connector && ["With", [shown(`${c.connector} ${c.method || ""}`), c.account ? [", account ", shown(c.account)] : ""].flat()],
      c.made && ["Asked", when(c.made)],
      c.state === "parked" && c.expires && ["Without an answer", `it is refused ${left(c.expires)}`],
    ].filter(Boolean)),
    labels(c),
    c.reason ? el("p", {}, "You are asked because ", shown(c.reason)) : "",
    el("details", {}, el("summary", {}, "For comparing"), rows([
      ["Number", shown(c.id)], c.mark && ["Mark", shown(c.mark)], ["SHA-256", el("span", { class: "text" }, hex(c.hash))],
      (c.policies || []).length && ["Policy", c.policies.map((p) => el("div", {}, shown(p)))],
    ].filter(Boolean))),
  ].flat().filter(Boolean);
}

/** entry is one of the record's, of which an agent may have chosen any word. */
export function entry(e) {
  const about = [["Cell", e.cell], ["Session", e.session], ["By", e.actor], ["About", e.subject]].filter(([, v]) => v);
  return el("li", {}, el("div", {}, el("strong", {}, shown(e.type)), ` ${when(Date.parse(e.time) / 1000)}`),
    rows(about.map(([k, v]) => [k, shown(v)])),
    e.call ? el("p", {}, el("a", { href: `#card=${encodeURIComponent(e.call)}` }, "Call ", shown(e.call))) : "",
    e.details ? el("details", {}, el("summary", {}, "Details"), whole(JSON.stringify(e.details, null, 2))) : "");
}

/** row is a card in a list, which only leads to the card. */
export function row(c, ...more) {
  return el("li", {}, el("div", { class: "head" }, mark(c.connector || "doorward"), el("a", { href: `#card=${encodeURIComponent(c.id)}` }, shown(c.title)),
    c.state === "parked" ? "" : chip(c.state, c.state)),
    (c.fields || []).filter((f) => f.main).slice(0, 2).map((f) => el("div", {}, shown((f.values || []).join(", ")))),
    el("div", { class: "soft" }, shown([c.connector, c.account, c.cell && `cell ${c.cell}`].filter(Boolean).join(", ")),
      c.state === "parked" ? `, ends ${left(c.expires)}` : `, ${when(c.became?.unix || c.made)}`, c.alike ? `; ${c.alike} more like it` : ""),
    c.became ? outcome(c) : "", more);
}

/** outcome is what became of a card. */
function outcome(c) {
  const b = c.became;
  return [b.by ? el("div", { class: "soft" }, "Approved by ", shown(person(b.by))) : "", c.state !== "done" && c.error ? el("div", { class: "soft" }, shown(c.error.reason)) : "",
    b.object ? el("div", {}, "At the vendor: ", b.link ? away(b.link, shown(b.object)) : shown(b.object)) : ""];
}
