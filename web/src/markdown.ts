// Renders untrusted Markdown as elements: the parser's tokens become Vue nodes, never HTML.
//
// HTML in the text stays text. Links lead to http and https only, open in a new tab and send no
// referrer. Images are not loaded; their description and address are shown.

import MarkdownIt from "markdown-it";
import type { Token } from "markdown-it";
import { h, type VNode, type VNodeChild } from "vue";

import { coloured } from "./highlight";
import { visible } from "./text";

const parser = new MarkdownIt("default", { html: false, linkify: false, typographer: false });

const TAGS = new Set(
  "p h1 h2 h3 h4 h5 h6 ul ol li blockquote strong em s table thead tbody tr th td".split(" "),
);

interface Matter {
  front: string | null;
  rest: string;
}

/** The YAML between two lines of dashes at the beginning, and the text after it. */
export function cut(source: string): Matter {
  const match = /^---\r?\n([\s\S]*?)\r?\n---\r?\n?/.exec(source);
  return match ? { front: match[1] ?? "", rest: source.slice(match[0].length) } : { front: null, rest: source };
}

export function render(source: string): VNodeChild[] {
  return nest(parser.parse(source, {}));
}

/** Tokens come flat, as openings and closings. */
function nest(tokens: Token[]): VNodeChild[] {
  const stack: { token: Token | null; children: VNodeChild[] }[] = [{ token: null, children: [] }];
  const top = () => stack[stack.length - 1]!;
  for (const token of tokens) {
    if (token.nesting === 1) {
      stack.push({ token, children: [] });
    } else if (token.nesting === -1) {
      const closed = stack.length > 1 ? stack.pop()! : null;
      if (closed?.token) top().children.push(element(closed.token, closed.children));
    } else {
      top().children.push(...leaf(token));
    }
  }
  return stack[0]!.children;
}

function element(token: Token, children: VNodeChild[]): VNodeChild {
  if (token.hidden) return children;
  if (token.type === "link_open") return link(token.attrGet("href") ?? "", children);
  return TAGS.has(token.tag) ? h(token.tag, children) : h("span", children);
}

function link(address: string, children: VNodeChild[]): VNode {
  if (!/^https?:\/\//i.test(address)) return h("span", { title: visible(address) }, children);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: visible(address) }, children);
}

function leaf(token: Token): VNodeChild[] {
  switch (token.type) {
    case "inline":
      return nest(token.children ?? []);
    case "text":
      return [visible(token.content)];
    case "code_inline":
      return [h("code", visible(token.content))];
    case "fence":
    case "code_block":
      return [h("pre", { class: "code" }, h("code", coloured(token.content, token.info.trim().split(/\s+/)[0] ?? "")))];
    case "softbreak":
      return ["\n"];
    case "hardbreak":
      return [h("br")];
    case "hr":
      return [h("hr")];
    case "image":
      return [h("span", { class: "mark" }, visible(`[${token.content}] ${token.attrGet("src") ?? ""}`))];
    default:
      return [visible(token.content)];
  }
}
