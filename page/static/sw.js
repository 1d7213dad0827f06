// SPDX-License-Identifier: Apache-2.0
// Shows what sentinel told this browser by Web Push. It answers no request of the page and asks nobody; the text was sealed for this
// browser, and is not taken for more than text.

const text = (v, most) => (typeof v === "string" ? v.slice(0, most) : "");

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("push", (e) => {
  let m = {};
  try {
    m = e.data.json() || {};
  } catch { /* what is no JSON is shown as something that happened */ }
  e.waitUntil(self.registration.showNotification(`Doorward: ${text(m.title, 80) || "something happened"}`, {
    body: text(m.body, 400), tag: text(m.tag, 64), icon: "/icon.svg", data: text(m.link, 400),
  }));
});

/** to is where a notice leads: a place of this page, whatever it says. */
function to(link) {
  try {
    const at = new URL(link, self.location.origin);
    return at.origin === self.location.origin ? `/${at.hash}` : "/";
  } catch {
    return "/";
  }
}

self.addEventListener("notificationclick", (e) => {
  e.notification.close();
  e.waitUntil(self.clients.openWindow(to(e.notification.data)));
});
