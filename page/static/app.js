// SPDX-License-Identifier: Apache-2.0
// What leads from one view to the next, the session, and the news. What was signed and what it means is verify.js's.

import { ask } from "/api.js";
import { oneCard, pendingList } from "/deciding.js";
import { enrol, takeLink } from "/enrol.js";
import { act, failed, leave, nav, say, show, state } from "/frame.js";
import { follow, unfollow } from "/news.js";
import * as passkey from "/passkey.js";
import { Refused, base64, bytes, equal, loginChallenge } from "/verify.js";
import { button, el, heading, shown } from "/view.js";
import { grants, past, sessions, stop } from "/views.js";

export async function route() {
  takeLink();
  const mine = leave();
  const at = new URLSearchParams(location.hash.slice(1));
  const name = at.has("card") ? "card" : at.keys().next().value || "pending";
  state.current = null;
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
      await (views[name] || views.pending)(mine, at);
    }
  } catch (e) {
    if (mine === state.turn) failed(e);
  }
}

/** signedIn is called when an answer has shown that there is a session. */
export function signedIn() {
  nav.hidden = false;
  follow();
}

export function signIn() {
  nav.hidden = true;
  unfollow(true);
  state.current = null;
  leave();
  show("Sign in", heading("Sign in"), el("p", {}, "Your passkey shows you what waits. Deciding asks for it again, each time."),
    el("div", { class: "actions" }, button("Sign in with a passkey", () => act("Confirm with your passkey.", async () => {
      const first = await ask("login");
      const made = await loginChallenge(bytes(first.nonce));
      if (!equal(made, bytes(first.challenge)) || first.rp !== location.hostname) {
        throw new Refused("What this page was asked to sign is no sign-in. It was not signed.");
      }
      const assertion = await passkey.sign(made, first.rp, first.allow, state.asking.signal);
      const r = await ask("login", { nonce: first.nonce, assertion: base64(assertion) });
      say(r.name ? shown(`Signed in as ${r.name}.`) : "Signed in.");
      await route();
    }), "main")));
}

async function signOut() {
  await act("", () => ask("logout"));
  say("Signed out.");
  signIn();
}

const views = { pending: (mine) => pendingList(mine), card: oneCard, grants, sessions, history: past, stop };

document.getElementById("out").addEventListener("click", signOut);
addEventListener("hashchange", route);
takeLink();
route();
