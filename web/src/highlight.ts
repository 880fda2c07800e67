// Syntax colours as elements: the highlighter returns a tree, not HTML. Code in an unknown language
// stays plain.

import bash from "highlight.js/lib/languages/bash";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import { h, type VNodeChild } from "vue";

import { visible } from "./text";

const known = { bash, css, diff, go, ini, javascript, json, markdown, python, rust, sql, typescript, xml, yaml };
const highlighter = createLowlight(known);
highlighter.registerAlias({ bash: ["sh", "shell", "console"], ini: ["toml"], xml: ["html", "svg", "vue"] });

const EXTENSIONS: Record<string, string> = {
  sh: "bash", bash: "bash", css: "css", diff: "diff", patch: "diff", go: "go", toml: "ini", ini: "ini", cfg: "ini",
  js: "javascript", mjs: "javascript", cjs: "javascript", json: "json", md: "markdown", py: "python", rs: "rust",
  sql: "sql", ts: "typescript", tsx: "typescript", html: "xml", xml: "xml", svg: "xml", vue: "xml", yml: "yaml",
  yaml: "yaml",
};

/** Longer text is shown plain, because highlighting it would block the page. */
const MAX_LENGTH = 200_000;

export function languageOf(path: string): string {
  return EXTENSIONS[path.split(".").pop()?.toLowerCase() ?? ""] ?? "";
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Node[];
}

export function coloured(text: string, language: string): VNodeChild[] {
  const shown = visible(text, "many");
  if (shown.length > MAX_LENGTH || !highlighter.registered(language)) return [shown];
  return nodes((highlighter.highlight(language, shown) as Node).children ?? []);
}

function nodes(list: Node[]): VNodeChild[] {
  return list.map((node) => {
    if (node.type === "text") return node.value ?? "";
    return h("span", { class: node.properties?.className as string[] | undefined }, nodes(node.children ?? []));
  });
}
