// SPDX-License-Identifier: Apache-2.0
// What a card has no room for: fetched in parts, held to the digest that sentinel signed, and shown piece by piece, or saved.

import { ask } from "/api.js";
import { act, say, state } from "/frame.js";
import { Refused, base64, bytes, equal, join, sha256 } from "/verify.js";
import { button, el, hex, shown, size, warned, whole } from "/view.js";

const most = 8 << 20; // bytes that are opened here
export const short = 256 << 10; // bytes of a text that can be changed, and is compared, whole
const piece = 64 << 10; // characters shown at a time, in so many lines: the page stays quick whatever is in it
const lines = 1000;

/** fetched gives all bytes of a body, as the signed card of the call has its digest. On anything else it throws Refused. */
export async function fetched(id, b) {
  const sum = bytes(b.sha256);
  const parts = [];
  let have = 0;
  while (have < b.size) {
    const part = bytes((await ask("body", { call: id, sha256: base64(sum), from: have })).data);
    have += part.length;
    if (!part.length || have > b.size) throw other();
    parts.push(part);
  }
  const all = join(...parts);
  if (!equal(await sha256(all), sum)) throw other();
  return all;
}

/** filled has the texts of a card whole that are cut and not long: then they can be changed, and compared. */
export async function filled(id, card) {
  for (const b of card.bodies || []) {
    if (!b.cut || b.binary || b.size > short) continue;
    const text = asText(await fetched(id, b));
    if (text !== null) Object.assign(b, { text, cut: false });
  }
}

function asText(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

const other = () => new Refused("What arrived is not the content of the card. Somebody may have changed it on the way. Nothing of it is shown.");

/** ends says where the next piece of a text ends: behind a line if there is one, and never within a character. */
export function ends(text) {
  let at = 0;
  for (let n = 0; n < lines && at < text.length; n++) {
    const end = text.indexOf("\n", at) + 1 || text.length;
    if (end <= piece) at = end;
    else return at || piece - (/[\ud800-\udbff]/.test(text[piece - 1]) ? 1 : 0);
  }
  return at;
}

/** pieces shows a text, a piece at a time; done is called when its end is seen. */
function pieces(text, done) {
  const box = el("div");
  let from = 0;
  const next = () => {
    const rest = text.slice(from, from + piece + 1);
    const part = rest.slice(0, ends(rest));
    from += part.length;
    const pre = whole(part);
    pre.tabIndex = -1;
    box.append(pre, ...warned(part));
    if (from >= text.length) {
      done();
      return pre;
    }
    const more = button(`Show more (${Math.floor((100 * from) / text.length)}% is shown)`, () => {
      more.remove();
      next().focus();
    });
    box.append(more);
    return pre;
  };
  next();
  return box;
}

const usual = /\.(pdf|png|jpe?g|gif|webp|txt|csv|json|md|ics|vcf|eml|zip|docx|xlsx|pptx|od[tsp])$/i;

/** fileName is a name that no system takes for a path, a device or a program. */
export function fileName(name) {
  const plain = String(name).split(/[/\\]/).pop().replace(/[^\w.-]+/g, "_").replace(/^[.-]+/, "").slice(-80).replace(/\.+$/, "") || "content";
  return usual.test(plain) ? `card-${plain}` : `card-${plain}.bin`;
}

/** save gives the browser a file. Its type is nobody's word: nothing here, and no origin's page, is made of it. */
function save(name, data) {
  const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  el("a", { href: url, download: fileName(name) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** body is one body or file of the call with that id, built when it is opened. seen is called when all of it was. */
export function body(id, b, seen) {
  const d = el("details", {}, el("summary", {}, shown(b.name || "File"), ` (${size(b.size)}`, b.media ? [", ", shown(b.media)] : "", ")"));
  const text = el("div");
  const cut = el("div");
  const read = () => {
    b.seen = true;
    seen?.();
  };
  const all = (use) => act("Fetching it.", async () => {
    const mine = state.turn;
    const data = await fetched(id, b);
    if (mine !== state.turn) return;
    use(data);
  });
  const open = () => all((data) => {
    const whole = asText(data);
    if (whole === null) throw new Refused("Not all of it is text. Save it as a file to look at it.");
    cut.replaceChildren();
    text.replaceChildren(pieces(whole, read));
    say("It is what the card has the digest of.");
    text.querySelector("pre").focus();
  });
  const keep = () => all((data) => {
    save(b.name, data);
    read();
    say("Saved. It may be anything, and nobody has looked into it.");
  });
  d.addEventListener("toggle", () => {
    if (b.binary) text.append(el("p", {}, shown(b.text)));
    else if (b.text) text.append(pieces(b.text, () => b.cut || read()));
    if (b.cut) {
      cut.append(el("p", { class: "warn" }, el("strong", {}, "Not all of it is shown.")), el("div", { class: "actions" },
        b.binary || b.size > most ? "" : button("Open all of it", open), button("Save it as a file", keep)));
    }
    d.append(text, cut, el("p", { class: "soft text" }, `SHA-256 ${hex(b.sha256)}`));
  }, { once: true });
  return d;
}

/** unseen is a line beside the buttons that says what of a card's content was not seen. tell has it look again. */
export function unseen(c) {
  const line = el("p", { class: "warn", role: "status" });
  const tell = () => {
    const rest = (c.bodies || []).filter((b) => b.cut && !b.seen);
    line.hidden = !rest.length;
    line.replaceChildren("You have not seen all that this is about: ", ...rest.flatMap((b, i) => [i ? ", " : "", shown(b.name || "File")]),
      ". It runs as a whole all the same.");
  };
  tell();
  return { line, tell };
}
