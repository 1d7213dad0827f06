// SPDX-License-Identifier: Apache-2.0
// What asks and what goes: connectors with their methods, and sites. What narrows takes effect at once; what widens becomes a card.

import { ask, pages } from "/api.js";
import { route, signedIn } from "/app.js";
import { row } from "/cardview.js";
import { act, list, say, show, state, trouble } from "/frame.js";
import { button, chip, el, heading, left, mark, select, shown, spoken } from "/view.js";
import { grant } from "/views.js";

const connectorWays = [["ask-every-time", "Ask every time"], ["ask-before-changes", "Ask before changes"], ["dont-ask", "Don't ask"]];
const methodWays = [["", "As above"], ["allow", "Goes"], ["ask", "Asks"], ["off", "Off"]];
const siteWays = [["allow", "Open, unread"], ["read", "Reads go, changes ask"], ["ask", "Asks once"], ["off", "Refused"]];
const classes = { read: "reads", write: "changes", destructive: "deletes" };
const now = { allow: "goes", ask: "asks", off: "is off" };

/** saving is a view's changes: each select that is not as it was, and what becomes of them. */
function saving(from, controls) {
  const result = el("div", { "aria-live": "polite" });
  const save = button("Save", () => act("", async () => {
    const lines = controls().filter((c) => c.value() !== c.was).map((c) => ({ ...c.line, value: c.value() }));
    if (!lines.length) return say("Nothing is changed.");
    const r = await ask("settings", { from, lines });
    if (r.problems?.length) return result.replaceChildren(trouble(new Error(r.problems.join("; "))));
    if (r.card && r.policy === from) {
      location.hash = `#card=${encodeURIComponent(r.card)}`;
      return say("This allows more than before, so it waits for your decision.");
    }
    await route();
    say("Saved. It is in force.");
  }), "main");
  return [result, state.viewer ? "" : el("div", { class: "actions keep" }, save)];
}

const control = (name, ways, was, line) => {
  const field = select(ways, was, { "aria-label": spoken(name), disabled: state.viewer === true });
  return { field, was, line, value: () => field.value };
};

const waits = (s) => (s.card ? el("p", { class: "note" }, "A change of the rules ", el("a", { href: `#card=${encodeURIComponent(s.card)}` },
  "waits for your decision"), ". Another one that allows more takes its place.") : "");

export async function rules(mine) {
  const s = await ask("settings");
  if (mine !== state.turn) return;
  signedIn();
  const all = [];
  const keep = (c) => {
    all.push(c);
    return c.field;
  };
  show("Rules", heading("Rules"), el("p", { class: "soft" }, "What your agent may do by itself. After a cell has read what others wrote, every change asks, whatever stands here."),
    waits(s), (s.notes || []).map((n) => el("p", { class: "note" }, shown(n))),
    list(s.connectors || [], (c) => el("li", {},
      el("div", { class: "head" }, mark(c.name), el("h2", {}, shown(c.title || c.name)),
        keep(control(`${c.name}: all of it`, c.said ? connectorWays : [["", "Ask before changes (nothing is set)"], ...connectorWays], c.said || "", { connector: c.name }))),
      c.said && c.said !== c.now ? el("p", { class: "note" }, "The admin's limits hold it at ", shown(c.now), ".") : "",
      el("details", {}, el("summary", {}, `${(c.methods || []).length} methods`), el("ul", { class: "methods" }, (c.methods || []).map((m) => el("li", {},
        el("div", {}, el("strong", {}, shown(m.name)), " ", chip(classes[m.class] || m.class, m.class), el("div", { class: "soft" }, shown(m.summary),
          m.asks === "all" ? ". Always asks." : m.asks ? [". Always asks: ", shown(m.asks), "."] : `. It ${now[m.now] || m.now} now.`,
          m.held ? [" Held back: ", shown(m.held)] : "")),
        keep(control(`${c.name} ${m.name}`, methodWays, m.said || "", { connector: c.name, method: m.name })))))),
    ), "No connector is installed."),
    saving(s.policy, () => all));
}

export async function sites(mine) {
  const [s, { all: live }, { all: waiting }] = await Promise.all([ask("settings"), pages("grants", "grants"), pages("pending", "cards")]);
  if (mine !== state.turn) return;
  signedIn();
  const all = [];
  const line = (x) => {
    const other = x.site === "*";
    const c = control(other ? "Every other site" : x.site, other ? siteWays.slice(2) : [...siteWays, ["", "Remove the line"]], x.said, { site: x.site });
    if (!x.set) all.push(c);
    return el("li", { class: "head" }, el("div", {}, other ? "Every other site" : shown(x.site),
      x.set ? el("div", { class: "soft" }, "a named set, from policy.toml") : "", x.held ? el("div", { class: "soft" }, shown(x.held)) : ""),
      x.set ? chip((siteWays.find(([v]) => v === x.said) || ["", x.said])[1]) : c.field);
  };
  const name = el("input", { id: "site", type: "text", placeholder: "example.org", autocapitalize: "none", spellcheck: "false" });
  const way = select(siteWays, "ask", { "aria-label": "What becomes of it" });
  const added = { line: { get site() { return name.value.trim(); } }, was: "", value: () => (name.value.trim() ? way.value : "") };
  const asked = waiting.filter((c) => c.kind === "widening" && ["site", "request"].includes(c.method));
  const part = (title, items, item) => (items.length ? [el("h2", {}, title), list(items, item)] : "");
  show("Sites", heading("Sites"), el("p", { class: "soft" }, "Where programs of your cells may connect by themselves."), waits(s),
    part("Waiting for you", asked, (c) => row(c)),
    part("Allowed by you", live.filter((g) => g.connector === "site" && !g.revoked), grant),
    el("h2", {}, "By the rules"), el("ul", { class: "plain" }, (s.sites || []).map(line)),
    state.viewer ? "" : [el("label", { for: "site" }, "Another site"), el("div", { class: "pair" }, name, way)],
    saving(s.policy, () => [...all, added]),
    part("Refused by you", s.denied || [], (d) => el("li", {}, el("a", { href: `#card=${encodeURIComponent(d.card)}` }, shown(d.site)),
      el("div", { class: "soft" }, "Cell ", shown(d.cell), `; it may ask again ${left(d.until)}.`))));
}
