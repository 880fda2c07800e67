// A browser that reports console messages, requests to other origins and policy violations.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Of anything that is waited for, in milliseconds. */
const PATIENCE = 60_000;

export const base = process.env.RINGWALL_URL;
export const token = process.env.RINGWALL_TOKEN;

/** What was wrong in the page that was opened last, for a test that fails before it asks. */
export let lately = [];

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
}

/** A request as a program makes it. */
export async function api(method, path, body, by = token, headers = {}) {
  const response = await fetch(base + path, {
    method,
    headers: { authorization: `Bearer ${by}`, ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, body: text && response.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text };
}

/** An exec of the owner, which goes on when this returns. */
export async function begin(script, more = {}) {
  const body = { project_id: "console", exec: { kind: "shell", command: "bash", args: ["-lc", script] }, ...more };
  const answer = await api("POST", "/sandbox/execs", body, token, { prefer: "respond-async" });
  expect(answer.status === 202, `an exec was not begun: ${JSON.stringify(answer)}`);
  return answer.body.exec_id;
}

/** A command of a session that names a path which nobody has allowed; it waits for a person. */
export async function asks(command, by = token) {
  const answer = await api("POST", "/api/sandbox/execute", { session_id: "console", command, wait: false }, by);
  equal(answer.status, 202, JSON.stringify(answer.body));
  return answer.body.exec_id;
}

/** The question that an exec has asked. */
export async function question(exec) {
  return until(`a question of ${exec}`, async () => (await api("GET", `/api/approvals?exec_id=${exec}`)).body.approvals[0]);
}

/** A directory of this machine that no box has by itself: not below /tmp. It is gone when the tests are. */
let outside = null;
let count = 0;
export function directory(files = {}) {
  if (!outside) {
    outside = mkdtempSync(join(process.getuid() === 0 ? "/srv" : homedir(), "rw-console-"));
    chmodSync(outside, 0o755);
    process.on("exit", () => rmSync(outside, { recursive: true, force: true }));
  }
  count += 1;
  const place = join(outside, String(count));
  mkdirSync(place);
  chmodSync(place, 0o755);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(place, name), text, { mode: 0o644 });
  return place;
}

/** Pages on this machine's loopback, by their paths. */
export async function serve(pages) {
  const server = createServer((request, response) => {
    const page = pages[request.url];
    response.writeHead(page === undefined ? 404 : 200, { "content-type": "text/html; charset=utf-8" }).end(page ?? "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { host: `127.0.0.1:${server.address().port}`, close: () => new Promise((resolve) => server.close(resolve)) };
}

export async function ended(id) {
  return until(`the end of ${id}`, async () => {
    const { body } = await api("GET", `/sandbox/execs/${id}`);
    return ["QUEUED", "RUNNING", "AWAITING_APPROVAL"].includes(body.status) ? null : body;
  });
}

/** Asks again until there is something, for as long as anything may take. */
export async function until(words, ask) {
  const begun = Date.now();
  for (;;) {
    const found = await ask();
    if (found) return found;
    expect(Date.now() - begun < PATIENCE, `waited in vain for ${words}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

export function expect(condition, words) {
  if (!condition) throw new Error(words);
}

export function equal(found, wanted, words = "") {
  expect(found === wanted, `${words}: ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
}

/** Opens a page in a browser of its own, logged in or not; `done` says whether anything was wrong meanwhile. */
export async function visit(browser, { path = "/", by = token, language = "en-US", colours = "light", size, may = [], ahead = 0, before = async () => {} } = {}) {
  const context = await browser.newContext({
    viewport: size ?? { width: 1280, height: 860 },
    locale: language,
    colorScheme: colours,
    serviceWorkers: "block",
    acceptDownloads: true,
  });
  const wrong = (lately = []);
  // Allowed difference of the browser's clock in ms.
  if (ahead) await context.clock.install({ time: Date.now() + ahead });
  const page = await context.newPage();
  await before(page);
  page.setDefaultTimeout(PATIENCE);
  page.on("console", (message) => {
    // The browser also reports refusals that a test expects; they are recognised by their address.
    const is = (beginning, text) => message.text().startsWith(beginning) && [...may, "/api/me"].some((part) => text.includes(part));
    const known = is("Failed to load resource", message.location().url) || is("WebSocket connection to", message.text());
    if (message.type() === "error" && !known) {
      wrong.push(`console: ${message.text()} ${message.location().url}`);
    }
  });
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(base) && !url.startsWith("data:") && !url.startsWith("blob:")) wrong.push(`asked elsewhere: ${url}`);
  });
  // A dialog would be opened by text that became script. The page's own dialog, about unsaved
  // changes, appears in no test.
  page.on("dialog", (dialog) => {
    wrong.push(`a dialog was opened: ${dialog.type()} ${dialog.message()}`);
    void dialog.dismiss();
  });
  if (by) {
    const answer = await context.request.post(`${base}/api/login`, { data: { token: by }, headers: { origin: base } });
    equal(answer.status(), 200, "login");
  }
  await page.goto(base + path);
  return {
    page,
    context,
    async done() {
      await context.close();
      expect(wrong.length === 0, wrong.join("\n"));
    },
  };
}
