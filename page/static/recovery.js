// SPDX-License-Identifier: Apache-2.0
// A recovery code: typed here, it makes a new passkey in the place of one that was lost. It stays in this browser, as an invitation's
// code does: what is sent is made of it, and makes none.

import { route, signIn } from "/app.js";
import { kept, noKey } from "/cardkey.js";
import { act, failed, leave, show, state } from "/frame.js";
import { Refused, base64url, equal, join, sha256 } from "/verify.js";
import { button, el, heading } from "/view.js";

const utf8 = new TextEncoder();
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const size = 17; // bytes, before the 3 of the checksum: as in internal/approver/recovery.go

/** parse reads a code as it was typed: approver.ParseRecovery. On anything else it throws Refused. */
export async function parse(text) {
  const letters = text.toUpperCase().replace(/[\s-]/g, "").replaceAll("O", "0").replace(/[IL]/g, "1");
  const values = Array.from(letters, (c) => alphabet.indexOf(c));
  const odd = values.indexOf(-1);
  if (odd >= 0) throw new Refused(`No recovery code has the letter “${Array.from(letters)[odd]}”. Nothing was sent.`);
  if (values.length !== 32) throw new Refused(`A recovery code has 32 letters; these are ${values.length}. Nothing was sent.`);
  const all = new Uint8Array(20);
  values.forEach((v, i) => { // 5 bits each
    for (let b = 0; b < 5; b++) if (v & (16 >> b)) all[(i * 5 + b) >> 3] |= 128 >> ((i * 5 + b) & 7);
  });
  const code = all.slice(0, size);
  const check = await sha256(join(utf8.encode("doorward recovery check 1\0"), code));
  if (!equal(check.slice(0, 3), all.slice(size))) throw new Refused("A letter of this code is wrong. Compare it with the print, group by group. Nothing was sent.");
  return code;
}

/** idOf is approver.RecoveryID. */
export const idOf = async (code) => `recovery-${base64url(await sha256(join(utf8.encode("doorward recovery 1\0"), code)))}`;

/** recovery asks for a code. Without a card key nobody could tell who answers. */
export function recovery() {
  leave();
  if (!kept()) return failed(noKey());
  const typed = el("input", { id: "code", type: "text", autocomplete: "off", autocapitalize: "characters", autocorrect: "off", spellcheck: "false", maxlength: "200" });
  const next = () => act("", async () => {
    const code = await parse(typed.value);
    state.invitation = { id: await idOf(code), code: base64url(code), key: kept(), again: true };
    await route();
  });
  show("Recovery code", heading("Use a recovery code"),
    el("p", {}, "You make a new passkey on this device. The one you had does not count any more then, nor does the code."),
    el("form", { submit: (e) => { e.preventDefault(); next(); } }, el("label", { for: "code" }, "The code, as it was printed"), typed,
      el("div", { class: "actions" }, el("button", { type: "submit", class: "main" }, "Go on"), button("Back", signIn))));
}
