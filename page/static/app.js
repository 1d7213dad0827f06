// SPDX-License-Identifier: Apache-2.0
// The views, and what leads from one to the next. What was signed and what it means is verify.js's; this only passes it on.

import { ask, pages, watch } from "/api.js";
import * as passkey from "/passkey.js";
import { Refused, base64, bytes, cardKey, challenge, decision, enrolMAC, equal, loginChallenge, open, sha256 } from "/verify.js";
import { button, card, el, entry, grantForm, heading, left, row, shown, when } from "/view.js";

const keyName = "doorward-card-key";
const main = document.getElementById("main");
const nav = document.getElementById("nav");
const status = document.getElementById("status");

let invitation = null; // of the enrolment link: {id, code, key}; the code is nowhere else
let current = null; // {id} of the card that is shown
let turn = 0; // counts views, so that what arrives late for an earlier one is dropped
let asking = new AbortController(); // of what the passkey is asked in this view
let unwatch = null;

/** takeLink takes an enrolment out of the address, at once: the bar, the history and a screenshot shall not have the code. */
function takeLink() {
  const at = new URLSearchParams(location.hash.slice(1));
  if (!at.has("enrol")) return;
  invitation = { id: at.get("enrol"), code: at.get("code") || "", key: at.get("key") || "" };
  history.replaceState(null, "", location.pathname);
}

let quiet = 0; // the timer that takes back what was said last
function say(text) {
  clearTimeout(quiet);
  status.replaceChildren(text);
  quiet = setTimeout(() => status.replaceChildren(), 30000);
}

/** show puts a view in place and moves the focus to its heading, where a screen reader begins to read. */
function show(title, ...content) {
  document.title = `${title} – Doorward`;
  main.replaceChildren(...content.flat(Infinity).filter(Boolean));
  const h = main.querySelector("h1");
  if (h) h.focus();
}

const trouble = (e) => el("p", { class: "warn", role: "alert" }, shown(e.message || String(e)), e.next ? [" ", shown(e.next)] : "");

function failed(e) {
  if (e.code === "no_session") return signIn();
  show("Something went wrong", heading(e instanceof Refused ? "This is not shown" : "That did not work"), trouble(e),
    el("div", { class: "actions" }, button("Try again", route)));
}

/** act runs what a button does, with the buttons off meanwhile. */
async function act(doing, what) {
  const mine = turn;
  const buttons = Array.from(main.querySelectorAll("button:not(:disabled)"));
  buttons.forEach((b) => { b.disabled = true; });
  main.querySelectorAll("[role=alert]").forEach((a) => a.remove());
  say(doing);
  try {
    await what();
  } catch (e) {
    say("");
    if (mine !== turn && !e.here) return e.name === "AbortError" ? undefined : say(shown(e.message || String(e))); // its view is gone
    if (e.code === "no_session") return signIn();
    const cancelled = e.name === "NotAllowedError" || e.name === "AbortError";
    main.append(trouble(cancelled ? new Error("Your passkey did not confirm. Nothing was done.") : e));
  }
  buttons.forEach((b) => { b.disabled = false; });
}

/** leave ends what the view before was about: nothing of it is signed any more. */
function leave() {
  asking.abort();
  asking = new AbortController();
  return ++turn;
}

async function route() {
  takeLink();
  const mine = leave();
  const at = new URLSearchParams(location.hash.slice(1));
  const name = at.has("card") ? "card" : at.keys().next().value || "pending";
  current = null;
  for (const a of nav.querySelectorAll("a")) {
    if (a.hash === `#${name}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    if (!passkey.supported()) {
      show("No passkeys", heading("This browser cannot be used"), el("p", {}, "It has no passkeys here. Use a newer browser, and open the page by the name it was set up for."));
    } else if (invitation) {
      await enrol(mine);
    } else {
      await (views[name] || views.pending)(mine, at);
    }
  } catch (e) {
    if (mine === turn) failed(e);
  }
}

/** signedIn is called when an answer has shown that there is a session. */
function signedIn() {
  nav.hidden = false;
  unwatch ||= watch(news);
}

const ends = ["approved", "executing", "done", "failed", "unknown", "denied", "expired", "revoked"];

function news(events) {
  if (!events.length) return;
  const mine = current && events.find((e) => e.id === current.id && e.state !== "parked");
  if (mine) {
    main.querySelectorAll(".decide").forEach((d) => d.remove());
    say(`What you have open is ${ends.includes(mine.state) ? mine.state : "over"} now.`); // the word is approvals'
  } else {
    const fresh = events.filter((e) => e.state === "parked").length;
    if (fresh) say(fresh === 1 ? "Something new waits for you." : `${fresh} new things wait for you.`);
  }
  if (onList()) pendingList(turn, false).catch(() => {});
}

const onList = () => !nav.hidden && !invitation && !current && (location.hash.slice(1) || "pending") === "pending";

function signIn() {
  unwatch?.();
  unwatch = null;
  nav.hidden = true;
  current = null;
  leave();
  show("Sign in", heading("Sign in"), el("p", {}, "Your passkey shows you what waits. Deciding asks for it again, each time."),
    el("div", { class: "actions" }, button("Sign in with a passkey", () => act("Confirm with your passkey.", async () => {
      const first = await ask("login");
      const made = await loginChallenge(bytes(first.nonce));
      if (!equal(made, bytes(first.challenge)) || first.rp !== location.hostname) {
        throw new Refused("What this page was asked to sign is no sign-in. It was not signed.");
      }
      const assertion = await passkey.sign(made, first.rp, first.allow, asking.signal);
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

/** fingerprint is of a card key, short enough to compare. */
async function fingerprint(key) {
  const sum = await sha256(bytes(key));
  return Array.from(sum.subarray(0, 8), (b) => b.toString(16).padStart(2, "0")).join(" ");
}

async function enrol(mine) {
  const link = invitation;
  await cardKey(link.key); // a link that is cut is told now
  if (bytes(link.code).length < 16 || !link.id) throw new Refused("This link is not whole. Open it as it was printed.");
  const kept = localStorage.getItem(keyName);
  if (kept && !equal(bytes(kept), bytes(link.key)) && !link.agreed) {
    const [have, comes] = [await fingerprint(kept), await fingerprint(link.key)];
    if (mine !== turn) return;
    show("Another card key", heading("This link comes with another card key"),
      el("p", { class: "warn" }, "This browser already checks your cards with a key of its own. Whoever has the other key could show you one thing and have you sign another."),
      el("dl", {}, el("dt", {}, "Here"), el("dd", {}, have), el("dt", {}, "In the link"), el("dd", {}, comes)),
      el("p", {}, "Take the new one only if Doorward was set up anew on your machine, and you made this link there yourself."),
      el("div", { class: "actions" },
        button("Keep the one here", () => { invitation = null; route(); }, "main"),
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
      invitation = null;
      say("Your passkey is made.");
      signIn();
    }), "main"), button("Not now", () => { invitation = null; route(); })));
}

const list = (all, item, none) => (all.length ? el("ul", { class: "plain" }, all.map(item)) : el("p", {}, none));

async function pendingList(mine, move = true) {
  const { all, more } = await pages("pending", "cards");
  if (mine !== turn) return;
  signedIn();
  const content = [heading("Waiting for you"), list(all, row, "Nothing waits."),
    more ? el("p", { class: "note" }, "There is more than is listed here. Decide some, or stop what asks so much.") : ""];
  if (move) return show("Waiting", content);
  const at = main.contains(document.activeElement) && document.activeElement.hash; // who reads the list is not thrown out of it
  main.replaceChildren(...content.filter(Boolean));
  if (at) Array.from(main.querySelectorAll("a")).find((a) => a.hash === at)?.focus();
}

async function fetchOffer(id) {
  const kept = localStorage.getItem(keyName);
  if (!kept) {
    throw new Refused("This browser has no key to check cards with, so nothing can be decided here. On your machine, make a link for it: doorward approver add");
  }
  return open(await ask("show", { call: id }), await cardKey(kept), id, location.hostname);
}

async function oneCard(mine, at) {
  const id = at.get("card");
  const offer = await fetchOffer(id);
  if (mine !== turn) return;
  signedIn();
  current = { id };
  show("Decide", card(offer.card), offer.card.state === "parked" ? choices(offer) : "",
    el("p", {}, el("a", { href: "#pending" }, "Back to all that waits")));
}

/** choices are what a person can do about an offer. */
function choices(offer) {
  const c = offer.card;
  const why = el("input", { id: "why", type: "text", maxlength: "500" });
  const box = el("section", { class: "decide", "aria-label": "Decide" });
  const grantable = c.grantable && (c.grantable.limits || []).every((l) => !l.max || Number.isSafeInteger(l.max));
  const grant = grantable ? grantForm(c) : null;
  const yes = c.kind === "widening" ? "Allow this" : "Approve once";
  box.append(el("h2", {}, "Decide"),
    el("div", { class: "actions" }, button(yes, () => decide(offer, () => ({ approve: true })), "main"),
      button("Deny", () => decide(offer, () => ({ why: why.value })), "danger"),
      c.session ? button("Deny and stop the session", () => decide(offer, () => ({ stop: true, why: why.value })), "danger") : ""),
    el("label", { for: "why" }, "If you deny: why (the agent reads it)"), why);
  if (grant) {
    box.append(el("details", {}, el("summary", {}, "Approve, and the like of it too"), grant.form,
      el("div", { class: "actions" }, button("Approve, and allow this ahead", () => decide(offer, () => ({ approve: true, grant: grant.read() }))))));
  }
  return box;
}

const soon = 30; // seconds before an offer's end from which it is asked for again

function decide(offer, choose) {
  const mine = turn;
  const signal = asking.signal;
  // Only what stands on the screen is signed: what approvals holds back until another card does is dropped.
  const still = () => { if (mine !== turn) throw new Refused("You have left what this was about. Nothing was decided."); };
  return act("Confirm with your passkey.", async () => {
    const choice = choose();
    if (offer.spent || offer.expires - Date.now() / 1000 < soon) {
      const now = await fetchOffer(offer.card.id);
      still();
      if (now.card.hash !== offer.card.hash || now.card.state !== "parked") {
        await route();
        throw Object.assign(new Refused("It has changed since you opened it. Read it again."), { here: true });
      }
      Object.assign(offer, now, { card: offer.card, spent: false }); // what was read is what is decided on
    }
    const item = { nonce: bytes(offer.nonce), decision: decision(offer, choice), expires: offer.expires };
    const what = await challenge([item]);
    still();
    const assertion = await passkey.sign(what, offer.rp, offer.allow, signal);
    still();
    offer.spent = true; // it counts once, whatever comes of it
    const r = await ask("decide", {
      items: [{ id: offer.card.id, nonce: offer.nonce, decision: base64(item.decision) }], assertion: base64(assertion),
    });
    const o = r.outcomes?.[0] || {};
    if (o.error && !o.state) throw Object.assign(new Error(o.error.reason), o.error);
    if (mine === turn) {
      current = null;
      location.hash = "#pending";
    }
    if (o.error) return say(shown(`Approved, and it is ${o.state}: ${o.error.reason} ${o.error.next || ""}`));
    say(choice.approve ? (o.grant ? "Approved, and allowed ahead." : "Approved.") : choice.stop ? "Denied, and the session is stopped." : "Denied.");
  });
}

async function grants(mine) {
  const { all } = await pages("grants", "grants");
  if (mine !== turn) return;
  signedIn();
  show("Allowed ahead", heading("Allowed ahead"), list(all.filter((g) => !g.revoked), (g) => el("li", {},
    el("p", { class: "sentence" }, shown(g.sentence || `${g.connector} ${g.method}`)),
    el("p", { class: "soft" }, `Used ${g.used || 0} times${g.count ? ` of ${g.count}` : ""}, last ${when(g.last_use)}`,
      g.until ? `. Ends ${left(g.until)}.` : ".", g.by ? [" By ", shown(g.by)] : ""),
    el("div", { class: "actions" }, button("Take it back", () => act("", async () => {
      told(await ask("revoke", { grant: g.id }));
      await route();
    }), "danger"))), "Nothing is allowed ahead: you are asked each time."));
}

async function sessions(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== turn) return;
  signedIn();
  show("Sessions", heading("Sessions"), list(all, (s) => el("li", {},
    el("p", {}, shown(s.name)), el("p", { class: "soft" }, "Cell ", shown(s.cell), `, since ${when(s.began)}, `,
      s.attended ? "somebody sits at it" : "nobody sits at it", s.by ? [", by ", shown(s.by)] : ""),
    el("div", { class: "actions" }, button("End it", () => act("", async () => {
      await ask("session", { end: s.name });
      say("The session is ended.");
      await route();
    }), "danger"))), "No session runs."));
}

async function past(mine) {
  const r = await ask("history", { op: "list", limit: 100 });
  if (mine !== turn) return;
  signedIn();
  const entries = (r.lines || []).map((l) => JSON.parse(new TextDecoder().decode(bytes(l)))).reverse();
  show("Past", heading("Past"), el("p", { class: "soft" }, "The newest entries of the record. Here they are as they came; doorward audit verify, on your machine, checks them."),
    list(entries, entry, "Nothing is on record yet."));
}

function told(report) {
  say((report.lines || []).length ? shown(report.lines.join("; ")) : "Done.");
}

async function stop(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== turn) return;
  signedIn();
  const cells = [...new Set(all.map((s) => s.cell))].sort();
  const result = el("div", { "aria-live": "polite" });
  const ask1 = (body) => act("", async () => {
    const r = await ask("stop", body);
    say("");
    result.replaceChildren(...(r.lines || []).map((l) => el("p", {}, shown(l))),
      ...(r.may_have_run || []).map((l) => el("p", { class: "warn" }, "May have run: ", shown(l))),
      r.widening ? el("p", {}, el("a", { href: `#card=${encodeURIComponent(r.widening)}` }, "Decide on it")) : "");
  });
  const pair = (name, cell) => el("li", {}, el("p", {}, name), el("div", { class: "actions" },
    button(cell ? `Stop ${cell}` : "Stop everything", () => ask1({ cell }), "danger"),
    button(cell ? `Let ${cell} go on` : "Let everything go on", () => ask1({ cell, resume: true }))));
  show("Stop", heading("Stop"), el("p", {}, "At once: nothing more goes out, what runs is cut off, what waits is dropped. To go on again is a decision like any other."),
    result, el("ul", { class: "plain" }, pair("All cells", undefined), cells.map((c) => pair(shown(`Cell ${c}`), c))));
}

const views = { pending: (mine) => pendingList(mine), card: oneCard, grants, sessions, history: past, stop };

// A window that nobody looks at waits for nothing: without TLS a browser has six connections for all of them.
document.addEventListener("visibilitychange", () => {
  unwatch?.();
  unwatch = null;
  if (document.hidden || nav.hidden) return;
  unwatch = watch(news);
  if (onList()) pendingList(turn, false).catch(() => {});
});

document.getElementById("out").addEventListener("click", signOut);
addEventListener("hashchange", route);
takeLink();
route();
