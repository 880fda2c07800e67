import { readFileSync } from "node:fs";

import { api, asks, begin, directory, ended, equal, expect, question, until, visit } from "./browser.mjs";

const WAYS = ["Overview", "Execs", "Approvals", "Sessions", "Workspaces", "Settings", "Audit"];
const WAYS_ZH = ["概览", "执行记录", "审批", "会话", "工作区", "设置", "审计"];

export const tests = {
  async "every page is there in both languages, and the choice is kept"(browser) {
    const { page, done } = await visit(browser, { path: "/" });
    for (const name of WAYS) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { level: 1, name }).waitFor();
    }
    await page.locator("select[name=language]").selectOption("zh");
    for (const name of WAYS_ZH) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { level: 1, name }).waitFor();
    }
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "审计" }).waitFor();
    equal(await page.evaluate(() => document.documentElement.lang), "zh-CN", "the page's language");
    await done();
  },

  async "a Chinese browser is greeted in Chinese, and dark follows the system until chosen"(browser) {
    const { page, done } = await visit(browser, { path: "/", language: "zh-CN", colours: "dark" });
    await page.getByRole("heading", { level: 1, name: "概览" }).waitFor();
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    equal(await theme(), "dark", "the system's colours");
    await page.locator("select[name=theme]").selectOption("light");
    equal(await theme(), "light", "the chosen colours");
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "概览" }).waitFor();
    equal(await theme(), "light", "the chosen colours, after a reload");
    equal(await page.locator("select[name=theme]").inputValue(), "light", "the choice, after a reload");
    await done();
  },

  async "nothing is wider than a phone"(browser) {
    const id = await begin("echo hello");
    await ended(id);
    const { page, done } = await visit(browser, { path: "/", size: { width: 390, height: 844 } });
    for (const path of ["overview", "execs", `execs/${id}`, "approvals", "sessions", "sessions/phone", "workspaces", "settings/sandbox", "settings/limits", "settings/tokens", "audit"]) {
      await page.goto(new URL(`/console/${path}`, page.url()).href);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForLoadState("networkidle");
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(width <= 390, `${path} is ${width} wide`);
    }
    await done();
    const login = await visit(browser, { path: "/login", by: null, size: { width: 390, height: 844 } });
    await login.page.getByLabel("Token").waitFor();
    const width = await login.page.evaluate(() => document.documentElement.scrollWidth);
    expect(width <= 390, `the login is ${width} wide`);
    await login.done();
  },

  async "a keyboard is enough"(browser) {
    await api("PUT", "/api/sandbox", { enabled: true });
    const { page, done } = await visit(browser, { path: "/console/execs" });
    await page.getByRole("heading", { name: "Execs" }).waitFor();
    await page.keyboard.press("Tab");
    equal(await page.evaluate(() => document.activeElement.className), "skip", "the first stop");
    const seen = () => page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== "none");
    expect(await seen(), "the focus is not seen");
    await page.keyboard.press("Enter");
    equal(await page.evaluate(() => document.activeElement.id), "content", "where the skip link leads");
    // Reaches a setting and submits its form with the keyboard only.
    const reach = async (what, is) => {
      for (let step = 0; step < 60; step += 1) {
        if (await page.evaluate(is)) return expect(await seen(), `the focus is not seen at ${what}`);
        await page.keyboard.press("Tab");
      }
      expect(false, `the keyboard does not come to ${what}`);
    };
    await page.evaluate(() => document.activeElement.blur());
    await reach("Settings", () => document.activeElement.getAttribute("href") === "/console/settings");
    await page.keyboard.press("Enter");
    await page.locator("input[name=path]").waitFor();
    equal(await page.evaluate(() => document.activeElement.id), "content", "where a link leads");
    const place = directory();
    await reach("the path", () => document.activeElement.name === "path");
    await page.keyboard.type(place);
    await page.keyboard.press("Tab");
    await page.keyboard.type("typed");
    await page.keyboard.press("Enter");
    const row = page.locator("[data-path]", { hasText: place });
    await row.getByText("typed").waitFor();
    const label = JSON.stringify(`Allow ${place}`);
    await reach("its switch", `document.activeElement.getAttribute("aria-label") === ${label}`);
    await page.keyboard.press("Space");
    await until("the switch", async () => (await row.getByRole("switch").getAttribute("aria-checked")) === "false");
    await until("the button", () => row.getByRole("button", { name: "Delete" }).isEnabled());
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await row.waitFor({ state: "detached" });
    await done();
  },

  async "the overview counts what ends and what goes on, and says that path control is off"(browser) {
    const figure = (page, name) => page.locator(`[data-figure=${name}] b`).textContent();
    const failed = async () => (await api("GET", "/api/overview")).body.minutes.reduce((sum, minute) => sum + minute.went_wrong, 0);
    const before = await failed();
    const wrong = await begin("exit 3");
    await ended(wrong);
    // One exec runs, one is queued, one waits for approval.
    await api("PUT", "/settings", { sandbox: { max_concurrent_execs_per_user: 1 } });
    const going = await begin("sleep 1000");
    const queued = await begin("true");
    const risky = await api("POST", "/api/run", { session_id: "overview", code: "import os\nos.system('ls')\n", language: "python", wait: false });
    await api("PUT", "/api/sandbox", { enabled: false });
    const { page, done } = await visit(browser, { path: "/console/overview" });
    try {
      await page.locator("[data-path-control]").getByText("Path control is off").waitFor();
      await until("what went wrong", async () => Number(await figure(page, "failed")) === before + 1);
      await until("what runs", async () => Number(await figure(page, "running")) >= 1);
      for (const name of ["running", "failed"]) expect((await page.locator(`[data-figure=${name}] svg rect:not(.floor)`).count()) > 0, `${name} has no chart`);
      for (const name of ["waiting", "asking", "pool"]) equal(await page.locator(`[data-figure=${name}] svg`).count(), 1, `the chart of ${name}`);
      await page.getByRole("link", { name: wrong.slice(0, 14) }).waitFor();
      // Compares every number and column with the server's.
      await until("one of each", async () => (await Promise.all(["running", "waiting", "asking"].map((name) => figure(page, name)))).join() === "1,1,1");
      const { running, waiting, asking } = (await api("GET", "/api/overview")).body;
      equal(`${running},${waiting},${asking}`, "1,1,1", "what the server counts");
      const columns = async () => (await page.locator("svg.chart g title").allTextContents()).map((title) => title.split(" · ")[1]);
      await until("the server's own minutes", async () => {
        const { minutes } = (await api("GET", "/api/overview")).body;
        return (await columns()).join("|") === minutes.map((minute) => `${minute.ended_well} finished, ${minute.went_wrong} failed`).join("|");
      });
    } finally {
      for (const id of [queued, going, risky.body.exec_id]) {
        await api("DELETE", `/sandbox/execs/${id}`);
        await ended(id);
      }
      await api("PUT", "/settings", { sandbox: { max_concurrent_execs_per_user: null } });
    }
    await api("PUT", "/api/sandbox", { enabled: true });
    await page.reload();
    await page.getByText("Path control is on").waitFor();
    equal(await page.locator("[data-path-control]").count(), 0, "the sentence while it is on");
    await done();
  },

  async "limits, errors and backends are told in Chinese"(browser) {
    const { page, done } = await visit(browser, { path: "/console/settings/limits", language: "zh-CN", may: ["/settings"] });
    await page.getByLabel("进程数").fill("100000");
    await page.getByRole("button", { name: "保存" }).click();
    // In the reader's language, followed by the server's own text.
    await page.getByRole("alert").getByText(/^请求无效。（.*pids/).waitFor();
    await page.goto(new URL("/console/overview", page.url()).href);
    await page.getByText("原生（native）").waitFor();
    const shown = await page.locator("tbody").last().innerText();
    expect(!shown.includes("Cannot connect"), `the server's words are in the way: ${shown}`);
    await done();
  },

  async "execs are listed as they come, and filtered"(browser) {
    const { page, done } = await visit(browser, { path: "/console/execs" });
    const id = await begin("exit 3", { project_id: "filtered", policy_overrides: { timeout_ms: 4321 } });
    await ended(id);
    await page.getByRole("link", { name: id.slice(0, 14) }).waitFor();
    await page.getByLabel("Project").fill("filtered");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.getByLabel("Status").selectOption("SUCCEEDED");
    await page.getByText("No execs match these filters").waitFor();
    await page.getByLabel("Status").selectOption("FAILED");
    await page.getByRole("link", { name: id.slice(0, 14) }).click();
    await page.getByRole("heading", { level: 1, name: id }).waitFor();
    await page.locator("[data-status=FAILED]").waitFor();
    // Each limit of the record with its layer, and each protection with its state.
    const { policy_snapshot: policy, protections } = (await api("GET", `/sandbox/execs/${id}`)).body;
    for (const [name, value] of Object.entries(policy.limits)) {
      const [, shown, layer] = await page.locator("tr", { has: page.locator(`td[title=${name}]`) }).locator("td").allTextContents();
      equal(`${shown} ${layer}`, `${value.toLocaleString("en-GB")} ${policy.layers[name]}`, name);
    }
    equal(`${policy.limits.timeout_ms} ${policy.layers.timeout_ms} ${policy.layers.scratch_mb}`, "4321 request system", "what is on record");
    equal((await page.locator("[data-net] td").allTextContents()).join("|"), "Network|none|system", "a box without a network");
    expect(protections.length > 10, `${protections.length} protections`);
    const states = await page.locator("[data-protection]").evaluateAll((rows) => rows.map((row) => `${row.dataset.protection} ${row.querySelector(".badge").textContent}`));
    equal(states.join(), protections.map((one) => `${one.name} ${one.state.replaceAll("_", " ")}`).join(), "the protections");
    await done();
  },

  async "settings are changed, wrong ones refused where they stand"(browser) {
    const { page, done } = await visit(browser, { path: "/console/settings/limits", may: ["/settings"] });
    await page.locator("input[name='sandbox.limits.pids']").fill("200");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    equal((await api("GET", "/settings")).body.sandbox.limits.pids, 200, "what is stored");
    await page.locator("input[name='sandbox.limits.pids']").fill("100000");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").waitFor();
    equal((await api("GET", "/settings")).body.sandbox.limits.pids, 200, "what is stored");
    await done();
  },

  async "start-up keys are shown with their source and cannot be edited"(browser) {
    const { page, done } = await visit(browser, { path: "/console/settings/limits" });
    const { sources } = (await api("GET", "/settings")).body;
    equal(sources["sandbox.docker.cli_path"], "default", "the source that the server names");
    const row = (key) => page.locator(`[data-startup] tr[data-key='${key}'] td`);
    await row("sandbox.docker.cli_path").first().waitFor();
    equal(await page.locator("[data-startup] tbody tr").count(), Object.keys(sources).length, "rows");
    equal((await row("sandbox.docker.cli_path").allTextContents()).join("|"), "sandbox.docker.cli_path|–|default", "a key without a value");
    equal((await row("approvals.webhook_secret").allTextContents()).join("|"), "approvals.webhook_secret|•••|environment variable", "a secret");
    equal(await page.locator("[data-startup] input").count(), 0, "inputs for start-up keys");
    equal(await page.locator("[data-ignored]").count(), 0, "notes on ignored keys");
    await done();
  },

  async "a token is made, shown once and revoked"(browser) {
    const { page, done } = await visit(browser, { path: "/console/settings/tokens" });
    await page.locator("input[name=token-user]").fill("ann");
    await page.locator("input[name=label]").fill("of the console");
    await page.getByRole("button", { name: "Create token" }).click();
    const text = await page.locator("[data-made] code").textContent();
    equal((await api("GET", "/api/me", undefined, text)).body.user, "ann", "who the token is");
    const row = page.locator("tr", { hasText: "of the console" });
    // Confirms in place, with the focus on the button.
    await row.getByRole("button", { name: "Revoke" }).press("Enter");
    await row.getByRole("button", { name: "Cancel" }).waitFor();
    await page.keyboard.press("Enter");
    await row.getByText("revoked", { exact: true }).waitFor();
    equal((await api("GET", "/api/me", undefined, text)).status, 401, "the revoked token");
    await done();
  },

  async "the audit chain is searched and verified"(browser) {
    await ended(await begin("true"));
    const { page, done } = await visit(browser, { path: "/console/audit" });
    await page.locator("tbody tr").first().waitFor();
    await page.getByRole("button", { name: "Verify chain" }).click();
    await page.getByText("The chain is intact").waitFor();
    await page.locator("input[name=action]").fill("token.created");
    const actions = () => page.locator("tbody tr td:nth-child(3)").allTextContents();
    await until("tokens alone", async () => {
      const found = await actions();
      return found.length > 0 && found.every((action) => action === "token.created");
    });
    await page.locator("input[name=action]").fill("nothing.like.it");
    await page.getByText("No entries match").waitFor();
    await done();
  },

  async "the audit is searched by author, exec and question, read on, and exported"(browser) {
    const made = (await api("POST", "/api/tokens", { role: "operator" })).body;
    // More than one page of entries.
    await api("PUT", "/api/sandbox", { enabled: true });
    for (let turn = 0; turn < 52; turn += 1) {
      for (const enabled of [false, true]) equal((await api("PUT", "/api/sandbox", { enabled }, made.token)).status, 200, "the switch");
    }
    const id = await asks(`ls ${directory()}`);
    const { id: asked } = await question(id);
    await api("POST", `/api/approvals/${asked}`, { approved: true, remember: true });
    await ended(id);
    const { page, done } = await visit(browser, { path: "/console/audit" });
    const rows = page.locator("tbody tr");
    const numbers = () => page.locator("tbody tr td:nth-child(1)").allTextContents();
    const actions = () => page.locator("tbody tr td:nth-child(3)").allTextContents();
    const listed = async (query) => (await api("GET", `/api/audit?limit=1000&${query}`)).body.entries;
    const shows = async (entries) => until("the entries", async () => (await numbers()).join() === entries.map((entry) => entry.seq).join());
    await page.locator("input[name=actor]").fill(made.id);
    const own = await listed(`actor=${made.id}`);
    equal(own.length, 104, "what the operator did");
    await shows(own.slice(0, 100));
    await page.getByRole("button", { name: "Load more" }).click();
    await shows(own);
    equal(await page.getByRole("button", { name: "Load more" }).count(), 0, "more than all");
    await page.locator("input[name=actor]").fill("");
    await page.locator("input[name=exec]").fill(id);
    await shows(await listed(`exec_id=${id}`));
    for (const action of ["exec.outcome", "exec.intent", "approval.opened"]) expect((await actions()).includes(action), `${action} is not there`);
    equal(await page.locator("tbody tr", { hasText: "exec.outcome" }).locator("a").getAttribute("href"), `/console/execs/${id}`, "the way to the exec");
    await page.locator("input[name=exec]").fill("");
    await page.locator("input[name=request]").fill(asked);
    await until("the question", async () => (await actions()).join() === "sandbox.path.added,approval.remembered,approval.opened");
    await rows.first().locator("summary").click();
    expect((await rows.first().locator(".code").textContent()).includes(asked), "the details do not name the question");
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export" }).click()]);
    equal(file.suggestedFilename(), "audit.ndjson", "the name of the export");
    const lines = readFileSync(await file.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
    equal(lines.map((line) => line.seq).join(), lines.map((_, index) => index + 1).join(), "the entries of the export");
    expect(lines.some((line) => line.subject === asked && line.action === "approval.remembered"), "the answer is not in the export");
    await done();
  },

  async "a broken chain is told with what was found"(browser) {
    // Findings of a changed record are tested in the suite that changes records.
    const findings = ["entry 7 does not follow from entry 6", "<img src=x onerror=alert(1)>\u202E"];
    const broken = (page) => page.route("**/api/audit/verify", (route) => route.fulfill({ json: { intact: false, checked: 9, findings } }));
    for (const [language, button, words] of [["en-US", "Verify chain", "The chain is broken:"], ["zh-CN", "验证链", "链不完整："]]) {
      const { page, done } = await visit(browser, { path: "/console/audit", language, before: broken });
      await page.getByRole("button", { name: button }).click();
      const told = page.getByRole("alert");
      await told.getByText(words).waitFor();
      equal((await told.locator(".mono").allTextContents()).join("|"), `${findings[0]}|<img src=x onerror=alert(1)>⟨U+202E⟩`, "what was found");
      equal(await page.locator("main img").count(), 0, "elements made of a finding");
      await done();
    }
  },

  async "words that are changed while an answer is on its way are asked for all the same"(browser) {
    await api("POST", "/api/tokens", { role: "user", user_id: "late" });
    let go;
    const held = new Promise((resolve) => (go = resolve));
    const slow = (page) =>
      page.route("**/api/audit?*", async (route) => {
        if (!route.request().url().includes("action=")) await held;
        await route.continue();
      });
    // Uses a fake clock, because the page waits before it searches.
    const { page, done } = await visit(browser, { path: "/console/audit", before: slow, ahead: 1 });
    await page.locator("input[name=action]").fill("token.created");
    await page.clock.runFor(400);
    go();
    const actions = () => page.locator("tbody tr td:nth-child(3)").allTextContents();
    await until("tokens alone", async () => {
      const found = await actions();
      return found.length > 0 && found.every((action) => action === "token.created");
    });
    await done();
  },

  async "a user sees their own and no more"(browser) {
    const made = (await api("POST", "/api/tokens", { role: "user", user_id: "bob" })).body;
    await ended(await begin("true", { project_id: "not-of-bob" }));
    const { page, done } = await visit(browser, { path: "/console/execs", by: made.token });
    await page.getByText("No execs yet").waitFor();
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
    equal(await page.getByRole("link", { name: "Tokens" }).count(), 0, "the tokens' tab");
    await done();
  },
};
