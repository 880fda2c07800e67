// The server's clock. A browser's clock may be minutes off, so remaining times use the server's
// time, which every answer contains.

/** Offset of the server's clock from this browser's clock, in milliseconds. */
let ahead = 0;

export function noteServerTime(response: Response): void {
  const given = Date.parse(response.headers.get("date") ?? "");
  if (Number.isNaN(given)) return;
  // The header has whole seconds. Smaller differences are ignored, so that a countdown does not
  // flicker.
  const found = given + 500 - Date.now();
  if (Math.abs(found - ahead) > 1000) ahead = found;
}

export function serverNow(): number {
  return Date.now() + ahead;
}
