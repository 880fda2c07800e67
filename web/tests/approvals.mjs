import { api, ended, equal, expect, token, visit } from "./browser.mjs";

let count = 0;

/** A command that names a path which nobody has allowed; it waits for a person. */
async function asks(command, by = token) {
  const answer = await api("POST", "/api/sandbox/execute", { session_id: "console", command, wait: false }, by);
  equal(answer.status, 202, JSON.stringify(answer.body));
  return answer.body.exec_id;
}

/** A path of its own, so that no test answers for another. */
function place() {
  count += 1;
  return `/srv/ringwall-console/${count}`;
}

async function enable() {
  await api("PUT", "/api/sandbox", { enabled: true });
}

async function paths() {
  return (await api("GET", "/api/sandbox")).body.paths.map((entry) => entry.path);
}

function dialog(page) {
  return page.getByRole("alertdialog");
}

export const tests = {
  async "the dialog appears at once, on any page; a denial and its reason reach the caller"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/audit" });
    await page.getByRole("heading", { name: "Audit" }).waitFor();
    const path = place();
    const id = await asks(`ls ${path}`);
    await dialog(page).getByText("AI requests access to a new path").waitFor();
    equal(await page.locator("[data-blocked]").textContent(), path, "the path");
    equal(await page.locator("[data-command]").textContent(), `ls ${path}`, "the command");
    equal(await page.locator("[data-command] mark").textContent(), path, "what stands out");
    await page.getByLabel("Reason").fill("not today");
    await page.locator("[data-answer=deny]").click();
    await dialog(page).waitFor({ state: "detached" });
    const exec = await ended(id);
    equal(exec.status, "POLICY_DENIED", "the exec");
    equal(exec.error_reason.code, "DENIED_BY_PERSON", "why");
    expect(exec.error_reason.message.includes("not today"), exec.error_reason.message);
    await page.goto(new URL(`/console/execs/${id}`, page.url()).href);
    await page.getByRole("cell", { name: "Denied" }).waitFor();
    await done();
  },

  async "allowed once is allowed once"(browser) {
    await enable();
    const path = place();
    const { page, done } = await visit(browser, { path: "/console/overview" });
    for (let turn = 0; turn < 2; turn += 1) {
      const id = await asks(`ls ${path}; echo went on`);
      await page.locator("[data-answer=allow]").click();
      await dialog(page).waitFor({ state: "detached" });
      equal((await ended(id)).status, "SUCCEEDED", "the exec");
    }
    expect(!(await paths()).includes(path), "it was remembered");
    await done();
  },

  async "allowed and remembered is not asked again, and stored as shown"(browser) {
    await enable();
    const path = place();
    const { page, done } = await visit(browser, { path: "/console/settings/sandbox" });
    const first = await asks(`ls ${path}; true`);
    await page.locator("[data-stores]").getByText(path).waitFor();
    await page.locator("[data-answer=remember]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await ended(first)).status, "SUCCEEDED", "the exec");
    await page.locator("[data-path]", { hasText: path }).waitFor();
    expect((await paths()).includes(path), "it was not remembered");
    const second = await asks(`ls ${path}; true`);
    equal((await ended(second)).status, "SUCCEEDED", "the second exec");
    await done();
  },

  async "no key answers by accident; Esc puts it aside, the inbox brings it back"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/approvals" });
    await page.getByText("Told at once").waitFor();
    const id = await asks(`ls ${place()}; true`);
    await dialog(page).waitFor();
    await page.locator("[data-answer=allow]:enabled").waitFor();
    for (const key of ["Enter", "Space"]) await page.keyboard.press(key);
    await page.getByLabel("Reason").press("Enter");
    await dialog(page).waitFor();
    equal((await api("GET", `/sandbox/execs/${id}`)).body.status, "AWAITING_APPROVAL", "after keys in the dialog");
    await page.keyboard.press("Escape");
    await dialog(page).waitFor({ state: "detached" });
    equal((await api("GET", `/sandbox/execs/${id}`)).body.status, "AWAITING_APPROVAL", "after Esc");
    await page.locator("[data-pending]").getByRole("button", { name: "Answer" }).click();
    // The keyboard stays inside while it is open.
    for (let step = 0; step < 12; step += 1) {
      await page.keyboard.press("Tab");
      expect(await page.evaluate(() => document.activeElement.closest("[role=alertdialog]") !== null), "Tab leads out of the dialog");
    }
    await page.locator("[data-answer=deny]").click();
    equal((await ended(id)).status, "POLICY_DENIED", "the exec");
    await page.getByRole("cell", { name: "Denied" }).first().waitFor();
    await done();
  },

  async "what somebody else answered goes away by itself"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const id = await asks(`ls ${place()}; true`);
    await dialog(page).waitFor();
    const open = (await api("GET", "/api/approvals?status=pending")).body.approvals.find((one) => one.exec_id === id);
    await api("POST", `/api/approvals/${open.id}`, { approved: false, remember: false });
    await dialog(page).waitFor({ state: "detached" });
    await done();
  },

  async "a user is asked about their own agents, and about nobody else's"(browser) {
    await enable();
    const [dora, emil] = await Promise.all(["dora", "emil"].map(async (user) => (await api("POST", "/api/tokens", { role: "user", user_id: user })).body.token));
    const { page, done } = await visit(browser, { path: "/console/overview", by: dora });
    const foreign = await asks(`ls ${place()}; true`, emil);
    const own = place();
    const id = await asks(`ls ${own}; true`, dora);
    await dialog(page).waitFor();
    equal(await page.locator("[data-blocked]").textContent(), own, "the path");
    await page.locator("[data-answer=remember]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await ended(id)).status, "SUCCEEDED", "the exec");
    await page.getByRole("link", { name: "Settings" }).click();
    await page.locator("[data-path]", { hasText: own }).getByText("for dora").waitFor();
    await page.getByRole("button", { name: `Delete ${own}` }).click();
    await page.locator("[data-path]", { hasText: own }).waitFor({ state: "detached" });
    await api("DELETE", `/sandbox/execs/${foreign}`);
    await ended(foreign);
    await done();
  },

  async "a hostile and a very long command stay text in the dialog"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/overview", language: "zh-CN" });
    const path = `${place()}/<img src=x onerror=alert(1)>\u202Etxt`;
    const id = await asks(`ls "${path}" # \u001b[2J ${"x".repeat(50_000)}`);
    await dialog(page).getByText("AI 请求访问新路径").waitFor();
    await dialog(page).getByText("AI 尝试访问以下路径，但该路径不在允许列表中：").waitFor();
    for (const words of ["路径：", "执行的命令："]) await dialog(page).getByText(words, { exact: true }).waitFor();
    const names = await dialog(page).locator("[data-answer]").allTextContents();
    equal(names.map((name) => name.trim()).join(), "拒绝,允许,允许并记住", "the buttons");
    const shown = await page.locator("[data-command]").textContent();
    expect(shown.includes("<img src=x onerror=alert(1)>⟨U+202E⟩txt") && shown.includes("␛[2J"), shown.slice(0, 300));
    equal(await dialog(page).locator("img").count(), 0, "elements made of a command");
    const box = await page.locator("[data-answer=deny]").boundingBox();
    expect(box.y + box.height <= 860, "the buttons are out of sight");
    await page.locator("[data-answer=deny]").click();
    await ended(id);
    await done();
  },
};
