// SPDX-License-Identifier: Apache-2.0
// What is shown and decided here is text that sentinel signed. Approvals carries everything and may be a stranger's: nothing that it
// sends is shown, or goes into a challenge, before the signature fits the key that came with the link.

const utf8 = new TextEncoder();
const tag = (name) => utf8.encode(`doorward ${name} 1\0`); // as in internal/wire/web.go

/** Refused says that something is not what it claims to be. Its text is for the person. */
export class Refused extends Error {}

/** base64 as Go's encoding/json writes []byte; url is the form without padding that links and passkeys have. */
export function bytes(text) {
  const raw = atob(String(text).replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(raw, (c) => c.charCodeAt(0));
}
export function base64(data) {
  let raw = "";
  for (const b of new Uint8Array(data)) raw += String.fromCharCode(b);
  return btoa(raw);
}
export function base64url(data) {
  return base64(data).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function join(...parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

export async function sha256(data) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/** equal compares bytes that are no secrets. */
export function equal(a, b) {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

/** answerKey reads sentinel's public key, the card key: a point of P-256, 65 bytes uncompressed, as base64url. */
export async function answerKey(text) {
  const raw = bytes(text);
  if (raw.length !== 65 || raw[0] !== 4) throw new Refused("The card key in this link is no key.");
  return crypto.subtle.importKey("raw", raw, { name: "ECDSA", namedCurve: "P-256" }, false, ["verify"]);
}

/**
 * genuine holds an answer to wire.Answered: that sentinel gave it, to this verb with this nonce and body, as an answer or as a
 * refusal. On anything else it throws Refused.
 */
export async function genuine(key, verb, nonce, body, refused, answer, signature) {
  const signed = join(tag("answer"), utf8.encode(`${verb}\0`), nonce, await sha256(body), Uint8Array.of(refused ? 1 : 0), answer);
  if (!signature || !(await crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, key, bytes(signature), signed))) {
    throw new Refused("What arrived is not what Doorward's core signed. Somebody may have changed it on the way. Nothing of it is shown.");
  }
}

/** offered holds an offer (wire.Offer) to the card that was asked for and to this page. On anything else there is nothing to sign. */
export function offered(offer, id, host) {
  if (offer.card?.id !== id) throw wrong("it is another card than the one you opened");
  if (offer.edits) throw wrong("it would change a call, and you have changed none");
  return whole(offer, host);
}

/** changed holds the offer of what became of old, an offer too, to old and to this page. */
export function changed(offer, old, host) {
  if (offer?.edits?.call !== old.card.id || offer.edits.hash !== old.card.hash) throw wrong("it changes another call than the one you opened");
  for (const k of ["kind", "connector", "method", "account", "cell", "session"]) {
    if (offer.card[k] !== old.card[k]) throw wrong("it is of another kind than the call you changed");
  }
  if (offer.card.state !== "parked") throw wrong("there is nothing to decide");
  return whole(offer, host);
}

const wrong = (what) => new Refused(`The signed card does not fit: ${what}. Nothing of it is shown.`);

function whole(offer, host) {
  if (offer.rp !== host) throw wrong("it is for another page");
  if (offer.card.state === "parked" && !offer.viewer && !(size(offer.nonce) === 32 && size(offer.card.hash) === 32 && Number.isSafeInteger(offer.expires) &&
    Array.isArray(offer.allow))) throw wrong("a part of it is missing");
  return offer;
}

const size = (base64text) => (typeof base64text === "string" ? bytes(base64text).length : 0);

/** decision is the exact text (wire.Decision) of what a person decided of an offer, as bytes: they are sent as they are signed. */
export function decision(offer, { approve, grant, stop, why }) {
  return utf8.encode(JSON.stringify({
    hash: offer.card.hash, approve: Boolean(approve), grant: grant || undefined, stop: stop || undefined, why: why || undefined,
    edits: offer.edits?.hash,
  }));
}

/** challenge is wire.Challenge of items: {nonce, decision, expires}, two times bytes and seconds. */
export async function challenge(items) {
  const big = (n, size) => {
    const v = new DataView(new ArrayBuffer(size));
    if (size === 4) v.setUint32(0, n);
    else v.setBigUint64(0, BigInt(n));
    return new Uint8Array(v.buffer);
  };
  const parts = [tag("challenge"), big(items.length, 4)];
  for (const i of items) parts.push(i.nonce, await sha256(i.decision), big(i.expires, 8));
  return sha256(join(...parts));
}

/** loginChallenge is wire.LoginChallenge: made here, since one that was sent could be the challenge of a decision. */
export function loginChallenge(nonce) {
  return sha256(join(tag("login"), nonce));
}

/** enrolMAC is approver.EnrolMAC. */
export async function enrolMAC(code, credential) {
  const key = await crypto.subtle.importKey("raw", code, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, join(tag("enrol"), credential)));
}
