// SPDX-License-Identifier: Apache-2.0
// What every view stands in: one at a time, its words of what goes on, and the end of all that belonged to the view before.

import { route, signIn } from "/app.js";
import { Refused } from "/verify.js";
import { button, el, heading, shown } from "/view.js";

export const main = document.getElementById("main");
export const nav = document.getElementById("nav");
const status = document.getElementById("status");

export const state = {
  turn: 0, // counts views, so that what arrives late for an earlier one is dropped
  current: null, // {id} of the card that is shown
  invitation: null, // of the enrolment link: {id, code, key}; the code is nowhere else
  viewer: null, // whether who is signed in may only see, as sentinel says; null: it was not asked yet
  asking: new AbortController(), // of what the passkey is asked in this view
};

let quiet = 0; // the timer that takes back what was said last
export function say(text) {
  clearTimeout(quiet);
  status.replaceChildren(text);
  quiet = setTimeout(() => status.replaceChildren(), 30000);
}

/** show puts a view in place and moves the focus to its heading, where a screen reader begins to read. */
export function show(title, ...content) {
  document.title = `${title} – Doorward`;
  main.replaceChildren(...content.flat(Infinity).filter(Boolean));
  const h = main.querySelector("h1");
  if (h) h.focus();
}

export const trouble = (e) => el("p", { class: "warn", role: "alert" }, shown(e.message || String(e)), e.next ? [" ", shown(e.next)] : "");

export function failed(e) {
  if (e.code === "no_session") return signIn();
  show("Something went wrong", heading(e instanceof Refused ? "This is not shown" : "That did not work"), trouble(e),
    el("div", { class: "actions" }, button("Try again", route),
      nav.hidden ? "" : el("a", { class: "button", href: "#pending" }, "Back to all that waits")));
}

/** act runs what a button does, with the buttons off meanwhile. */
export async function act(doing, what) {
  const mine = state.turn;
  const buttons = Array.from(main.querySelectorAll("button:not(:disabled)"));
  buttons.forEach((b) => { b.disabled = true; });
  main.querySelectorAll("[role=alert]").forEach((a) => a.remove());
  say(doing);
  try {
    await what();
  } catch (e) {
    say("");
    if (mine !== state.turn && !e.here) return e.name === "AbortError" ? undefined : say(shown(e.message || String(e))); // its view is gone
    if (e.code === "no_session") return signIn();
    const cancelled = e.name === "NotAllowedError" || e.name === "AbortError";
    main.append(trouble(cancelled ? new Error("Your passkey did not confirm. Nothing was done.") : e));
  }
  buttons.forEach((b) => { b.disabled = false; });
}

/** leave ends what the view before was about: nothing of it is signed any more. */
export function leave() {
  state.asking.abort();
  state.asking = new AbortController();
  return ++state.turn;
}

/** does are the buttons of what only who may approve does; for a viewer there are none. Sentinel refuses it to a viewer in any case. */
export const does = (...buttons) => (state.viewer ? "" : el("div", { class: "actions" }, buttons));

export const list = (all, item, none) => (all.length ? el("ul", { class: "plain" }, all.map(item)) : el("p", {}, none));
