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
/** A sequence that is longer than this is none. */
const LONGEST = 64;

/** Takes output in pieces as it comes; a sequence may be cut anywhere. */
export class Inert {
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
      const rest = text.slice(escape, escape + LONGEST);
      const sequence = /^\u001b\[([0-9;:]*)([mK])/.exec(rest);
      if (sequence) {
        out += sequence[2] === "m" ? colour(sequence[1]) : `${ESCAPE}[K`;
        at = escape + sequence[0].length;
      } else if (rest.length < LONGEST && /^\u001b(\[[0-9;:]*)?$/.test(rest)) {
        this.held = rest;
        return out;
      } else {
        out += "\u241b";
        at = escape + 1;
      }
    }
    return out;
  }

  /** Whatever was waited for will not come. */
  end(): string {
    const rest = this.held;
    this.held = "";
    return visible(rest, "many");
  }
}

/** Line feeds become whole line ends; a lone carriage return stays, it is what progress bars are made of. */
function plain(text: string): string {
  return text
    .split(/(\r\n|\n|\r)/)
    .map((part) => (part === "\r\n" || part === "\n" ? "\r\n" : part === "\r" ? part : visible(part, "many")))
    .join("");
}

function colour(parameters: string): string {
  const words = parameters.replaceAll(":", ";").split(";");
  const kept: string[] = [];
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index];
    if ((word === "38" || word === "48") && words[index + 1] === "2") {
      const [red, green, blue] = words.slice(index + 2, index + 5).map((text) => Number(text) || 0);
      kept.push(word, "5", String(nearest(red ?? 0, green ?? 0, blue ?? 0)));
      index += 4;
    } else if (word === "58") {
      // The colour of an underline needs a style attribute.
      index += words[index + 1] === "2" ? 4 : 2;
    } else {
      kept.push(word ?? "");
    }
  }
  return `${ESCAPE}[${kept.join(";")}m`;
}

/** In the cube of six steps a side. */
function nearest(red: number, green: number, blue: number): number {
  const step = (value: number) => Math.round((Math.min(Math.max(value, 0), 255) / 255) * 5);
  return 16 + 36 * step(red) + 6 * step(green) + step(blue);
}
