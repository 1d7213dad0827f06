// SPDX-License-Identifier: Apache-2.0
// What the page asks, of approvals only. The cookie of the session is the browser's: no script sees it.

import { key } from "/cardkey.js";
import { base64, genuine } from "/verify.js";

export const origin = document.querySelector('meta[name="api"]').content;

/** Failed is a refusal: a code of internal/wire/codes.go, a reason and what to do next, both for the person. */
export class Failed extends Error {
  constructor(code, reason, next) {
    super(reason);
    Object.assign(this, { code, reason, next });
  }
}

const away = () => new Failed("unavailable", "Doorward cannot be reached.", "Look at your connection, then try again.");

const utf8 = new TextEncoder();
const patience = 60 * 1000; // milliseconds; what comes later was true once

/** unsigned is a refusal that sentinel did not make. Its text may be anybody's, so only the status is gone by. */
function unsigned(status) {
  if (status === 401) return new Failed("no_session", "You are not signed in.", "");
  if (status === 413) return new Failed("too_large", "That is too much at once.", "Take less of it.");
  if (status === 429) return new Failed("too_many", "Doorward is asked too much at once.", "Try again in a moment.");
  if (status === 503) return away();
  return new Failed("unsigned", "This was refused on the way: Doorward's core did not sign the answer. It may have been done or not.",
    "Look again. If it stays so, look on your machine: doorward pending");
}

/**
 * ask posts one verb and returns its answer, which is sentinel's: signed with the key that this browser keeps, over this question. What
 * sentinel refuses is thrown as Failed; what nobody signed is not shown.
 */
export async function ask(verb, body = {}, from = key()) {
  const by = await from;
  const nonce = crypto.getRandomValues(new Uint8Array(32));
  const sent = utf8.encode(JSON.stringify(body));
  let answer;
  let text;
  try {
    answer = await fetch(`${origin}/v1/${verb}`, {
      method: "POST", mode: "cors", credentials: "include", redirect: "error", cache: "no-store", referrerPolicy: "no-referrer",
      headers: { "Content-Type": "application/json", "Doorward-Nonce": base64(nonce) }, body: sent, signal: AbortSignal.timeout(patience),
    });
    text = new Uint8Array(await answer.arrayBuffer());
  } catch {
    throw away();
  }
  const signature = answer.headers.get("Doorward-Signature");
  if (!answer.ok && !signature) throw unsigned(answer.status);
  await genuine(by, verb, nonce, sent, !answer.ok, text, signature);
  const value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text));
  if (!answer.ok) throw new Failed(value.code, value.reason, value.next);
  return value;
}

/** pages asks a list to its end, or to a bound that no person reads beyond. */
export async function pages(verb, field, most = 500) {
  const all = [];
  let after;
  let first;
  do {
    const page = await ask(verb, most < 500 ? { after, limit: most - all.length } : { after });
    first ||= page;
    all.push(...(page[field] || []));
    after = page.next;
  } while (after && all.length < most);
  return { first, all: all.slice(0, most), more: Boolean(after) || all.length > most };
}

const backoff = { first: 1000, most: 60000 }; // milliseconds

/** watch tells of what happens until the returned function is called: news has the events, and heard is called each time that the
 * stream begins, since of what came before it only the lists know. over is called where the session has ended. A browser asks again
 * by itself where the line breaks; for good it gives up after an answer other than 200, and then this asks, less and less often. */
export function watch(news, heard, over) {
  let source;
  let timer;
  let after = -1;
  let wait = backoff.first;
  let ended = false;
  const open = () => {
    source = new EventSource(`${origin}/v1/events?after=${after}`, { withCredentials: true });
    source.onopen = () => {
      wait = backoff.first;
      heard();
    };
    source.onmessage = (m) => {
      let value;
      try {
        value = JSON.parse(m.data);
      } catch {
        return; // what is no JSON is no news
      }
      if (Number.isSafeInteger(value.last)) after = value.last;
      news(value.events || []);
    };
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(again, wait * (0.5 + Math.random() / 2));
      wait = Math.min(2 * wait, backoff.most);
    };
  };
  const again = async () => {
    try {
      await ask("session"); // a stream does not say why it was refused
    } catch (e) {
      if (!ended && e.code === "no_session") return over();
    }
    if (!ended) open();
  };
  open();
  return () => {
    ended = true;
    clearTimeout(timer);
    source.close();
  };
}
