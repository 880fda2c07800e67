// The server's clock. A browser's clock may be minutes off, so remaining times use the server's
// time, which every answer contains.

/** How far the server is ahead of this browser, in milliseconds. */
let ahead = 0;

export function hearTime(answer: Response): void {
  const given = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(given)) return;
  // The time has whole seconds; smaller differences are ignored, so that a countdown does not
  // flicker.
  const found = given + 500 - Date.now();
  if (Math.abs(found - ahead) > 1000) ahead = found;
}

export function serverNow(): number {
  return Date.now() + ahead;
}
