// SPDX-License-Identifier: Apache-2.0
// The public half of sentinel's key, by which this browser knows what sentinel answers. It came in a link of the machine's own, and
// nothing that approvals sends can put another in its place.

import { Refused, answerKey, bytes, sha256 } from "/verify.js";

const name = "doorward-card-key";

/** kept is the key's text, or null. */
export const kept = () => localStorage.getItem(name);

export function keep(text) {
  localStorage.setItem(name, text);
  navigator.storage?.persist?.().catch(() => {}); // a browser that is short of space then keeps it
}

export const noKey = () => Object.assign(
  new Refused("This browser has no card key: it cannot tell what Doorward answers from what somebody else does, so it asks nothing."),
  { next: "On your machine, make a link and open it here: sudo doorward approver add NAME, for a new passkey; doorward approver link, where you have one. " +
    "Beside a recovery code one is printed too: open that first." });

/** key is the one that this browser keeps. */
export function key() {
  if (!kept()) throw noKey();
  return answerKey(kept());
}

/** fingerprint is of a key's text, short enough to compare; doorward approver list prints it so too. */
export async function fingerprint(text) {
  const sum = await sha256(bytes(text));
  return Array.from(sum.subarray(0, 8), (b) => b.toString(16).padStart(2, "0")).join(" ");
}
