// SPDX-License-Identifier: Apache-2.0
// What waits, one card of it, and the decision.

import { ask, pages } from "/api.js";
import { route, signedIn } from "/app.js";
import { unseen } from "/body.js";
import { card } from "/cardview.js";
import { act, main, say, show, state } from "/frame.js";
import { grantForm } from "/grantform.js";
import { seen } from "/news.js";
import * as passkey from "/passkey.js";
import { grouped } from "/several.js";
import { Refused, base64, bytes, challenge, decision, offered } from "/verify.js";
import { button, el, heading, shown } from "/view.js";

let most = 50; // cards that are listed, until more are asked for: nobody reads thousands, and each news asks for them again

export const waiting = () => pages("pending", "cards", most);

export async function pendingList(mine, move = true) {
  const { first, all, more } = await waiting();
  if (mine !== state.turn) return;
  signedIn();
  seen({ first, all, more });
  const content = [heading("Waiting for you"), ...grouped(all),
    more ? el("p", { class: "note" }, `${first.total} wait; these are the oldest. Decide some, or stop what asks so much. `,
      most < 400 ? button("Show more", () => act("", async () => {
        most += 50;
        await pendingList(mine, false);
      })) : "") : ""];
  if (move) return show("Waiting", content);
  const at = main.contains(document.activeElement) && document.activeElement; // who reads the list is not thrown out of it
  main.replaceChildren(...content.filter(Boolean));
  const same = (e) => (at.hash ? e.hash === at.hash : at.dataset.id && e.dataset.id === at.dataset.id);
  if (at) (Array.from(main.querySelectorAll("a, input, button")).find(same) || main.querySelector("h1")).focus();
}

export const fetchOffer = async (id) => offered(await ask("show", { call: id }), id, location.hostname);

export async function oneCard(mine, at) {
  const id = at.get("card");
  const offer = await fetchOffer(id);
  if (mine !== state.turn) return;
  signedIn();
  state.current = { id };
  const { line, tell } = unseen(offer.card);
  show("Decide", card(offer.card, tell), offer.card.state !== "parked" ? "" : offer.viewer ?
    el("p", { class: "note" }, "You may look at it. Who may approve decides.") : choices(offer, line),
    el("p", {}, el("a", { href: "#pending" }, "Back to all that waits")));
}

/** choices are what a person can do about an offer. */
function choices(offer, unread) {
  const c = offer.card;
  const why = el("input", { id: "why", type: "text", maxlength: "500" });
  const box = el("section", { class: "decide", "aria-label": "Decide" });
  const grantable = c.grantable && (c.grantable.limits || []).every((l) => !l.max || Number.isSafeInteger(l.max));
  const grant = grantable ? grantForm(c) : null;
  const yes = c.kind === "widening" ? "Allow this" : "Approve once";
  box.append(el("h2", {}, "Decide"), unread,
    el("div", { class: "actions" }, button(yes, () => decide([offer], () => ({ approve: true })), "main"),
      button("Deny", () => decide([offer], () => ({ why: why.value })), "danger"),
      c.kind === "call" ? button("Change it first", () => act("", async () => (await import("/edit.js")).editCall(offer))) : "",
      c.session ? button("Deny and stop the session", () => decide([offer], () => ({ stop: true, why: why.value })), "danger") : ""),
    el("label", { for: "why" }, "If you deny: why (the agent reads it)"), why);
  if (grant) {
    box.append(el("details", {}, el("summary", {}, "Approve, and the like of it too"), grant.form,
      el("div", { class: "actions" }, button("Approve, and allow this ahead", () => decide([offer], () => ({ approve: true, grant: grant.read() }))))));
  }
  return box;
}

const soon = 30; // seconds before an offer's end from which it is asked for again

/**
 * decide has a passkey sign what a person chose of each offer: choose gives the choice of one. told gets the outcomes; without it
 * there is one offer, and the list follows.
 */
export function decide(offers, choose, told) {
  const mine = state.turn;
  const signal = state.asking.signal;
  // Only what stands on the screen is signed: what approvals holds back until another card does is dropped.
  const still = () => { if (mine !== state.turn) throw new Refused("You have left what this was about. Nothing was decided."); };
  return act("Confirm with your passkey.", async () => {
    if (!offers.length) throw new Refused("None is ticked.");
    const choices = offers.map(choose);
    for (const offer of offers) {
      if (!offer.spent && offer.expires - Date.now() / 1000 >= soon) continue;
      if (offer.edits) throw new Refused("What you changed was not decided in time. Change it again.");
      const now = await fetchOffer(offer.card.id);
      still();
      if (now.card.hash !== offer.card.hash || now.card.state !== "parked") {
        await route();
        throw Object.assign(new Refused("It has changed since you opened it. Read it again."), { here: true });
      }
      Object.assign(offer, now, { card: offer.card, spent: false }); // what was read is what is decided on
    }
    const items = offers.map((o, i) => ({ nonce: bytes(o.nonce), decision: decision(o, choices[i]), expires: o.expires }));
    const what = await challenge(items);
    still();
    const assertion = await passkey.sign(what, offers[0].rp, offers[0].allow, signal);
    still();
    offers.forEach((o) => { o.spent = true; }); // it counts once, whatever comes of it
    const r = await ask("decide", {
      items: items.map((x, i) => ({ id: offers[i].card.id, nonce: offers[i].nonce, decision: base64(x.decision) })), assertion: base64(assertion),
    });
    if (told) return told(r.outcomes || []);
    const o = r.outcomes?.[0] || {};
    if (o.error && !o.state) throw Object.assign(new Error(o.error.reason), o.error);
    if (mine === state.turn) {
      state.current = null;
      location.hash = "#pending";
    }
    say(outcome(choices[0], o));
  });
}

/** outcome says what became of a choice. */
export function outcome(choice, o) {
  if (o.error) return shown(`${o.state ? `${choice.approve ? "Approved" : "Denied"}, and it is ${o.state}: ` : ""}${o.error.reason} ${o.error.next || ""}`);
  if (choice.approve) return o.grant ? "Approved, and allowed ahead." : "Approved.";
  return choice.stop ? "Denied, and the session is stopped." : "Denied.";
}
