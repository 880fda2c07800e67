// An xterm.js terminal, read-only or interactive, under a policy that forbids inline styles.
//
// xterm.js writes its colours into `<style>` elements, which the policy refuses. It accepts a
// document for creating elements; ours returns a stand-in for style elements whose text becomes a
// constructed style sheet. Such a sheet needs no exception in the policy.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal, type ITerminalOptions } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

import { isDark } from "./theme";

const LIGHT = {
  background: "#fbfbfa",
  foreground: "#1f2328",
  cursor: "#fbfbfa",
  selectionBackground: "#99d5cf",
  black: "#24292f",
  red: "#b42318",
  green: "#116329",
  yellow: "#7d4e00",
  blue: "#0550ae",
  magenta: "#8250df",
  cyan: "#1b7c83",
  white: "#6e7781",
  brightBlack: "#57606a",
  brightRed: "#a40e26",
  brightGreen: "#1a7f37",
  brightYellow: "#633c01",
  brightBlue: "#0969da",
  brightMagenta: "#a475f9",
  brightCyan: "#3192aa",
  brightWhite: "#8c959f",
};

const DARK = {
  ...LIGHT,
  background: "#0d1214",
  foreground: "#dbe4e6",
  cursor: "#0d1214",
  selectionBackground: "#1f5f5a",
  black: "#5b6a6d",
  red: "#ff8a80",
  green: "#6fdd8b",
  yellow: "#e3b341",
  blue: "#7cb8ff",
  magenta: "#d2a8ff",
  cyan: "#62d4e3",
  white: "#c9d4d6",
  brightBlack: "#8b9a9d",
  brightRed: "#ffb3ab",
  brightGreen: "#96f0ad",
  brightYellow: "#f2cc60",
  brightBlue: "#a5d0ff",
  brightMagenta: "#e2c5ff",
  brightCyan: "#94e6f0",
  brightWhite: "#ffffff",
};

export interface TerminalView {
  write(text: string): void;
  recolour(): void;
  dispose(): void;
}

/** Receives typed bytes and changes of the size. */
export interface TerminalInput {
  onData(bytes: Uint8Array): void;
  onResize(cols: number, rows: number): void;
}

export interface InteractiveTerminal extends TerminalView {
  show(bytes: Uint8Array): void;
  size(): { cols: number; rows: number };
  focus(): void;
  reset(): void;
}

export function openReadOnly(container: HTMLElement): TerminalView {
  const { terminal, view } = create(container, { disableStdin: true, cursorInactiveStyle: "none" });
  // Read-only: Tab must move past it.
  terminal.attachCustomKeyEventHandler(() => false);
  terminal.textarea?.setAttribute("tabindex", "-1");
  return view;
}

export function openInteractive(container: HTMLElement, input: TerminalInput): InteractiveTerminal {
  const { terminal, view } = create(container, { cursorBlink: true });
  const encoder = new TextEncoder();
  terminal.onData((text) => input.onData(encoder.encode(text)));
  terminal.onBinary((text) => input.onData(Uint8Array.from(text, (one) => one.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => input.onResize(cols, rows));
  return {
    ...view,
    show: (bytes) => terminal.write(bytes),
    size: () => ({ cols: terminal.cols, rows: terminal.rows }),
    focus: () => terminal.focus(),
    reset: () => terminal.reset(),
  };
}

function create(container: HTMLElement, more: ITerminalOptions): { terminal: Terminal; view: TerminalView } {
  const sheets: CSSStyleSheet[] = [];
  const colours = () => {
    const chosen = isDark() ? DARK : LIGHT;
    return more.disableStdin ? chosen : { ...chosen, cursor: chosen.foreground, cursorAccent: chosen.background };
  };
  const terminal = new Terminal({
    ...more,
    documentOverride: documentWithoutStyles(sheets),
    convertEol: false,
    scrollback: 20_000,
    // Output of a box opens no links.
    linkHandler: { activate: () => {} },
    fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    fontSize: 13,
    lineHeight: 1.3,
    theme: colours(),
    allowProposedApi: false,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(container);
  const watcher = new ResizeObserver(() => fit.fit());
  watcher.observe(container);
  fit.fit();
  const view: TerminalView = {
    write: (text) => terminal.write(text),
    recolour: () => {
      terminal.options.theme = colours();
    },
    dispose: () => {
      watcher.disconnect();
      terminal.dispose();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
    },
  };
  return { terminal, view };
}

function documentWithoutStyles(sheets: CSSStyleSheet[]): Document {
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") {
        return (tag: string) => (tag === "style" ? standIn(sheets) : target.createElement(tag));
      }
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

function standIn(sheets: CSSStyleSheet[]): HTMLElement {
  const element = document.createElement("div");
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  return element;
}
