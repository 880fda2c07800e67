// Filters output of a box for a terminal: colours and line feeds pass, everything else is shown as
// text.
//
// Escape sequences can move the cursor, erase text, rename the window and query the terminal, so a
// program could hide what it printed. These pass: printable text, tab, line feed, carriage return,
// erasing to the end of the line (progress bars), and colours. 24-bit colours are rounded to the
// nearest of 256, because only those work without a style attribute, which the page's policy
// forbids.

import { visible } from "./text";

const ESCAPE = "\u001b";
/** Longer text after an escape character is not treated as a sequence. */
const MAX_SEQUENCE = 64;

/** Filters output that arrives in pieces. A sequence may be split between two pieces. */
export class OutputFilter {
  private held = "";

  push(piece: string): string {
    const text = this.held + piece;
    this.held = "";
    let out = "";
    let at = 0;
    while (at < text.length) {
      const escape = text.indexOf(ESCAPE, at);
      if (escape < 0) return out + plain(text.slice(at));
      out += plain(text.slice(at, escape));
      const rest = text.slice(escape, escape + MAX_SEQUENCE);
      const sequence = /^\u001b\[([0-9;:]*)([mK])/.exec(rest);
      if (sequence) {
        out += sequence[2] === "m" ? colour(sequence[1]) : `${ESCAPE}[K`;
        at = escape + sequence[0].length;
      } else if (rest.length < MAX_SEQUENCE && /^\u001b(\[[0-9;:]*)?$/.test(rest)) {
        this.held = rest;
        return out;
      } else {
        out += "\u241b";
        at = escape + 1;
      }
    }
    return out;
  }

  /** Returns the rest, if the output ended in the middle of a sequence. */
  end(): string {
    const rest = this.held;
    this.held = "";
    return visible(rest, "many");
  }
}

/** Line feeds become CR LF. A lone carriage return stays, because progress bars use it. */
function plain(text: string): string {
  return text
    .split(/(\r\n|\n|\r)/)
    .map((part) => (part === "\r\n" || part === "\n" ? "\r\n" : part === "\r" ? part : visible(part, "many")))
    .join("");
}

function colour(parameters: string): string {
  const codes = parameters.replaceAll(":", ";").split(";");
  const kept: string[] = [];
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index];
    if ((code === "38" || code === "48") && codes[index + 1] === "2") {
      const [red, green, blue] = codes.slice(index + 2, index + 5).map((text) => Number(text) || 0);
      kept.push(code, "5", String(nearest(red ?? 0, green ?? 0, blue ?? 0)));
      index += 4;
    } else if (code === "58") {
      // The colour of an underline needs a style attribute.
      index += codes[index + 1] === "2" ? 4 : 2;
    } else {
      kept.push(code ?? "");
    }
  }
  return `${ESCAPE}[${kept.join(";")}m`;
}

/** The nearest colour of the 6×6×6 cube. */
function nearest(red: number, green: number, blue: number): number {
  const step = (value: number) => Math.round((Math.min(Math.max(value, 0), 255) / 255) * 5);
  return 16 + 36 * step(red) + 6 * step(green) + step(blue);
}
