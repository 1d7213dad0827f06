// SPDX-License-Identifier: Apache-2.0
// What is seen. Text goes in as text nodes only; what others chose goes through visible.js first.

import { bytes } from "/verify.js";
import { block, line, warnings } from "/visible.js";

/** el makes an element. Attributes are set as such, functions are listeners; strings among the content become text, never markup. */
export function el(name, attributes = {}, ...content) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (typeof v === "function") e.addEventListener(k, v);
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...content.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== ""));
  return e;
}

const parts = (ps) => ps.map((p) => (p.odd ? el("span", { class: "odd" }, p.text) : p.text));

/** parted is a line of text that others chose, without an element around it. */
export const parted = (text) => parts(line(text ?? ""));

/** shown is a line of text that others chose. */
export const shown = (text) => el("span", { class: "text", dir: "auto" }, parts(line(text ?? "")));

/** spoken is the same where there is no element to put it into: a name for screen readers. */
export const spoken = (text) => line(text ?? "").map((p) => p.text).join("");

/** whole is text of several lines that others chose. */
export const whole = (text) => el("pre", {}, block(text).map((l) => el("div", { class: "text", dir: "auto" }, parts(l), l.length ? "" : " ")));

export const warned = (text) => warnings(text).map((w) => el("p", { class: "warn" }, shown(w)));

/** mark is the sign of a connector: a letter of its own, since nothing is fetched from a vendor. */
export const mark = (name) => el("span", { class: "mark", "aria-hidden": "true", "data-of": /^[a-z0-9]{1,32}$/.test(name || "") ? name : "" },
  /^[a-z0-9]/.test(name || "") ? name[0].toUpperCase() : "?");

export const chip = (text, kind = "") => el("span", { class: `chip ${kind}` }, shown(text));

/** select chooses among pairs of value and words; what is chosen and not among them is put there, so that it is never changed unseen. */
export function select(ways, chosen, attributes) {
  const all = ways.some(([v]) => v === chosen) ? ways : [[chosen, chosen], ...ways];
  return el("select", attributes, all.map(([value, words]) => el("option", { value, selected: value === chosen }, spoken(words))));
}

/** away is a link out of the page, to a place that is named in full; what is no https address is text. */
export function away(address, text) {
  const to = URL.canParse(address) ? new URL(address) : null;
  return to?.protocol === "https:" ? el("a", { href: to.href, target: "_blank", rel: "noopener noreferrer" }, text, el("span", { class: "soft" }, ` (${to.host})`)) : text;
}

export const heading = (text) => el("h1", { tabindex: "-1" }, shown(text));
/** button has its words in one box: side by side they would stand without the space between them. */
export const button = (text, act, kind) => el("button", { type: "button", class: kind, click: act }, Array.isArray(text) ? el("span", {}, text) : text);

/** person is who decided, in words: a passkey's name, or a user of the machine. */
export function person(by) {
  const [how, name] = [by.slice(0, by.indexOf(":")), by.slice(by.indexOf(":") + 1)];
  return how === "passkey" ? `${name}, with a passkey` : how === "person" ? `user ${name} of the machine` : by;
}

export const size = (n) => (n < 10000 ? `${n} bytes` : n < 10e6 ? `${Math.round(n / 1000)} kB` : `${Math.round(n / 1e6)} MB`);
export const hex = (data) => Array.from(typeof data === "string" ? bytes(data) : data || [], (b) => b.toString(16).padStart(2, "0")).join("");

export function when(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "never";
}

export function left(seconds, now = Date.now() / 1000) {
  const s = seconds - now;
  if (s <= 0) return "now";
  const [n, unit] = s < 3600 ? [Math.ceil(s / 60), "minute"] : s < 48 * 3600 ? [Math.round(s / 3600), "hour"] : [Math.round(s / 86400), "day"];
  return `in ${n} ${unit}${n === 1 ? "" : "s"}`;
}
