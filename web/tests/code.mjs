import { api, equal, expect, token, until, visit } from "./browser.mjs";

const RISKY = `import os
# ${"a comment, and nothing more ".repeat(4)}
print("before")
os.system("echo ran")
`;

let count = 0;

/** Code that waits for a person. */
async function asks(code, by = token, more = {}) {
  count += 1;
  const body = { session_id: `code-${count}`, code, language: "python", wait: false, ...more };
  const answer = await api("POST", "/api/run", body, by);
  equal(answer.status, 202, JSON.stringify(answer.body));
  equal(answer.body.status, "AWAITING_APPROVAL", "the run");
  return { id: answer.body.exec_id, session: body.session_id };
}

/** What became of a question. */
async function answered(exec) {
  return until("the answer", async () => {
    const { body } = await api("GET", "/api/approvals?limit=1000");
    const one = body.approvals.find((one) => one.exec_id === exec);
    return one && one.status !== "pending" ? one : null;
  });
}

function dialog(page) {
  return page.getByRole("alertdialog");
}

export const tests = {
  async "risky code is shown whole, with what stood out at its line"(browser) {
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const { id } = await asks(RISKY);
    await dialog(page).getByText("AI wants to run risky code").waitFor();
    const shown = await page.locator("[data-code] .text > .untrusted").allTextContents();
    equal(shown.join("\n"), RISKY.trimEnd(), "the code");
    const marked = page.locator("[data-code] .marked");
    equal(await marked.last().getAttribute("data-line"), "4", "the line");
    expect((await marked.last().textContent()).includes('os.system("echo ran")'), "what is marked");
    await page.locator("[data-findings]").getByRole("button", { name: "Line 4" }).click();
    equal(await page.locator("[data-fold]").count(), 0, "short code is folded");
    await page.locator("[data-risk=critical].bad.strong").waitFor();
    await page.locator("[data-answer=allow]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await answered(id)).status, "approved", "the question");
    await done();
  },

  async "long and hostile code is folded, never cut, and stays text"(browser) {
    const lines = Array.from({ length: 400 }, (_, index) => `x${index} = "<img src=x onerror=alert(1)> \u202E"`);
    lines[350] = "import subprocess; subprocess.run(['true'])";
    // Nothing is hidden at the right edge of the frame.
    lines[3] = `x3 = 1${" ".repeat(2000)}; print("far away")`;
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const { id } = await asks(`${lines.join("\n")}\n`);
    const code = page.locator("[data-code]");
    await code.waitFor();
    const height = async () => (await code.boundingBox()).height;
    expect((await height()) < 300, "it is not folded");
    const text = await code.textContent();
    expect(text.includes("x399 =") && text.includes("⟨U+202E⟩"), "something is missing");
    equal(await code.locator("img").count(), 0, "elements made of code");
    expect(await code.evaluate((frame) => frame.scrollWidth <= frame.clientWidth), "it is wider than its frame");
    await page.locator("[data-findings] button").last().click();
    const seen = await code.locator('[data-line="351"]').boundingBox();
    const frame = await code.boundingBox();
    expect(seen.y >= frame.y && seen.y < frame.y + frame.height, "the line is not in sight");
    await page.locator("[data-fold]").click();
    expect((await height()) > 3000, "it is still folded");
    await page.locator("[data-answer=deny]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await answered(id)).status, "denied", "the question");
    await done();
  },

  async "something else is run instead, and asked about again where it deserves that"(browser) {
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const first = await asks(RISKY);
    await page.locator("[data-instead]").click();
    const editor = page.locator("textarea[name=modified-code]");
    equal(await editor.inputValue(), RISKY, "the editor begins with the code");
    equal(await page.locator("[data-answer=allow]").textContent(), "Allow", "nothing is changed yet");
    await editor.fill('import os\nos.system("echo again")\n');
    await page.getByRole("button", { name: "Run this instead" }).click();
    // The new code is as risky, so there is another question without parts of the first.
    await page.locator("[data-code]", { hasText: "echo again" }).waitFor();
    equal((await answered(first.id)).status, "approved", "the first question");
    await page.locator("[data-instead]").click();
    await page.locator("textarea[name=modified-code]").fill("open('made.txt', 'w').write('harmless')\n");
    await page.getByRole("button", { name: "Run this instead" }).click();
    await dialog(page).waitFor({ state: "detached" });
    await until("what was run instead", async () => (await api("GET", `/api/sessions/${first.session}/files/made.txt`)).status === 200);
    await done();
  },

  async "the dialog for code speaks Chinese"(browser) {
    const { page, done } = await visit(browser, { path: "/console/overview", language: "zh-CN" });
    const { id } = await asks(RISKY);
    await dialog(page).getByText("AI 请求运行有风险的代码").waitFor();
    await page.locator("[data-findings] button", { hasText: "第 4 行" }).first().waitFor();
    await page.waitForFunction(() => /[\u4e00-\u9fff]/.test(document.querySelector("[data-code] .said")?.textContent ?? ""));
    await page.locator("[data-answer=deny]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await answered(id)).status, "denied", "the question");
    await done();
  },

  async "a session's rules are changed where it is listed"(browser) {
    const id = "of-the-page";
    await api("POST", "/api/sessions", { session_id: id });
    const { page, done } = await visit(browser, { path: "/console/sessions" });
    const row = page.locator(`[data-session="${id}"]`);
    const rule = async (name) => (await api("GET", `/api/sessions/${id}`)).body[name];
    const becomes = (name, value) => until(`${name} ${value}`, async () => (await rule(name)) === value);
    await row.locator("select[name=confirmation]").selectOption("auto-reject");
    await becomes("confirmation", "auto-reject");
    await row.locator("select[name=security-mode]").selectOption("permissive");
    await becomes("security_mode", "permissive");
    await row.locator("select[name=confirmation]").selectOption("callback");
    await row.locator("input[name=callback]").fill("https://approver.example/hook");
    await row.getByRole("button", { name: "Save" }).click();
    await becomes("callback_url", "https://approver.example/hook");
    await row.getByText("https://approver.example/hook").waitFor();
    await row.getByRole("button", { name: "Delete" }).click();
    await row.getByRole("button", { name: "Delete" }).click();
    await row.waitFor({ state: "detached" });
    equal((await api("GET", `/api/sessions/${id}`)).status, 404, "it is gone");
    await done();
  },

  async "a user has their own sessions, and not an operator's choices"(browser) {
    const made = await api("POST", "/api/tokens", { role: "user", user_id: "sue" });
    const by = made.body.token;
    await api("POST", "/api/sessions", { session_id: "sues" }, by);
    await api("POST", "/api/sessions", { session_id: "not-sues" });
    const { page, done } = await visit(browser, { path: "/console/sessions", by });
    const row = page.locator('[data-session="sues"]');
    await row.locator("select[name=confirmation]").selectOption("auto-reject");
    await until("the rule", async () => (await api("GET", "/api/sessions/sues", undefined, by)).body.confirmation === "auto-reject");
    equal(await page.locator("[data-session]").count(), 1, "sessions");
    equal(await row.locator('option[value="auto-approve"], option[value="permissive"], option[value="callback"]').evaluateAll((all) => all.filter((one) => one.disabled).length), 3, "choices that are an operator's");
    await done();
  },
};
