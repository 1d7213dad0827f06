// SPDX-License-Identifier: Apache-2.0
// The views on which nothing waits. What they do needs a session alone: it narrows, or puts up a card.

import { ask, pages } from "/api.js";
import { route, signedIn } from "/app.js";
import { act, does, list, say, show, state } from "/frame.js";
import { button, chip, el, heading, left, mark, person, shown, when } from "/view.js";

const told = (report) => say((report.lines || []).length ? shown(report.lines.join("; ")) : "Done.");
const decideOn = (id) => {
  location.hash = `#card=${encodeURIComponent(id)}`;
};

const times = (n) => (n === 1 ? "once" : `${n} times`);

/** grant is one that a person may take back. */
export const grant = (g) => el("li", {},
  el("div", { class: "head" }, mark(g.connector), el("p", { class: "sentence" }, shown(g.sentence || `${g.connector} ${g.method}`))),
  el("p", { class: "soft" }, g.used ? `Used ${times(g.used)}${g.count ? ` of ${g.count}` : ""}, last ${when(g.last_use)}. ` :
    `Not used yet${g.count ? `, ${times(g.count)} at most` : ""}. `,
    g.until ? `Ends ${left(g.until)}, ${when(g.until)}. ` : g.session ? ["Ends with session ", shown(g.session), ". "] : "",
    g.by ? ["Allowed by ", shown(person(g.by)), g.made ? `, ${when(g.made)}.` : "."] : ""),
  (g.limits || []).length ? el("details", {}, el("summary", {}, "Its limits"), el("dl", {}, g.limits.map((l) => [el("dt", {}, shown(l.field)),
    el("dd", {}, l.any ? "whatever it is" : l.max ? `at most ${l.max}` : (l.values || []).length ? l.values.map((v) => el("div", {}, shown(v))) : "not given")]).flat())) : "",
  does(button("Take it back", () => act("", async () => {
    const r = await ask("revoke", { grant: g.id });
    await route();
    told(r);
  }), "danger")));

export async function grants(mine) {
  const { all } = await pages("grants", "grants");
  if (mine !== state.turn) return;
  signedIn();
  show("Allowed ahead", heading("Allowed ahead"), list(all.filter((g) => !g.revoked), grant, "Nothing is allowed ahead: you are asked each time."));
}

export async function sessions(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== state.turn) return;
  signedIn();
  show("Sessions", heading("Sessions"), list(all, (s) => el("li", {},
    el("div", { class: "head" }, el("strong", {}, shown(s.name)), chip(s.attended ? "attended" : "unattended")),
    el("p", { class: "soft" }, "Cell ", shown(s.cell), `, since ${when(s.began)}, `,
      s.attended ? "somebody sits at it" : "nobody sits at it", s.by ? [", by ", shown(s.by)] : ""),
    does(button("End it", () => act("", async () => {
      await ask("session", { end: s.name });
      await route();
      say("The session is ended.");
    }), "danger"))), "No session runs."));
}

const health = {
  "": ["well", "good"],
  reconnect_required: ["The vendor refused its credential. On the machine: sudo doorward account add, with --replace", "bad"],
  not_connected: ["Nobody has decided on it yet", "bad"],
  denied: ["You said no to it", "bad"],
};

export async function accounts(mine) {
  const { all, first } = await pages("accounts", "accounts");
  if (mine !== state.turn) return;
  signedIn();
  show("Accounts", heading("Accounts"), (first.health || []).map((h) => el("p", { class: "warn" }, shown(h))), list(all, (a) => {
    const [words, kind] = health[a.health || ""] || [`It needs attention: ${a.health}`, "bad"];
    return el("li", {},
      el("div", { class: "head" }, mark(a.vendor), el("h2", {}, shown(a.name)), chip(kind === "good" ? "well" : "needs attention", kind)),
      kind === "good" ? "" : el("p", { class: "note" }, shown(words), ". ", a.card ? el("a", { href: `#card=${encodeURIComponent(a.card)}` }, "Decide on it") : ""),
      el("p", { class: "soft" }, shown(a.title || a.vendor), " at ", shown(a.at), a.owner ? [", of ", shown(a.owner)] : "",
        a.used ? `. ${a.used} allowed ahead` : "", a.since ? `. Since ${when(a.since)}` : "", "."),
      (a.scopes || []).length ? el("details", {}, el("summary", {}, "Its permissions"), el("p", {}, shown(a.scopes.join(", ")))) : "",
      kind === "good" ? does(button("Use it no more", () => act("", async () => {
        const r = await ask("revoke", { account: a.name });
        await route();
        told(r);
      }), "danger")) : "");
  }, "There are no accounts. On the machine: sudo doorward account add"));
}

export async function cells(mine) {
  const { all } = await pages("labels", "cells");
  if (mine !== state.turn) return;
  signedIn();
  const label = { untrusted: "What others wrote", private: "What is private" };
  show("Cells", heading("Cells"),
    el("p", { class: "soft" }, "What each cell has read. Who wrote it may have told the agent what to do, so after that every change asks."),
    list(all, (c) => el("li", {},
      el("div", { class: "head" }, el("h2", {}, shown(c.cell)), chip(c.stopped ? "stopped" : c.runs ? "runs" : "does not run", c.stopped ? "bad" : "")),
      (c.labels || []).length ? el("dl", {}, c.labels.map((l) => [el("dt", {}, label[l.label] || shown(l.label)),
        el("dd", {}, shown(l.why), l.unix ? ` (${when(l.unix)})` : "")]).flat()) : el("p", {}, "It has read nothing of others, and nothing private."),
      does((c.labels || []).length ? button("Let it count as having read nothing", () => act("", async () => {
        const r = await ask("taint", { cell: c.cell, clear: true });
        decideOn(r.widening);
      })) : "", c.stopped ? "" : el("a", { class: "button", href: "#stop" }, "Stop it"))), "No cell is known."));
}

export async function stop(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== state.turn) return;
  signedIn();
  if (state.viewer) return show("Stop", heading("Stop"), el("p", {}, "You may look. Who may approve stops, here or on the machine."));
  const names = [...new Set(all.map((s) => s.cell))].sort();
  const result = el("div", { "aria-live": "polite" });
  const send = (body) => act("", async () => {
    const r = await ask("stop", body);
    say("");
    result.replaceChildren(...(r.lines || []).map((l) => el("p", {}, shown(l))),
      ...(r.may_have_run || []).map((l) => el("p", { class: "warn" }, "May have run: ", shown(l))),
      r.widening ? el("p", {}, el("a", { href: `#card=${encodeURIComponent(r.widening)}` }, "Decide on it")) : "");
  });
  const pair = (name, cell) => el("li", {}, el("p", {}, name), el("div", { class: "actions" },
    button(shown(cell ? `Stop ${cell}` : "Stop everything"), () => send({ cell }), "danger"),
    button(shown(cell ? `Let ${cell} go on` : "Let everything go on"), () => send({ cell, resume: true }))));
  show("Stop", heading("Stop"), el("p", {}, "At once: nothing more goes out, what runs is cut off, what waits is dropped. To go on again is a decision like any other."),
    result, el("ul", { class: "plain" }, pair("All cells", undefined), names.map((c) => pair(shown(`Cell ${c}`), c))));
}
