// SPDX-License-Identifier: Apache-2.0
// The views on which nothing waits. What they do needs a session alone, since it only narrows.

import { ask, pages } from "/api.js";
import { route, signedIn } from "/app.js";
import { entry } from "/cardview.js";
import { act, list, say, show, state } from "/frame.js";
import { bytes } from "/verify.js";
import { button, el, heading, left, shown, when } from "/view.js";

export async function grants(mine) {
  const { all } = await pages("grants", "grants");
  if (mine !== state.turn) return;
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

export async function sessions(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== state.turn) return;
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

export async function past(mine) {
  const r = await ask("history", { op: "list", limit: 100 });
  if (mine !== state.turn) return;
  signedIn();
  const entries = (r.lines || []).map((l) => JSON.parse(new TextDecoder().decode(bytes(l)))).reverse();
  show("Past", heading("Past"), el("p", { class: "soft" }, "The newest entries of the record. Here they are as they came; doorward audit verify, on your machine, checks them."),
    list(entries, entry, "Nothing is on record yet."));
}

function told(report) {
  say((report.lines || []).length ? shown(report.lines.join("; ")) : "Done.");
}

export async function stop(mine) {
  const { all } = await pages("session", "sessions");
  if (mine !== state.turn) return;
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
