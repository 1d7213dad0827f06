// SPDX-License-Identifier: Apache-2.0
// A grant as a person may narrow it, and the sentence that says what it allows.

import { button, el, shown, spoken, warned, when } from "/view.js";

const plain = /^[\w.~@/+:#=-]+$/;
const value = (v) => (plain.test(v) ? v : JSON.stringify(v));

/** sentence says what a grant allows, exactly as it would be signed. */
export function sentence(g) {
  let s = g.connector === "site" ? `Programs of cell ${g.cell} may connect to ${value(g.account)}`
    : `Cell ${g.cell} may use ${g.connector} ${g.method} with account ${g.account}`;
  s += { once: ", once more", session: `, until session ${g.session} ends`, until: `, until ${when(g.until)}`,
    standing: `, until ${when(g.until)}` }[g.kind] || "";
  if (g.kind !== "once") s += g.count ? `, ${g.count} times at most` : ", as often as it asks";
  const open = (g.limits || []).filter((l) => l.any).map((l) => l.field);
  const limits = (g.limits || []).filter((l) => !l.any);
  s += limits.map((l, i) => (i ? " and " : "; only where ") + l.field + (l.max ? ` is at most ${l.max}`
    : !l.values?.length ? " is not given" : l.values.length === 1 ? ` is ${value(l.values[0])}`
      : ` is ${l.all ? "all of" : "among"} ${l.values.map(value).join(", ")}`)).join("");
  if (open.length) s += `; whatever ${open.join(" and ")} ${open.length > 1 ? "are" : "is"}`;
  else if (!limits.length) s += "; whatever its arguments are";
  return `${s}${g.tainted ? "; also" : "; not"} after the cell has read what others wrote.`;
}

const day = 86400;
const local = (seconds) => new Date((seconds - new Date(seconds * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, 16);

/** grantForm edits a card's grant. It returns {form, read}; read gives the grant as the form stands, or throws with what is wrong. */
export function grantForm(c) {
  const from = c.grantable;
  const fixed = from.connector === "site" || (from.limits || []).some((l) => l.field === "begins");
  const now = Math.floor(Date.now() / 1000);
  const option = (kind, text) => el("option", { value: kind, selected: from.kind === kind }, text);
  const kind = el("select", { id: "kind" }, fixed ? "" : option("once", "one more time"),
    from.session ? option("session", "until this session ends") : "", option("until", "until a time (7 days at most)"),
    c.sensitive ? "" : option("standing", "for long (90 days at most)"));
  const until = el("input", { id: "until", type: "datetime-local", value: local(from.until || now + day) });
  const count = el("input", { id: "count", type: "number", min: "0", step: "1", inputmode: "numeric", value: from.count || "" });
  const tainted = el("input", { type: "checkbox", checked: Boolean(from.tainted) });
  const limits = (from.limits || []).map((l) => limit(l, fixed));
  const says = el("p", { class: "sentence", "aria-live": "polite" });

  function read() {
    const g = structuredClone(from);
    for (const k of ["id", "used", "last_use", "made", "by", "revoked", "sentence", "until", "count", "tainted"]) delete g[k];
    g.kind = kind.value;
    if (g.kind !== "session") delete g.session;
    if (g.kind === "until" || g.kind === "standing") {
      g.until = Math.floor(new Date(until.value).getTime() / 1000);
      if (!Number.isSafeInteger(g.until) || g.until * 1000 <= Date.now()) throw new Error("Choose an end that is still to come.");
    }
    if (count.value && count.value !== "0") {
      g.count = Number(count.value);
      if (!Number.isSafeInteger(g.count) || g.count < 0) throw new Error("How many times has to be a whole number.");
    }
    if (tainted.checked) g.tainted = true;
    g.limits = limits.map((l) => l.read());
    return g;
  }
  const form = el("fieldset", {}, el("legend", {}, "Allow the like of it ahead"),
    el("label", { for: "kind" }, "How long"), kind,
    el("div", {}, el("label", { for: "until" }, "Until"), until),
    fixed ? "" : el("div", {}, el("label", { for: "count" }, "How many times at most (empty: any number)"), count),
    limits.map((l) => l.form),
    c.sensitive ? "" : el("label", { class: "tick" }, tainted, "Also after the cell has read what others wrote"),
    says);
  const tell = () => {
    until.parentElement.hidden = kind.value !== "until" && kind.value !== "standing";
    try {
      says.replaceChildren(shown(sentence(read())));
    } catch (e) {
      says.replaceChildren(e.message);
    }
  };
  form.addEventListener("input", tell);
  form.addEventListener("click", (e) => e.target.matches("button") && tell());
  tell();
  return { form, read };
}

/** limit edits one wire.Limit. Values are ticked or not and never edited: an input could not show all that is in them. */
function limit(l, fixed) {
  const any = el("input", { type: "checkbox", checked: Boolean(l.any) });
  const name = shown(l.field);
  const open = { field: l.field, any: true };
  const drop = fixed || l.held ? "" : el("label", { class: "tick" }, any, "whatever it is");
  if (l.max) {
    const most = el("input", { type: "number", min: "1", step: "1", value: l.max });
    return { form: el("fieldset", { disabled: fixed }, el("legend", {}, name), el("label", {}, "At most ", most), drop), read() {
      if (any.checked) return open;
      const max = Number(most.value);
      if (!Number.isSafeInteger(max) || max < 1) throw new Error(`${l.field}: at most how much has to be a whole number from 1.`);
      return { field: l.field, max };
    } };
  }
  const ticks = el("div");
  const tick = (v) => {
    const box = el("input", { type: "checkbox", checked: true });
    box.value = v;
    ticks.append(el("label", { class: "tick" }, box, shown(v)), ...warned(v));
  };
  (l.values || []).forEach(tick);
  const more = el("input", { type: "text", "aria-label": `Another value of ${spoken(l.field)}` });
  const add = button("Add", () => {
    if (more.value) tick(more.value);
    more.value = "";
  });
  return {
    form: el("fieldset", { disabled: fixed }, el("legend", {}, name), ticks, fixed ? "" : el("div", { class: "actions" }, more, add), drop),
    read() {
      if (any.checked) return open;
      const values = Array.from(ticks.querySelectorAll("input"), (b) => b.checked && b.value).filter((v) => v !== false);
      if (!values.length) return { field: l.field };
      return l.all ? { field: l.field, values, all: true } : { field: l.field, values };
    },
  };
}
