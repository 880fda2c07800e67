import { api, begin, ended, equal, expect, visit } from "./browser.mjs";

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
  },

  async "a keyboard is enough"(browser) {
    const { page, done } = await visit(browser, { path: "/console/execs" });
    await page.getByRole("heading", { name: "Execs" }).waitFor();
    await page.keyboard.press("Tab");
    equal(await page.evaluate(() => document.activeElement.className), "skip", "the first stop");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    expect(outline !== "none", "the focus is not seen");
    await page.keyboard.press("Enter");
    equal(await page.evaluate(() => document.activeElement.id), "content", "where the skip link leads");
    await done();
  },

  async "execs are listed as they come, and filtered"(browser) {
    const { page, done } = await visit(browser, { path: "/console/execs" });
    const id = await begin("exit 3", { project_id: "filtered" });
    await ended(id);
    await page.getByRole("link", { name: id.slice(0, 14) }).waitFor();
    await page.getByLabel("Project").fill("filtered");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.getByLabel("Status").selectOption("SUCCEEDED");
    await page.getByText("No exec matches").waitFor();
    await page.getByLabel("Status").selectOption("FAILED");
    await page.getByRole("link", { name: id.slice(0, 14) }).click();
    await page.getByRole("heading", { level: 1, name: id }).waitFor();
    await page.locator("[data-status=FAILED]").waitFor();
    await page.getByText("timeout_ms").waitFor();
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

  async "a token is made, shown once and revoked"(browser) {
    const { page, done } = await visit(browser, { path: "/console/settings/tokens" });
    await page.locator("input[name=token-user]").fill("ann");
    await page.locator("input[name=label]").fill("of the console");
    await page.getByRole("button", { name: "Make a token" }).click();
    const text = await page.locator("[data-made] code").textContent();
    equal((await api("GET", "/api/me", undefined, text)).body.user, "ann", "who the token is");
    const row = page.locator("tr", { hasText: "of the console" });
    await row.getByRole("button", { name: "Revoke" }).click();
    await row.getByRole("button", { name: "Revoke" }).click();
    await row.getByText("revoked", { exact: true }).waitFor();
    equal((await api("GET", "/api/me", undefined, text)).status, 401, "the revoked token");
    await done();
  },

  async "the audit chain is searched and verified"(browser) {
    await ended(await begin("true"));
    const { page, done } = await visit(browser, { path: "/console/audit" });
    await page.locator("tbody tr").first().waitFor();
    await page.getByRole("button", { name: "Verify the chain" }).click();
    await page.getByText("The chain holds").waitFor();
    await page.locator("input[name=action]").fill("token.created");
    await page.waitForFunction(() => [...document.querySelectorAll("tbody tr td:nth-child(3)")].every((cell) => cell.textContent === "token.created"));
    await done();
  },

  async "a user sees their own and no more"(browser) {
    const made = (await api("POST", "/api/tokens", { role: "user", user_id: "bob" })).body;
    await ended(await begin("true", { project_id: "not-of-bob" }));
    const { page, done } = await visit(browser, { path: "/console/execs", by: made.token });
    await page.getByText("No exec yet").waitFor();
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
    equal(await page.getByRole("link", { name: "Tokens" }).count(), 0, "the tokens' tab");
    await done();
  },
};
