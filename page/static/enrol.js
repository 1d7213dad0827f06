// SPDX-License-Identifier: Apache-2.0
// A new approver: the invitation's link, and the passkey that it lets this browser make.

import { ask } from "/api.js";
import { route, signIn } from "/app.js";
import { fingerprint, keep, kept } from "/cardkey.js";
import { act, say, show, state } from "/frame.js";
import * as passkey from "/passkey.js";
import { Refused, answerKey, base64, bytes, enrolMAC, equal } from "/verify.js";
import { button, el, heading } from "/view.js";

/**
 * takeLink takes an invitation, or a card key alone, out of the address, at once: the bar, the history and a screenshot shall not have
 * the code.
 */
export function takeLink() {
  const at = new URLSearchParams(location.hash.slice(1));
  if (!at.has("enrol") && !at.has("key")) return;
  state.invitation = { id: at.get("enrol") || "", code: at.get("code") || "", key: at.get("key") || "" };
  history.replaceState(null, "", location.pathname);
}

export async function enrol(mine) {
  const link = state.invitation;
  const by = await answerKey(link.key); // a link that is cut is told now
  if ((link.id || link.code) && (bytes(link.code).length < 16 || !link.id)) throw new Refused("This link is not whole. Open it as it was printed.");
  const other = kept() && !equal(bytes(kept()), bytes(link.key));
  if (!link.agreed && (other || !link.id)) return offerKey(mine, link, other);
  if (!link.id) {
    keep(link.key);
    state.invitation = null;
    return route();
  }
  show("New approver", heading("Decide from this device"),
    el("p", {}, "You make a passkey here. With it, and your finger, face or PIN, you decide what your agent may do.",
      link.again ? " The one you had ends by that, and its sessions with it." : ""),
    el("div", { class: "actions" }, button("Make a passkey", () => act("Follow your device.", async () => {
      const options = await ask("enrol", { id: link.id }, by);
      if (options.rp !== location.hostname) throw new Refused("This invitation is for another page.");
      const credential = await passkey.make(options);
      const mac = await enrolMAC(bytes(link.code), credential);
      const r = await ask("enrol", { id: link.id, credential: base64(credential), mac: base64(mac) }, by);
      if (!r.done) throw new Error("The invitation was not taken. Make a new one on your machine: doorward approver add");
      keep(link.key);
      state.invitation = null;
      say("Your passkey is made.");
      signIn();
    }), "main"), button("Not now", () => { state.invitation = null; route(); })));
}

/** offerKey has the person compare a card key before the browser takes it for sentinel's. */
async function offerKey(mine, link, other) {
  const comes = await fingerprint(link.key);
  const have = other && await fingerprint(kept());
  if (mine !== state.turn) return;
  const not = () => { state.invitation = null; return route(); };
  if (!other && kept()) return not(); // it is the one that is here
  show("Card key", heading(other ? "This link comes with another card key" : "A card key for this browser"),
    el("p", {}, "By its card key this browser knows what Doorward answers. Whoever had put another here could show you one thing and have you sign another."),
    el("dl", {}, have ? [el("dt", {}, "Here"), el("dd", {}, have)] : "", el("dt", {}, "In the link"), el("dd", {}, comes)),
    el("p", { class: other ? "warn" : undefined }, other ? "Take the new one only if Doorward was set up anew on your machine, and you made this link there yourself." :
      "On your machine, doorward approver list prints it; beside a recovery code it is printed too. Take it only if it is the same."),
    el("div", { class: "actions" }, button(other ? "Keep the one here" : "Not now", not, "main"),
      button(other ? "Take the new one" : "It is the same", () => { link.agreed = true; return route(); }, other && "danger")));
}
