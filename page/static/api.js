// SPDX-License-Identifier: Apache-2.0
// What the page asks, of approvals only. The cookie of the session is the browser's: no script sees it.

export const origin = document.querySelector('meta[name="api"]').content;

/** Failed is a refusal: a code of internal/wire/codes.go, a reason and what to do next, both for the person. */
export class Failed extends Error {
  constructor(code, reason, next) {
    super(reason);
    Object.assign(this, { code, reason, next });
  }
}

const away = () => new Failed("unavailable", "Doorward cannot be reached.", "Look at your connection, then try again.");

/** ask posts one verb and returns its answer. */
export async function ask(verb, body = {}) {
  let answer;
  let value;
  try {
    answer = await fetch(`${origin}/v1/${verb}`, {
      method: "POST", mode: "cors", credentials: "include", redirect: "error", cache: "no-store", referrerPolicy: "no-referrer",
      headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    value = await answer.json();
  } catch {
    throw away();
  }
  if (!answer.ok) throw new Failed(value.code || "internal", value.reason || "Doorward failed.", value.next);
  return value;
}

/** pages asks a list to its end, or to a bound that no person reads beyond. */
export async function pages(verb, field, most = 500) {
  const all = [];
  let after;
  do {
    const page = await ask(verb, { after });
    all.push(...(page[field] || []));
    after = page.next;
  } while (after && all.length < most);
  return { all: all.slice(0, most), more: Boolean(after) || all.length > most };
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
