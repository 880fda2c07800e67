import { api, equal, expect, token, visit } from "./browser.mjs";

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
  for (;;) {
    const { body } = await api("GET", "/api/approvals?limit=1000");
    const one = body.approvals.find((one) => one.exec_id === exec);
    if (one && one.status !== "pending") return one;
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

function dialog(page) {
  return page.getByRole("alertdialog");
}

export const tests = {
  async "risky code is shown whole, with what stood out at its line"(browser) {
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const { id } = await asks(RISKY);
    await dialog(page).getByText("AI wants to run risky code").waitFor();
    const shown = await page.locator("[data-code] .text > .stranger").allTextContents();
    equal(shown.join("\n"), RISKY.trimEnd(), "the code");
    const marked = page.locator("[data-code] .marked");
    equal(await marked.last().getAttribute("data-line"), "4", "the line");
    expect((await marked.last().textContent()).includes('os.system("echo ran")'), "what is marked");
    await page.locator("[data-findings]").getByRole("button", { name: "Line 4" }).click();
    equal(await page.locator("[data-fold]").count(), 0, "short code is folded");
    await page.locator("[data-risk=critical]").waitFor();
    await page.locator("[data-answer=allow]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal((await answered(id)).status, "approved", "the question");
    await done();
  },
};
