// Pictures of every page for the guide, into docs/images: `RINGWALL_URL=… RINGWALL_TOKEN=… node tests/pictures.mjs` against a fresh server,
// as root and with pngquant and a Chinese font (fonts-noto-cjk) installed. It takes some minutes: what the charts show has really happened. All that is seen is the server's.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { api, asks, begin, ended, launch, question, serve, visit } from "./browser.mjs";
import { zip } from "./zip.mjs";

const place = fileURLToPath(new URL("../../docs/images/", import.meta.url));
mkdirSync(place, { recursive: true });

const PLAN = `import json

# Reads a list and says how long it is.
def count(path):
    with open(path) as file:
        return len(json.load(file))

print(count("list.json"))
`;
const SKILL = `---
name: count
description: Counts the lines of a file.
---
# Count

Run \`python3 main.py FILE\`; it prints how many lines the file has.
`;

const REPORT = `<!doctype html><title>Quarterly report</title>
<style>body { font: 17px sans-serif; margin: 48px; color: #1b2422 } td { padding: 6px 24px 6px 0; border-bottom: 1px solid #dfe4e2 }</style>
<h1>Quarterly report</h1><p>Made by the agent from <code>data/sales.csv</code>.</p>
<table><tr><td>North</td><td>1,204</td></tr><tr><td>South</td><td>987</td></tr><tr><td>West</td><td>1,466</td></tr></table>
<p><a href="#more">All figures</a></p>`;
const RISKY = `import os
import sys

# Clears what the last run has left.
def clear(path):
    os.system("rm -rf " + path)

clear(sys.argv[1])
print("done")
`;
const TOOL = `for step in ("fetch", "count", "write"):
    print(f"\\033[32m✓\\033[0m {step}")
print("\\033[33mwarning:\\033[0m two regions have no figures")
`;
/** Of this machine, for as long as the pictures take: what the commands ask for is there. */
const ANN = "/srv/ann";

function host() {
  for (const directory of ["private", "photos", "tools"]) mkdirSync(`${ANN}/${directory}`, { recursive: true, mode: 0o755 });
  writeFileSync(`${ANN}/private/notes.txt`, "Call the bank.\n");
  writeFileSync(`${ANN}/tools/report.py`, TOOL);
  process.on("exit", () => rmSync(ANN, { recursive: true, force: true }));
}

/** A command that asked, and its answer. */
async function answered(command, answer) {
  const id = await asks(command);
  await api("POST", `/api/approvals/${(await question(id)).id}`, answer);
  await ended(id);
  return id;
}

/** An exec that asked for hosts: one that it may reach, and others. */
async function connected() {
  const pages = await serve({ "/v1/report": "x".repeat(48_000), "/v1/status": "ok" });
  const known = pages.host.replace("127.0.0.1", "localhost");
  await api("PUT", "/settings", { net: { mode: "allowlist", allow: [known, "files.example.com", "169.254.169.254"] }, egress: { allowed_hosts: [known] } });
  const get = (...urls) => urls.map((url) => `curl -sS -o /dev/null ${url}`).join("; ");
  const script = `unset no_proxy NO_PROXY; ${get(`http://${known}/v1/status`, `http://${known}/v1/report`, "https://tracker.example.net/", "http://169.254.169.254/", "https://files.example.com/")}; true`;
  const id = await begin(script, { project_id: "report" });
  await ended(id);
  await api("PUT", "/settings", { net: { mode: "none", allow: [] }, egress: { allowed_hosts: [] } });
  await pages.close();
  return id;
}

async function furnish() {
  host();
  await api("POST", "/v1/default/write?user=default", { file_path: "files/report/plan.py", content: PLAN });
  await api("POST", "/v1/default/write?user=default", { file_path: "files/notes.md", content: "# Notes\n\nWhat to do *next*.\n" });
  const form = new FormData();
  form.append("file", new Blob([zip({ "count/SKILL.md": SKILL, "count/main.py": PLAN })]), "count.zip");
  const headers = { authorization: `Bearer ${process.env.RINGWALL_TOKEN}` };
  await fetch(`${process.env.RINGWALL_URL}/v1/skills/default/default/upload`, { method: "POST", headers, body: form });
  for (let minute = 0; minute < 6; minute += 1) {
    const together = [];
    for (let turn = 0; turn < 3 + ((minute * 5) % 7); turn += 1) {
      together.push(await begin(turn % 6 === 5 ? "sleep 2; echo no >&2; exit 2" : "sleep 6; echo hello", { project_id: ["report", "web", "data"][turn % 3] }));
    }
    for (const id of together) await ended(id);
    if (minute < 5) await new Promise((resolve) => setTimeout(resolve, 50_000));
  }
  await api("PUT", "/api/sandbox", { enabled: true });
  await api("POST", "/api/sandbox/paths", { path: "/srv/projects", description: "Projects of the team" });
  await api("POST", "/api/sandbox/paths", { path: "/var/www/html", description: "The web site" });
  await api("POST", "/api/sandbox/paths", { path: "/etc", description: "" });
  await answered(`ls -la ${ANN}/photos`, { approved: false, remember: false, reason: "these are private" });
  await api("PUT", "/settings", { sandbox: { limits: { pids: 128, memory_mb: 512 } } });
  const report = await answered(`python3 ${ANN}/tools/report.py --year 2025`, { approved: true, remember: false, reason: "the yearly report" });
  await answered(`grep bank ${ANN}/private/notes.txt`, { approved: true, remember: false });
  for (const session_id of ["report", "web-shop", "nightly"]) await api("POST", "/api/sessions", { session_id });
  await api("PUT", "/api/sessions/nightly", { confirmation: "auto-reject" });
  const write = `mkdir -p output data; cat > output/report.html <<'END'\n${REPORT}\nEND\nprintf 'region,sold\\nNorth,1204\\n' > data/sales.csv`;
  await api("POST", "/api/sessions/report/exec", { command: write });
  const look = (action, params) => api("POST", "/api/browser/report", { action, params, context: { needs_file_access: true } });
  await look("navigate", { url: "file:///workspace/output/report.html" });
  await look("click", { text: "All figures" });
  await look("click", { text: "Nothing of this name" });
  await look("screenshot", {});
  await begin("echo working; sleep 55", { project_id: "web" });
  return report;
}

const output = await furnish();
const network = await connected();

const pages = {
  overview: "overview",
  execs: "execs",
  exec: `execs/${output}`,
  approvals: "approvals",
  files: "workspaces?user=default&agent=default",
  skills: "workspaces?user=default&agent=default&tab=skills",
  sandbox: "settings/sandbox",
  limits: "settings/limits",
  tokens: "settings/tokens",
  audit: "audit",
  sessions: "sessions",
  terminal: "sessions/report",
  browser: "sessions/report?tab=browser",
  network: `execs/${network}?tab=network`,
};
const PHONE = { size: { width: 390, height: 844 } };
const variants = {
  light: { names: Object.keys(pages), how: {} },
  dark: { names: ["overview", "terminal"], how: { colours: "dark" } },
  phone: { names: ["overview", "execs"], how: PHONE },
  zh: { names: ["sandbox", "exec"], how: { language: "zh-CN" } },
};

const browser = await launch();

async function take(name, path, how, act = async () => {}) {
  const { page, context } = await visit(browser, { path, ...how });
  await page.waitForLoadState("networkidle").catch(() => {});
  await page.locator("h1").first().waitFor();
  await page.waitForTimeout(700);
  await act(page);
  const file = `${place}console-${name}.png`;
  await page.screenshot({ path: file });
  execFileSync("pngquant", ["--force", "--ext", ".png", "--speed", "1", "--strip", "96", file]);
  await context.close();
  for (const id of after.splice(0)) {
    await api("DELETE", `/sandbox/execs/${id}`);
    await ended(id);
  }
}

/** Questions that a picture left open. */
const after = [];

const acts = {
  // The whole page: limits, protections and approvals are below the output.
  exec: async (page) => {
    await page.locator("[data-approvals]").waitFor();
    await page.setViewportSize({ width: 1280, height: await page.evaluate(() => document.documentElement.scrollHeight) });
  },
  files: async (page) => {
    await page.locator(".tree button", { hasText: "report" }).click();
    await page.locator(".tree button", { hasText: "plan.py" }).click();
    await page.locator(".hljs-keyword").first().waitFor();
  },
  skills: async (page) => {
    await page.getByRole("button", { name: "View" }).click();
    await page.locator(".prose h1").waitFor();
  },
  terminal: async (page) => {
    await page.locator("[data-terminal-state=connected]").waitFor();
    await page.keyboard.type("ls; head -n 1 data/sales.csv; stty size; id -un; touch /usr/bin/x\n");
    await page.waitForTimeout(700);
  },
  approvals: async (page) => {
    const id = await asks(`cat ${ANN}/private/notes.txt`);
    await page.locator("[data-answer=allow]:enabled").waitFor();
    await page.keyboard.press("Escape");
    await page.locator("[data-pending]").waitFor();
    await page.mouse.move(0, 0);
    after.push(id);
  },
};

await take("login", "/login", { by: null });
for (const [variant, { names, how }] of Object.entries(variants)) {
  for (const name of names) await take(variant === "light" ? name : `${name}-${variant}`, `/console/${pages[name]}`, how, acts[name]);
}
for (const [name, how] of Object.entries({ dialog: {}, "dialog-zh": { language: "zh-CN" }, "dialog-phone": PHONE })) {
  after.push(await asks(`cat ${ANN}/private/notes.txt | head -n 20 > summary.txt`));
  await take(name, "/console/overview", how, async (page) => {
    await page.locator("[data-answer=remember]:enabled").waitFor();
  });
}
for (const [name, how] of Object.entries({ code: {}, "code-dark": { colours: "dark" } })) {
  const risky = await api("POST", "/api/run", { session_id: "report", code: RISKY, language: "python", wait: false });
  after.push(risky.body.exec_id);
  await take(name, "/console/overview", how, async (page) => {
    await page.locator("[data-answer=allow]:enabled").waitFor();
  });
}
await browser.close();
