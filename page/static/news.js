// SPDX-License-Identifier: Apache-2.0
// What happens while the page is open. Nobody vouches for the stream: approvals may tell too little, or what is not so. It is a
// reason to ask, and what the person reads is what was answered then.

import { watch } from "/api.js";
import { signIn } from "/app.js";
import { fetchOffer, pendingList, waiting } from "/deciding.js";
import { main, nav, say, state } from "/frame.js";
import { el } from "/view.js";

let unwatch = null;
let known = null; // ids of what waited when it was last asked for
let asked = null; // the question for it that runs: {again} says that another is due

/** follow hears of what happens, while somebody looks: without TLS a browser has six connections for all of its windows. */
export function follow() {
  if (!document.hidden && !nav.hidden) unwatch ||= watch(news, heard, signIn);
}

export function unfollow(forget) {
  unwatch?.();
  unwatch = null;
  if (forget) known = null;
}

/** seen takes the first of what waits, as it was asked for last, and says what of it is new. Of what is not listed only the newest is known. */
export function seen({ first: { total, newest = "" }, all, more }) {
  const fresh = !known ? 0 : known.more || more ? Number(newest > known.newest) : all.filter((c) => !known.has(c.id)).length;
  known = Object.assign(new Set(all.map((c) => c.id)), { more, newest });
  document.getElementById("waiting").textContent = total || "";
  if (fresh) say(fresh === 1 ? "Something new waits for you." : `${fresh} new things wait for you.`);
}

function over(how) {
  const words = `What you have open is ${how} now.`;
  main.querySelectorAll(".decide").forEach((d) => d.replaceWith(el("p", { class: "note", role: "alert" }, words)));
}

function news(events) {
  if (events.some((e) => e.id === state.current?.id)) lookAtCard();
  if (events.length) look();
}

/** heard is called when the stream begins: what came before it nobody told. */
function heard() {
  look();
  lookAtCard();
}

/** lookAtCard asks how the card that is open stands. */
async function lookAtCard() {
  const mine = state.turn;
  if (!state.current || !main.querySelector(".decide")) return;
  try {
    const { card } = await fetchOffer(state.current.id);
    if (mine === state.turn && card.state !== "parked") over(card.state);
  } catch { /* who decides on it is told */ }
}

const onList = () => !state.invitation && !state.current && (location.hash.slice(1) || "pending") === "pending";

/** look asks what waits; however often it is called, one question at a time runs. */
async function look() {
  if (asked) {
    asked.again = true;
    return;
  }
  asked = { again: false };
  try {
    if (onList()) await pendingList(state.turn, false);
    else seen(await waiting());
  } catch (e) {
    if (e.code === "no_session" && !nav.hidden) signIn();
  }
  const { again } = asked;
  asked = null;
  if (again) look();
}

document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));
