// SPDX-License-Identifier: Apache-2.0
// Several cards at once. Each is opened, held to its signature, and shown before anything is signed; one passkey's answer is over all
// that are ticked, and each is bound by itself.

import { ask } from "/api.js";
import { signedIn } from "/app.js";
import { unseen } from "/body.js";
import { card, effect, firstTimes, foremost, labels, otherFacts, row } from "/cardview.js";
import { decide, fetchOffer, outcome } from "/deciding.js";
import { act, does, list, say, show, state, trouble } from "/frame.js";
import { button, el, heading, shown, spoken } from "/view.js";

const most = 50; // as sentinel takes
const ticked = new Set(); // ids, which outlast the list's news

/** grouped is the list of what waits: alike ones stand together, and each can be ticked. Nothing vouches for it yet. */
export function grouped(all) {
  const groups = new Map();
  for (const c of all) {
    const key = JSON.stringify(c.kind === "call" ? [c.connector, c.method, c.account, c.cell] : [c.id]);
    groups.set(key, [...(groups.get(key) || []), c]);
  }
  for (const id of ticked) if (!all.some((c) => c.id === id)) ticked.delete(id);
  const boxes = new Map();
  const together = button("", () => { location.hash = `#review=${[...ticked].slice(0, most).join()}`; }, "main");
  const tell = () => {
    together.hidden = ticked.size < 2;
    together.textContent = `Decide on ${Math.min(ticked.size, most)} together`;
  };
  const tick = (id, on) => {
    if (on) ticked.add(id);
    else ticked.delete(id);
    boxes.get(id).checked = on;
    tell();
  };
  const one = (c) => {
    if (state.viewer) return row(c); // whose look keeps no notice from who may approve
    const seen = button("Seen; do not tell me again", () => dismiss(c));
    seen.setAttribute("aria-label", `Seen; do not tell me again: ${spoken(c.title)}`);
    seen.dataset.id = `seen ${c.id}`;
    if (all.length < 2) return row(c, seen);
    const box = el("input", { type: "checkbox", checked: ticked.has(c.id),
      change: () => tick(c.id, box.checked), "data-id": c.id, "aria-label": `Together with others: ${spoken(c.title)}` });
    boxes.set(c.id, box);
    return row(c, el("label", { class: "tick" }, box, "Together with others"), seen);
  };
  const content = [...groups.values()].map((g) => (g.length < 2 ? el("ul", { class: "plain" }, one(g[0])) : el("section", { "aria-label": "Alike" },
    does(button(`Tick these ${g.length}, which are alike`, () => g.forEach((c) => tick(c.id, true)))),
    el("ul", { class: "plain" }, g.map(one)))));
  tell();
  return all.length ? [...content, does(together)] : [list(all, row, "Nothing waits.")];
}

/** dismiss says that a person has seen that a card waits: nobody is told so again. To open it says the same. */
const dismiss = (c) => act("", async () => {
  await ask("seen", { call: c.id });
  say(shown(`Nobody is told again that this waits: ${c.title}`));
});

/** several is the view of cards that are decided together. */
export async function several(mine, at) {
  const entries = [];
  const ids = [...new Set(at.get("review").split(","))].filter(Boolean).slice(0, most);
  for (const id of ids) {
    say(`Opening ${entries.length + 1} of ${ids.length}.`);
    try {
      entries.push({ offer: await fetchOffer(id) });
    } catch (error) {
      if (error.code === "no_session") throw error;
      entries.push({ error });
    }
    if (mine !== state.turn) return;
  }
  signedIn();
  say("");
  const waiting = entries.filter((e) => e.offer?.card.state === "parked" && !e.offer.viewer);
  const why = el("input", { id: "why", type: "text", maxlength: "500" });
  const does = (choice) => () => {
    const those = waiting.filter((e) => e.box.checked);
    const chosen = choice();
    const nothing = { error: { reason: "Nothing was said of it." } };
    return decide(those.map((e) => e.offer), () => chosen, (outcomes) => those.forEach((e, i) => tellOf(e, chosen, outcomes[i] || nothing)));
  };
  show("Together", heading(`Decide on ${waiting.length} together`),
    el("p", { class: "soft" }, "Read each. What is ticked is decided by one answer of your passkey, each by itself."),
    entries.map((e) => section(e)),
    waiting.length ? el("section", { class: "decide", "aria-label": "Decide" }, el("h2", {}, "Decide"), el("div", { class: "actions" },
      button("Approve those ticked, once each", does(() => ({ approve: true })), "main"),
      button("Deny those ticked", does(() => ({ why: why.value })), "danger")),
    el("label", { for: "why" }, "If you deny: why (the agent reads it)"), why) : "",
    el("p", {}, el("a", { href: "#pending" }, "Back to all that waits")));
}

/** section is one card among several: what it is about, all of it when it is opened, and its tick. Of a widening all is shown: what it
 * allows stands in its lines, and no field of it says as much. */
function section(e) {
  if (!e.offer) return el("section", { class: "one" }, el("h2", {}, "One that is not shown"), trouble(e.error));
  const c = e.offer.card;
  const open = c.state === "parked" && !e.offer.viewer;
  const { line, tell } = unseen(c);
  e.box = el("input", { type: "checkbox", checked: open, disabled: !open });
  e.says = el("p", { role: "status" });
  ticked.delete(c.id);
  const what = c.kind === "widening" ? card(c, tell, true) : [firstTimes(c), foremost(c), otherFacts(c), effect(c), labels(c),
    el("details", {}, el("summary", {}, "All of it"), card(c, tell, true))];
  return el("section", { class: "one" }, el("h2", {}, shown(c.title)), what, line,
    el("label", { class: "tick" }, e.box, open ? "Decide on this one" : shown(`This is ${c.state}, and not yours to decide.`)), e.says);
}

function tellOf(e, choice, o) {
  e.says.replaceChildren(outcome(choice, o));
  e.says.className = o.error ? "warn" : "note";
  e.box.checked = false;
  e.box.disabled = Boolean(o.state);
}
