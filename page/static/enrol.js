// SPDX-License-Identifier: Apache-2.0
// A new approver: the invitation's link, and the passkey that it lets this browser make.

import { ask } from "/api.js";
import { route, signIn } from "/app.js";
import { act, say, show, state } from "/frame.js";
import * as passkey from "/passkey.js";
import { Refused, base64, bytes, cardKey, enrolMAC, equal, sha256 } from "/verify.js";
import { button, el, heading } from "/view.js";

/** keyName is where the browser keeps sentinel's public key for cards. */
export const keyName = "doorward-card-key";

/** takeLink takes an enrolment out of the address, at once: the bar, the history and a screenshot shall not have the code. */
export function takeLink() {
  const at = new URLSearchParams(location.hash.slice(1));
  if (!at.has("enrol")) return;
  state.invitation = { id: at.get("enrol"), code: at.get("code") || "", key: at.get("key") || "" };
  history.replaceState(null, "", location.pathname);
}

/** fingerprint is of a card key, short enough to compare. */
async function fingerprint(key) {
  const sum = await sha256(bytes(key));
  return Array.from(sum.subarray(0, 8), (b) => b.toString(16).padStart(2, "0")).join(" ");
}

export async function enrol(mine) {
  const link = state.invitation;
  await cardKey(link.key); // a link that is cut is told now
  if (bytes(link.code).length < 16 || !link.id) throw new Refused("This link is not whole. Open it as it was printed.");
  const kept = localStorage.getItem(keyName);
  if (kept && !equal(bytes(kept), bytes(link.key)) && !link.agreed) {
    const [have, comes] = [await fingerprint(kept), await fingerprint(link.key)];
    if (mine !== state.turn) return;
    show("Another card key", heading("This link comes with another card key"),
      el("p", { class: "warn" }, "This browser already checks your cards with a key of its own. Whoever has the other key could show you one thing and have you sign another."),
      el("dl", {}, el("dt", {}, "Here"), el("dd", {}, have), el("dt", {}, "In the link"), el("dd", {}, comes)),
      el("p", {}, "Take the new one only if Doorward was set up anew on your machine, and you made this link there yourself."),
      el("div", { class: "actions" },
        button("Keep the one here", () => { state.invitation = null; route(); }, "main"),
        button("Take the new one", () => { link.agreed = true; route(); }, "danger")));
    return;
  }
  show("New approver", heading("Decide from this device"),
    el("p", {}, "You make a passkey here. With it, and your finger, face or PIN, you decide what your agent may do."),
    el("div", { class: "actions" }, button("Make a passkey", () => act("Follow your device.", async () => {
      const options = await ask("enrol", { id: link.id });
      if (options.rp !== location.hostname) throw new Refused("This invitation is for another page.");
      const credential = await passkey.make(options);
      const mac = await enrolMAC(bytes(link.code), credential);
      const r = await ask("enrol", { id: link.id, credential: base64(credential), mac: base64(mac) });
      if (!r.done) throw new Error("The invitation was not taken. Make a new one on your machine: doorward approver add");
      localStorage.setItem(keyName, link.key);
      state.invitation = null;
      say("Your passkey is made.");
      signIn();
    }), "main"), button("Not now", () => { state.invitation = null; route(); })));
}
