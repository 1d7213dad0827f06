// SPDX-License-Identifier: Apache-2.0
// A call that a person changes before it is approved. What is decided on is what sentinel made of it and signed, shown beside what it
// was; the call that waits stays as it is until then.

import { ask } from "/api.js";
import { route } from "/app.js";
import { filled, short, unseen } from "/body.js";
import { card } from "/cardview.js";
import { decide } from "/deciding.js";
import { difference } from "/diff.js";
import { act, main, show, state } from "/frame.js";
import { changed } from "/verify.js";
import { button, el, heading, select, shown, spoken } from "/view.js";

/** editCall shows what of an offer's call can be changed. */
export async function editCall(offer) {
  const mine = state.turn;
  const { form } = await ask("edit", { call: offer.card.id });
  await filled(offer.card.id, offer.card);
  if (mine !== state.turn) return;
  const fields = (form || []).map((f) => (f.type === "file" ? file(offer, f) : argument(f))).filter(Boolean);
  const next = () => act("Preparing it.", async () => {
    const wanted = { args: fields.map((f) => f.arg?.()).filter(Boolean), files: fields.map((f) => f.text?.()).filter(Boolean) };
    wanted.args.sort((a, b) => (a.name < b.name ? -1 : 1));
    const { offer: made } = await ask("edit", { call: offer.card.id, hash: offer.card.hash, ...wanted });
    changed(made, offer, location.hostname);
    await filled(made.card.id, made.card);
    if (mine !== state.turn) return;
    review(offer, made, view);
  });
  const box = el("form", { submit: (e) => { e.preventDefault(); next(); } }, fields.map((f) => f.form),
    el("div", { class: "actions" }, el("button", { type: "submit", class: "main" }, "Look at the change"), back()));
  const view = () => show("Change", heading(`Change: ${offer.card.title}`),
    el("p", { class: "soft" }, "Nothing runs by this. You see next what would become of it, and decide then."), box);
  view();
}

const back = () => button("Leave it as it was", route);

/** review shows what became of a change, beside what it was, and has it decided. */
function review(offer, made, again) {
  const { line, tell } = unseen(made.card);
  show("Changed", heading(`Changed: ${made.card.title}`), el("h2", {}, "What is other"), difference(offer.card, made.card),
    el("h2", {}, "All of it, as it would run"), el("section", { class: "whole" }, card(made.card, tell, true)),
    el("section", { class: "decide", "aria-label": "Decide" }, el("h2", {}, "Decide"), line, el("div", { class: "actions" },
      button("Approve what I changed", () => decide([made], () => ({ approve: true })), "main"), button("Change more", again), back())));
  main.scrollIntoView();
}

/** argument edits one argument. It gives {form, arg}; arg is nothing where the argument is left out. */
function argument(f) {
  const many = (f.repeat || 0) > 1;
  const values = f.values || [];
  const name = el("span", {}, shown(f.label));
  const hint = el("span", { class: "soft" }, shown(f.help));
  const field = (value, label) => {
    const attributes = { "aria-label": label, disabled: f.fixed };
    if (f.enum?.length || f.type === "bool") {
      return select([...(f.required ? [] : [["", "–"]]), ...(f.enum?.length ? f.enum : ["true", "false"]).map((o) => [o, o])], value, attributes);
    }
    const e = f.type === "text" ? el("textarea", { rows: "6", ...attributes }) : el("input", { type: "text", inputmode: f.type === "int" ? "numeric" : undefined, ...attributes });
    e.value = value;
    return e;
  };
  const all = el("div");
  const add = (value) => all.append(field(value, `${f.label}${many ? `, value ${all.children.length + 1}` : ""}`));
  (values.length ? values : many ? [] : [""]).forEach(add);
  const more = many && !f.fixed ? button("One more", () => all.children.length < f.repeat && add("")) : "";
  return {
    form: el("fieldset", {}, el("legend", {}, name), hint, f.fixed ? el("p", { class: "soft" }, "This stays: it says what the call builds on.") : "", all, more),
    arg() {
      const given = Array.from(all.children, (e) => read(e, values)).filter((v) => v !== "" || (f.type === "text" && f.required));
      return given.length ? { name: f.name, values: given } : null;
    },
  };
}

/** read is a field's value. A browser takes CR out of what it shows: what nobody touched stays as it was. */
function read(e, values) {
  return values.find((v) => v.replace(/\r\n?/g, "\n") === e.value) ?? e.value;
}

/** file edits a file that is text and not long. */
function file(offer, f) {
  const of = (offer.card.bodies || []).find((b) => b.sha256 === f.sha256);
  if (f.fixed || !of || of.binary || of.cut || of.size > short) return null;
  const text = of.text || "";
  const area = el("textarea", { rows: "12", "aria-label": `Text of ${spoken(of.name || f.label)}` });
  area.value = text;
  return {
    form: el("fieldset", {}, el("legend", {}, shown(of.name || f.label)), area),
    text() {
      const now = read(area, [text]);
      return now === text ? null : { file: f.file || 0, text: now };
    },
  };
}
