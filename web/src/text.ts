// Makes untrusted text safe to display. Nothing here creates HTML.
//
// Characters without a glyph (controls, bidi marks, zero-width spaces) are written out, so that two
// different texts never look equal.

export type SegmentKind = "plain" | "mark" | "path";

export interface Segment {
  kind: SegmentKind;
  text: string;
  title?: string;
}

export type Lines = "one" | "many";

// The rule of crates/ringwall/src/escape.rs: controls, format characters (all bidi controls and tags among them), line and
// paragraph separators, private use, unassigned and halves of pairs (\p{C} and the two \p{Z}), the default-ignorable code
// points, the braille blank, and every space but U+0020.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\u2800]|(?! )\p{Zs}/gu;

/** How one unseen character is written: the picture of a control, or its number. */
export function picture(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8${number(code)}\u27e9`;
}

function number(code: number): string {
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The same text with every unseen character written out. */
export function visible(text: string, lines: Lines = "one"): string {
  return text.replace(UNSEEN, (found) => (lines === "many" && (found === "\n" || found === "\t") ? found : picture(found)));
}

/** The text in pieces: ordinary text, unseen characters, and the paths to highlight. */
export function segments(text: string, lines: Lines = "one", paths: readonly string[] = []): Segment[] {
  const found: Segment[] = [];
  let from = 0;
  for (const [start, end] of pathRanges(text, paths)) {
    found.push(...marked(text.slice(from, start), lines, "plain"), ...marked(text.slice(start, end), lines, "path"));
    from = end;
  }
  found.push(...marked(text.slice(from), lines, "plain"));
  return found;
}

function marked(text: string, lines: Lines, kind: SegmentKind): Segment[] {
  const found: Segment[] = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    const character = match[0];
    if (lines === "many" && (character === "\n" || character === "\t")) continue;
    if (match.index > from) found.push({ kind, text: text.slice(from, match.index) });
    found.push({ kind: "mark", text: picture(character), title: number(character.codePointAt(0) ?? 0) });
    from = match.index + character.length;
  }
  if (from < text.length) found.push({ kind, text: text.slice(from) });
  return found;
}

/** The ranges in which a command names these paths: the whole path, or its last component if the path does not occur. Never
 * overlapping. */
function pathRanges(text: string, paths: readonly string[]): [number, number][] {
  const found: [number, number][] = [];
  for (const path of paths) {
    if (path.length === 0) continue;
    const last = path.split(/[\\/]/).pop() ?? "";
    const needle = text.includes(path) ? path : last.length > 1 ? last : "";
    for (let at = needle ? text.indexOf(needle) : -1; at >= 0; at = text.indexOf(needle, at + needle.length)) {
      found.push([at, at + needle.length]);
      if (found.length > 500) break;
    }
  }
  found.sort((left, right) => left[0] - right[0] || right[1] - left[1]);
  return found.filter(([start], index) => index === 0 || found.slice(0, index).every(([, end]) => start >= end));
}

/** A size in bytes with a unit. */
export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}
