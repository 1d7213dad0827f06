// SPDX-License-Identifier: Apache-2.0
// Whether this browser is told by Web Push. A notice shows and opens; it decides nothing.

import { ask } from "/api.js";
import { route, signedIn } from "/app.js";
import { act, say, show, state } from "/frame.js";
import { base64, bytes } from "/verify.js";
import { button, el, heading } from "/view.js";

// The one address from which this page lets the browser load a script by name.
const script = (() => {
  const only = (u) => {
    if (u !== "/sw.js") throw new TypeError("no script of this page");
    return u;
  };
  return window.trustedTypes ? window.trustedTypes.createPolicy("sw", { createScriptURL: only }).createScriptURL("/sw.js") : "/sw.js";
})();

const able = () => "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

async function subscription() {
  const r = able() && await navigator.serviceWorker.getRegistration("/");
  return (r && await r.pushManager.getSubscription()) || null;
}

/** notices is the view. */
export async function notices(mine) {
  const now = await subscription();
  const r = await ask("push", now ? { endpoint: now.endpoint } : {});
  if (mine !== state.turn) return;
  signedIn();
  const refused = able() && Notification.permission === "denied";
  show("Notices", heading("Notices"),
    el("p", {}, r.on ? "This browser is told when something waits for you, and what came of it." : "This browser is not told when something waits for you."),
    el("p", { class: "soft" }, "A notice says which cell asks for what, never in which words, and opens the page. Deciding takes your passkey."),
    !able() && el("p", { class: "warn" }, "This browser cannot be told. On an iPhone, add the page to the home screen first, and open it there."),
    refused && el("p", { class: "warn" }, "Notifications of this page are switched off in the browser's settings. Allow them there first."),
    able() && !refused && el("div", { class: "actions" }, r.on ? button("Stop telling me here", () => act("", off)) :
      button("Tell me on this device", () => act("", () => on(bytes(r.key))), "main")));
}

async function on(key) {
  if (await Notification.requestPermission() !== "granted") throw new Error("The browser was not allowed to show notifications. Nothing was changed.");
  await navigator.serviceWorker.register(script, { scope: "/" });
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe(); // one for another key would be in the way
  let made;
  try {
    made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  } catch {
    throw new Error("The browser's push service gave no address. Try again later, or be told in another way: doorward notice add.");
  }
  try {
    await ask("push", { endpoint: made.endpoint, public: base64(made.getKey("p256dh")), auth: base64(made.getKey("auth")) });
  } catch (e) {
    await made.unsubscribe();
    throw e;
  }
  await route();
  say("This browser is told from now on.");
}

async function off() {
  const now = await subscription();
  if (now) {
    await ask("push", { endpoint: now.endpoint, off: true });
    await now.unsubscribe();
  }
  await route();
  say("This browser is not told any more.");
}
