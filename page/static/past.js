// SPDX-License-Identifier: Apache-2.0
// What was asked before, and what became of it.

import { ask } from "/api.js";
import { signedIn } from "/app.js";
import { entry, row } from "/cardview.js";
import { act, show, state } from "/frame.js";
import { bytes } from "/verify.js";
import { button, el, heading, select, when } from "/view.js";

const states = ["", "parked", "approved", "executing", "done", "failed", "unknown", "denied", "expired", "revoked"];

const rounds = 10;

export async function past(mine, at) {
  const asked = Object.fromEntries(["words", "cell", "connector", "state", "from", "to"].map((k) => [k, at.get(k) || undefined]));
  const day = (text, more) => (text ? Math.floor(new Date(`${text}T00:00`).getTime() / 1000) + more : undefined);
  let looked = 0;
  const find = async (before) => {
    let r;
    for (let n = 0; n < rounds && mine === state.turn; n++) { // one answer looks at some of a long past only
      r = await ask("find", { ...asked, from: day(asked.from, 0), to: day(asked.to, 86400), before });
      looked += r.looked || 0;
      before = r.next;
      if (r.cards?.length || !r.next) break;
    }
    return r;
  };
  const first = await find();
  if (mine !== state.turn) return;
  signedIn();
  const field = (name, label, type, more) => [el("label", { for: name }, label), el("input", { id: name, name, type, value: asked[name] || "", ...more })];
  const form = el("form", { role: "search", submit: (e) => {
    e.preventDefault();
    const q = new URLSearchParams([["history", ""], ...new FormData(form)].filter(([k, v]) => v || k === "history"));
    location.hash = q.size > 1 ? `#${q}` : "#history";
  } }, field("words", "Words: names, titles, arguments", "search", { maxlength: "200" }),
  el("details", { open: Boolean(asked.cell || asked.connector || asked.state || asked.from || asked.to) }, el("summary", {}, "Only some"), el("div", { class: "grid" },
    el("div", {}, field("cell", "Cell", "text")), el("div", {}, field("connector", "Connector", "text")),
    el("div", {}, el("label", { for: "state" }, "State"), select(states.map((s) => [s, s || "any"]), asked.state || "", { id: "state", name: "state" })),
    el("div", {}, field("from", "From", "date")), el("div", {}, field("to", "To", "date")))),
  el("div", { class: "actions" }, el("button", { type: "submit" }, "Search")));
  const found = el("ul", { class: "plain" });
  const far = el("p", { class: "soft", role: "status" });
  const more = button("Look further back", () => act("", async () => add(await find(next))));
  let next;
  function add(r) {
    found.append(...(r.cards || []).map((c) => row(c)));
    next = r.next;
    more.hidden = !next;
    far.textContent = `${found.children.length ? "" : "Nothing is found. "}${looked} calls were looked at${next ? `, back to ${when(r.back)}` : ": that is all of them"}.`;
  }
  add(first);
  show("Past", heading("Past"), form, found, far, el("div", { class: "actions" }, more), record());
}

/** record is the newest of the record itself, asked for when it is opened. */
function record() {
  const d = el("details", {}, el("summary", {}, "The record, entry by entry"));
  d.addEventListener("toggle", () => act("", async () => {
    const r = await ask("history", { op: "list", limit: 100 });
    const entries = (r.lines || []).map((l) => JSON.parse(new TextDecoder().decode(bytes(l)))).reverse();
    d.append(el("p", { class: "soft" }, "The newest entries, as they came; doorward audit verify, on your machine, checks them."),
      el("ul", { class: "plain" }, entries.map(entry)));
  }), { once: true });
  return d;
}
