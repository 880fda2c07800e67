// Pictures of every page for the guide, into docs/images: `RINGWALL_URL=… RINGWALL_TOKEN=… node tests/pictures.mjs` against a fresh server.

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { api, begin, ended, launch, visit } from "./browser.mjs";
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
/** Nobody here can reach the hosts of the world; this is how a box that did would have been recorded. */
const CONNECTIONS = [
  { host: "api.example.com", port: 443, address: "203.0.113.10:443", outcome: "allowed", reason: "api.example.com", bytes_sent: 1830, bytes_received: 48_211, duration_ms: 312 },
  { host: "files.example.com", port: 443, address: "203.0.113.24:443", outcome: "allowed", reason: "*.example.com", bytes_sent: 912, bytes_received: 7_340_032, duration_ms: 2140 },
  { host: "tracker.example.net", port: 443, address: null, outcome: "refused", reason: "the host is in no list", bytes_sent: 0, bytes_received: 0, duration_ms: 0 },
  { host: "metadata.example.org", port: 80, address: null, outcome: "refused", reason: "the name leads to 169.254.169.254, which no box is connected to", bytes_sent: 0, bytes_received: 0, duration_ms: 4 },
  { host: "old.example.com", port: 443, address: null, outcome: "failed", reason: "nobody answered within 10 s", bytes_sent: 0, bytes_received: 0, duration_ms: 10_000 },
].map((one, index) => ({ at: Date.now() - 60_000 + index * 900, ...one }));

/** A command that asked, and its answer. */
async function answered(command, answer) {
  const { body } = await api("POST", "/api/sandbox/execute", { session_id: "pictures", command, wait: false });
  const open = (await api("GET", "/api/approvals?status=pending")).body.approvals.find((one) => one.exec_id === body.exec_id);
  if (open) await api("POST", `/api/approvals/${open.id}`, answer);
  await ended(body.exec_id);
}

async function furnish() {
  await api("POST", "/v1/default/write?user=default", { file_path: "files/report/plan.py", content: PLAN });
  await api("POST", "/v1/default/write?user=default", { file_path: "files/notes.md", content: "# Notes\n\nWhat to do *next*.\n" });
  const form = new FormData();
  form.append("file", new Blob([zip({ "count/SKILL.md": SKILL, "count/main.py": PLAN })]), "count.zip");
  const headers = { authorization: `Bearer ${process.env.RINGWALL_TOKEN}` };
  await fetch(`${process.env.RINGWALL_URL}/v1/skills/default/default/upload`, { method: "POST", headers, body: form });
  for (let turn = 0; turn < 18; turn += 1) {
    await ended(await begin(turn % 6 === 5 ? "echo no >&2; exit 2" : "echo hello", { project_id: ["report", "web", "data"][turn % 3] }));
  }
  await api("PUT", "/api/sandbox", { enabled: true });
  await api("POST", "/api/sandbox/paths", { path: "/srv/projects", description: "Projects of the team" });
  await api("POST", "/api/sandbox/paths", { path: "/var/www/html", description: "The web site" });
  await api("POST", "/api/sandbox/paths", { path: "/etc", description: "" });
  await answered("ls -la /home/ann/photos", { approved: false, remember: false, reason: "these are private" });
  await answered("python3 /srv/tools/report.py --year 2025", { approved: true, remember: false });
  for (const session_id of ["report", "web-shop", "nightly"]) await api("POST", "/api/sessions", { session_id });
  await api("PUT", "/api/sessions/nightly", { confirmation: "auto-reject" });
  const write = `mkdir -p output data; cat > output/report.html <<'END'\n${REPORT}\nEND\nprintf 'region,sold\\nNorth,1204\\n' > data/sales.csv`;
  await api("POST", "/api/sessions/report/exec", { command: write });
  const look = (action, params) => api("POST", "/api/browser/report", { action, params, context: { needs_file_access: true } });
  await look("navigate", { url: "file:///workspace/output/report.html" });
  await look("click", { text: "All figures" });
  await look("click", { text: "Nothing of this name" });
  await look("screenshot", {});
}

const output = await (async () => {
  await furnish();
  const script =
    "for step in fetch build test; do printf '\\033[32m✓\\033[0m %s\\n' $step; done; printf '\\033[33mwarning:\\033[0m two tests are slow\\n'; uname -s; id -un; cat /etc/shadow; echo '{\"passed\": 41}' > /workspace/artifacts/report.json";
  const id = await begin(script, { project_id: "report" });
  await ended(id);
  await begin("echo working; sleep 600", { project_id: "web" });
  return id;
})();

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
  network: `execs/${output}?tab=network`,
};
const NEW = ["sessions", "terminal", "browser", "network"];
const variants = {
  light: { names: Object.keys(pages), how: {} },
  dark: { names: ["overview", "exec", "sandbox", ...NEW], how: { colours: "dark" } },
  phone: { names: ["overview", "exec", "sandbox", ...NEW], how: { size: { width: 390, height: 844 } } },
  zh: { names: ["sandbox", "sessions", "terminal"], how: { language: "zh-CN" } },
};

const browser = await launch();

async function take(name, path, how, act = async () => {}) {
  const { page, context } = await visit(browser, { path, ...how });
  await page.waitForLoadState("networkidle").catch(() => {});
  await page.locator("h1").first().waitFor();
  await page.waitForTimeout(700);
  await act(page);
  await page.screenshot({ path: `${place}console-${name}.png` });
  await context.close();
}

const acts = {
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
    await page.locator("[data-seat][data-state=connected]").waitFor();
    await page.keyboard.type("ls; head -n 1 data/sales.csv; stty size; id -un; touch /usr/bin/x\n");
    await page.waitForTimeout(700);
  },
  network: async (page) => {
    await page.route("**/network", (route) => route.fulfill({ json: { connections: CONNECTIONS, left_out: 0 } }));
    await page.reload();
    await page.locator("[data-outcome=refused]").first().waitFor();
  },
};

await take("login", "/login", { by: null });
for (const [variant, { names, how }] of Object.entries(variants)) {
  for (const name of names) await take(variant === "light" ? name : `${name}-${variant}`, `/console/${pages[name]}`, how, acts[name]);
}
for (const [name, how] of Object.entries({ dialog: {}, "dialog-zh": { language: "zh-CN" }, "dialog-dark": { colours: "dark" }, "dialog-phone": { size: { width: 390, height: 844 } } })) {
  const command = "cat /home/ann/private/notes.txt | head -n 20 > summary.txt";
  const asked = await api("POST", "/api/sandbox/execute", { session_id: "pictures", command, wait: false });
  await take(name, "/console/overview", how, async (page) => {
    await page.locator("[data-answer=allow]:enabled").waitFor();
  });
  await api("DELETE", `/sandbox/execs/${asked.body.exec_id}`);
  await ended(asked.body.exec_id);
  const risky = await api("POST", "/api/run", { session_id: "report", code: RISKY, language: "python", wait: false });
  await take(name.replace("dialog", "code"), "/console/overview", how, async (page) => {
    await page.locator("[data-answer=allow]:enabled").waitFor();
  });
  await api("DELETE", `/sandbox/execs/${risky.body.exec_id}`);
  await ended(risky.body.exec_id);
}
await browser.close();
