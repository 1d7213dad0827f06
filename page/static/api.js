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

/** watch calls back with each news until the returned function is called. */
export function watch(news) {
  const source = new EventSource(`${origin}/v1/events?after=-1`, { withCredentials: true });
  source.onmessage = (m) => {
    try {
      news(JSON.parse(m.data).events || []);
    } catch { /* what is no JSON is no news */ }
  };
  return () => source.close();
}
