// The server's clock. Moments are the server's, and a browser's own clock may be minutes off: how much time is left is never
// counted by it alone. Every answer says when it was given.

/** How far the server is ahead of this browser, in milliseconds. */
let ahead = 0;

export function hearTime(answer: Response): void {
  const given = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(given)) return;
  // It is told in whole seconds. What differs by less is no news, and would only make a countdown waver.
  const found = given + 500 - Date.now();
  if (Math.abs(found - ahead) > 1000) ahead = found;
}

export function serverNow(): number {
  return Date.now() + ahead;
}
