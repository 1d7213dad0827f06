// SPDX-License-Identifier: Apache-2.0
// What leads from one view to the next, the session, and the news. What was signed and what it means is verify.js's.

import { ask } from "/api.js";
import { fingerprint, kept, noKey } from "/cardkey.js";
import { oneCard, pendingList } from "/deciding.js";
import { enrol, takeLink } from "/enrol.js";
import { act, failed, leave, main, nav, say, show, state } from "/frame.js";
import { follow, unfollow } from "/news.js";
import * as passkey from "/passkey.js";
import { past } from "/past.js";
import { notices } from "/push.js";
import { rules, sites } from "/rules.js";
import { several } from "/several.js";
import { Refused, base64, bytes, loginChallenge } from "/verify.js";
import { button, el, heading, shown } from "/view.js";
import { accounts, cells, grants, sessions, stop } from "/views.js";

export async function route() {
  takeLink();
  const mine = leave();
  const at = new URLSearchParams(location.hash.slice(1));
  const name = at.has("card") ? "card" : at.keys().next().value || "pending";
  state.current = null;
  rest(false);
  for (const a of nav.querySelectorAll("a")) {
    if (a.hash === `#${name}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    if (!passkey.supported()) {
      show("No passkeys", heading("This browser cannot be used"), el("p", {}, "It has no passkeys here. Use a newer browser, and open the page by the name it was set up for."));
    } else if (state.invitation) {
      await enrol(mine);
    } else {
      state.viewer ??= await whether();
      await (views[name] || views.pending)(mine, at);
    }
  } catch (e) {
    if (mine === state.turn) failed(e);
  }
}

/** whether says if who is signed in may only see, null where nobody is. */
async function whether() {
  const r = await ask("login");
  return r.name ? Boolean(r.viewer) : null;
}

/** signedIn is called when an answer has shown that there is a session. */
export function signedIn() {
  nav.hidden = false;
  nav.querySelector(".halt").hidden = state.viewer === true;
  follow();
}

export function signIn() {
  nav.hidden = true;
  unfollow(true);
  state.current = state.viewer = null;
  leave();
  if (!kept()) return failed(noKey());
  const print = el("span");
  show("Sign in", heading("Sign in"), el("p", {}, "Your passkey shows you what waits. Deciding asks for it again, each time."),
    el("div", { class: "actions" }, button("Sign in with a passkey", () => act("Confirm with your passkey.", async () => {
      const first = await ask("login");
      if (first.rp !== location.hostname) throw new Refused("This sign-in is for another page. It was not signed.");
      const assertion = await passkey.sign(await loginChallenge(bytes(first.nonce)), first.rp, first.allow, state.asking.signal);
      const r = await ask("login", { nonce: first.nonce, assertion: base64(assertion) });
      state.viewer = Boolean(r.viewer);
      say(r.name ? shown(`Signed in as ${r.name}.`) : "Signed in.");
      await route();
    }), "main"), button("Use a recovery code", () => act("", async () => (await import("/recovery.js")).recovery()))), el("p", { class: "soft" }, "Card key here: ", print));
  fingerprint(kept()).then((text) => print.replaceChildren(text));
}

async function signOut() {
  let told = "Signed out.";
  try {
    await ask("logout");
  } catch (e) {
    if (e.code !== "no_session") told = "This browser is signed out. Doorward did not say that it ended the session there: it ends by itself, after 12 hours at most.";
  }
  signIn();
  say(told);
}

const views = { pending: (mine) => pendingList(mine), card: oneCard, review: several, history: past, grants, rules, sites, accounts, cells, sessions, stop, notices };

// On a phone only some of the views have a place in the bar; the rest opens over it.
const more = document.getElementById("more");
const rest = (open) => {
  more.setAttribute("aria-expanded", String(open));
  nav.classList.toggle("open", open);
};
more.addEventListener("click", () => rest(more.getAttribute("aria-expanded") !== "true"));
nav.addEventListener("keydown", (e) => {
  if (e.key !== "Escape" || more.getAttribute("aria-expanded") !== "true") return;
  rest(false);
  more.focus();
});

document.getElementById("skip").addEventListener("click", (e) => {
  e.preventDefault(); // the fragment is a view's name
  main.focus();
});
document.getElementById("out").addEventListener("click", signOut);
addEventListener("hashchange", route);
takeLink();
route();
