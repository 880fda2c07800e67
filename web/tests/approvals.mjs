import { api, asks, begin, directory, ended, equal, expect, question, until, visit } from "./browser.mjs";

const TEXT = "what the file says\n";

async function enable() {
  await api("PUT", "/api/sandbox", { enabled: true });
}

async function paths() {
  return (await api("GET", "/api/sandbox")).body.paths.map((entry) => entry.path);
}

async function printed(exec) {
  equal((await ended(exec)).status, "SUCCEEDED", "the exec");
  return (await api("GET", `/sandbox/execs/${exec}/stdout`)).body.content;
}

async function deny(exec) {
  await api("POST", `/api/approvals/${(await question(exec)).id}`, { approved: false, remember: false });
}

function dialog(page) {
  return page.getByRole("alertdialog");
}

/** What the page of an exec says of the host's paths, in Chinese: each and as whom, and whose word it was. */
async function reached(browser, exec) {
  const { page, done } = await visit(browser, { path: `/console/execs/${exec}`, language: "zh-CN" });
  await page.locator("[data-reach]").waitFor();
  const cells = await page.locator("[data-reach] td").allTextContents();
  await done();
  return cells.map((cell) => cell.trim()).join("|");
}

/** The seconds that a dialog says are left. */
async function left(page) {
  return Number((await page.locator("[data-left]").textContent()).match(/\d+/)?.[0] ?? 0);
}

export const tests = {
  async "the dialog appears at once, on any page; a denial and its reason reach the caller"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/audit" });
    await page.getByRole("heading", { name: "Audit" }).waitFor();
    const place = directory({ "notes.txt": TEXT });
    const id = await asks(`cat ${place}/notes.txt`);
    await dialog(page).getByText("AI requests access to a new path").waitFor();
    // The directory would be stored; the file is in the command and beside it.
    equal(await page.locator("[data-requested]").textContent(), place, "the path");
    equal(await page.locator("[data-blocked]").textContent(), `${place}/notes.txt`, "what is named");
    equal(await page.locator("[data-command]").textContent(), `cat ${place}/notes.txt`, "the command");
    equal(await page.locator("[data-command] mark").textContent(), `${place}/notes.txt`, "what stands out");
    await page.getByLabel("Reason").fill("not today");
    await page.locator("[data-answer=deny]").click();
    await dialog(page).waitFor({ state: "detached" });
    const exec = await ended(id);
    equal(exec.status, "POLICY_DENIED", "the exec");
    equal(exec.error_reason.code, "DENIED_BY_PERSON", "why");
    expect(exec.error_reason.message.includes("not today"), exec.error_reason.message);
    await page.goto(new URL(`/console/execs/${id}`, page.url()).href);
    await page.locator("[data-approvals]").getByText("Denied").waitFor();
    await page.locator("[data-approvals]").getByText("not today").waitFor();
    const { answered_by: by } = await question(id);
    expect(by.startsWith("t_"), by);
    await page.locator("[data-approvals]").getByText(by, { exact: true }).waitFor();
    await done();
  },

  async "allowed once is allowed once"(browser) {
    await enable();
    const place = directory({ "notes.txt": TEXT });
    const { page, done } = await visit(browser, { path: "/console/overview" });
    let last;
    for (let turn = 0; turn < 2; turn += 1) {
      last = await asks(`cat ${place}/notes.txt`);
      await page.locator("[data-answer=allow]").click();
      await dialog(page).waitFor({ state: "detached" });
      equal(await printed(last), TEXT, "what the box saw");
    }
    expect(!(await paths()).includes(place), "it was remembered");
    await done();
    equal(await reached(browser, last), `路径 ${place}/notes.txt以路径所有者的身份访问（所有者须为普通用户）|审批`, "what its page says of the path");
  },

  async "allowed and remembered is not asked again, and stored as it was shown"(browser) {
    await enable();
    const place = directory({ "notes.txt": TEXT, "other.txt": "more\n" });
    await deny(await asks(`cat ${place}/other.txt`));
    const { page, done } = await visit(browser, { path: "/console/settings/sandbox" });
    const first = await asks(`cat ${place}/notes.txt`);
    const stores = page.locator("[data-stores]");
    equal(await stores.locator("li").textContent(), place, "what would be stored");
    equal(await stores.locator("[data-scope]").textContent(), "for everyone:", "for whom");
    const { execs } = (await api("GET", `/api/approvals/${(await question(first)).id}/preview`)).body;
    expect(execs.would_allow >= 2, `both commands would not ask any more: ${JSON.stringify(execs)}`);
    const counts = `Of the last ${execs.looked_at} commands, ${execs.would_allow} would have run without asking and ${execs.would_still_ask} would still have asked.`;
    equal(await stores.locator("[data-counts]").textContent(), counts, "what it would change");
    equal(await stores.locator("[data-warning]").count(), 0, "warnings");
    await page.locator("[data-answer=remember]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal(await printed(first), TEXT, "what the box saw");
    await page.locator("[data-path]", { hasText: place }).waitFor();
    expect((await paths()).includes(place), "it was not remembered");
    const second = await asks(`cat ${place}/other.txt`);
    equal(await printed(second), "more\n", "another file of it, without a question");
    await page.goto(new URL(`/console/execs/${second}`, page.url()).href);
    await page.locator("[data-reach]", { hasText: place }).getByText("allowed paths", { exact: true }).waitFor();
    await done();
  },

  async "what is unwise to remember is warned about, in the reader's language"(browser) {
    await enable();
    for (const [language, words] of [["en-US", "The machine's configuration is here"], ["zh-CN", "这里是机器的配置"]]) {
      const { page, done } = await visit(browser, { path: "/console/overview", language });
      const id = await asks("cat /etc/ssh/x /etc/ssh/y");
      await page.locator("[data-stores] [data-warning]", { hasText: words }).waitFor();
      await page.locator("[data-risk=high].bad").waitFor();
      await page.locator("[data-answer=deny]").click();
      await ended(id);
      await done();
    }
  },

  async "no key answers by accident; Esc puts it aside, the inbox brings it back"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/approvals" });
    await page.getByText("Live", { exact: true }).waitFor();
    const id = await asks(`ls ${directory()}`);
    await dialog(page).waitFor();
    await page.locator("[data-answer=allow]:enabled").waitFor();
    for (const key of ["Enter", "Space"]) await page.keyboard.press(key);
    await page.getByLabel("Reason").press("Enter");
    await dialog(page).waitFor();
    equal((await api("GET", `/sandbox/execs/${id}`)).body.status, "AWAITING_APPROVAL", "after keys in the dialog");
    await page.keyboard.press("Escape");
    await dialog(page).waitFor({ state: "detached" });
    equal((await api("GET", `/sandbox/execs/${id}`)).body.status, "AWAITING_APPROVAL", "after Esc");
    await page.locator("[data-pending]").getByRole("button", { name: "Review" }).click();
    await page.locator("[data-answer=remember]:enabled").waitFor();
    // The focus stays in the dialog, reaches every button, and gives an answer.
    const met = new Set();
    for (let step = 0; step < 14; step += 1) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => [document.activeElement.closest("[role=alertdialog]") !== null, document.activeElement.dataset.answer ?? document.activeElement.name]);
      expect(at[0], "Tab leads out of the dialog");
      met.add(at[1]);
    }
    for (const stop of ["reason", "deny", "allow", "remember"]) expect(met.has(stop), `the keyboard does not come to ${stop}: ${[...met]}`);
    await page.getByLabel("Reason").focus();
    await page.keyboard.type("by hand");
    while ((await page.evaluate(() => document.activeElement.dataset.answer)) !== "deny") await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    const exec = await ended(id);
    expect(exec.error_reason.message.includes("by hand"), exec.error_reason.message);
    await page.getByRole("cell", { name: "Denied" }).first().waitFor();
    await done();
  },

  async "the time that is left is the server's, whatever this browser's clock says"(browser) {
    await enable();
    for (const ahead of [-3_600_000, 150_000]) {
      const { page, done } = await visit(browser, { path: "/console/execs", ahead });
      await page.getByRole("heading", { name: "Execs" }).waitFor();
      const id = await asks(`ls ${directory()}`);
      await dialog(page).waitFor();
      const seconds = await left(page);
      expect(seconds > 90 && seconds <= 121, `${seconds} s are left by a clock that is ${ahead} ms ahead`);
      await until("less time", async () => (await left(page)) < seconds);
      // By the browser's clock the question has expired, but the server has not ended it: it stays
      // and can be answered.
      await page.clock.fastForward(200_000);
      await page.clock.runFor(5000);
      equal((await api("GET", `/sandbox/execs/${id}`)).body.status, "AWAITING_APPROVAL", "the exec");
      await dialog(page).waitFor();
      await page.locator("[data-answer=deny]").click();
      equal((await ended(id)).error_reason.code, "DENIED_BY_PERSON", "why");
      await done();
    }
  },

  async "what somebody else answered goes away by itself"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const id = await asks(`ls ${directory()}`);
    await dialog(page).waitFor();
    await deny(id);
    await dialog(page).waitFor({ state: "detached" });
    await done();
  },

  async "a user is asked about their own agents at once, and about nobody else's"(browser) {
    await enable();
    const [dora, emil] = await Promise.all(["dora", "emil"].map(async (user) => (await api("POST", "/api/tokens", { role: "user", user_id: user })).body.token));
    const { page, done } = await visit(browser, { path: "/console/approvals", by: dora });
    await page.getByText("Live", { exact: true }).waitFor();
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    const foreign = await asks(`ls ${directory()}`, emil);
    const own = directory({ "notes.txt": TEXT });
    const id = await asks(`cat ${own}/notes.txt`, dora);
    await dialog(page).waitFor();
    equal(asked.filter((url) => url.includes("status=pending")).length, 0, "it was asked for, and not told");
    equal(await page.locator("[data-requested]").textContent(), own, "the path");
    equal(await page.locator("[data-scope]").textContent(), "only for dora's agents:", "for whom");
    await page.locator("[data-answer=remember]").click();
    await dialog(page).waitFor({ state: "detached" });
    equal(await printed(id), TEXT, "what the box saw");
    await page.getByRole("link", { name: "Settings" }).click();
    await page.locator("[data-path]", { hasText: own }).getByText("only for dora").waitFor();
    await page.getByRole("button", { name: `Delete ${own}` }).click();
    await page.locator("[data-path]", { hasText: own }).waitFor({ state: "detached" });
    await api("DELETE", `/sandbox/execs/${foreign}`);
    await ended(foreign);
    await done();
  },

  async "a notification says what it is about, and a browser that has none loses no question"(browser) {
    await enable();
    let answers = 0;
    const hidden = async (page) => {
      // Uses the list alone: an error must not be hidden by the socket.
      await page.routeWebSocket(/\/ws\//, () => {});
      await page.route("**/api/approvals?status=pending*", (route) => (answers++ === 0 ? route.continue() : undefined));
      await page.addInitScript(() => {
        window.notes = [];
        Object.defineProperty(document, "visibilityState", { value: "hidden" });
        window.Notification = class {
          static permission = "granted";
          constructor(title, { body }) {
            window.notes.push(`${title}: ${body}`);
            throw new TypeError("Illegal constructor");
          }
        };
      });
    };
    const place = directory();
    const first = await asks(`ls ${place}`);
    const code = await api("POST", "/api/run", { session_id: "notes", code: "import os\nos.system('ls')\n", language: "python", wait: false });
    const { page, done } = await visit(browser, { path: "/console/overview", before: hidden });
    await dialog(page).waitFor();
    await until("both", () => page.locator(".ways .count").textContent().then((text) => text === "2"));
    const notes = (await page.evaluate(() => window.notes)).sort();
    equal(notes[0], `AI requests access to a new path: ls ${place}`, "the first");
    expect(notes[1].startsWith("AI wants to run risky code: "), notes[1]);
    for (const id of [first, code.body.exec_id]) {
      await api("DELETE", `/sandbox/execs/${id}`);
      await ended(id);
    }
    await done();
  },

  async "a command padded with lines says how many it has"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const place = directory();
    const id = await asks(`ls ${place}${"\n".repeat(3000)}echo out of sight`);
    const unfold = dialog(page).locator("[data-unfold]");
    equal((await unfold.textContent()).trim(), "Show all 3,001 lines", "how long it is");
    const height = async () => (await page.locator("[data-command]").boundingBox()).height;
    expect((await height()) < 200, "it is not folded");
    await unfold.click();
    expect((await height()) > 3000, "it is still folded");
    const box = await page.locator("[data-answer=deny]").boundingBox();
    expect(box.y + box.height <= 860, "the buttons are out of sight");
    await page.locator("[data-answer=deny]").click();
    await ended(id);
    await done();
  },

  async "a hostile and a very long command stay text in the dialog"(browser) {
    await enable();
    const { page, done } = await visit(browser, { path: "/console/overview", language: "zh-CN" });
    const path = `${directory()}/<img src=x onerror=alert(1)>\u202Etxt`;
    const unseen = "\u200b\u034f\u00a0\ufe0f\u{e0041}\u2062";
    const id = await asks(`ls "${path}" # \u001b[2J r${unseen}m ${"x".repeat(200_000)}`);
    await dialog(page).getByText("AI 请求访问新路径").waitFor();
    await dialog(page).getByText("AI 尝试访问以下路径，但该路径不在允许列表中：").waitFor();
    for (const words of ["路径：", "执行的命令："]) await dialog(page).getByText(words, { exact: true }).waitFor();
    const names = await dialog(page).locator("[data-answer]").allTextContents();
    equal(names.map((name) => name.trim()).join(), "拒绝,允许,允许并记住", "the buttons");
    const shown = await page.locator("[data-command]").textContent();
    expect(shown.includes("<img src=x onerror=alert(1)>⟨U+202E⟩txt") && shown.includes("␛[2J"), shown.slice(0, 300));
    expect(shown.includes("r⟨U+200B⟩⟨U+034F⟩⟨U+00A0⟩⟨U+FE0F⟩⟨U+E0041⟩⟨U+2062⟩m"), shown.slice(0, 300));
    equal(await dialog(page).locator("img").count(), 0, "elements made of a command");
    expect(shown.endsWith("x".repeat(200_000)), `only ${shown.length} characters are there`);
    for (const [width, height] of [[1280, 860], [390, 844]]) {
      await page.setViewportSize({ width, height });
      const wide = await page.evaluate(() => [document.documentElement, document.querySelector("[role=alertdialog]")].map((one) => one.scrollWidth));
      expect(Math.max(...wide) <= width, `the dialog is ${wide} wide in ${width}`);
      for (const answer of ["deny", "allow", "remember"]) {
        const box = await page.locator(`[data-answer=${answer}]`).boundingBox();
        expect(box.x >= 0 && box.x + box.width <= width && box.y + box.height <= height, `${answer} is out of sight in ${width}: ${JSON.stringify(box)}`);
      }
    }
    await page.locator("[data-answer=deny]").click();
    await ended(id);
    await done();
  },

  async "the dialog shows the scripts that an answer covers, and what it does not cover"(browser) {
    await enable();
    for (const [language, pinned, why] of [
      ["en", "pinned until the command ends", "does not exist yet"],
      ["zh-CN", "在命令结束前锁定", "尚不存在"],
    ]) {
      const { page, done } = await visit(browser, { path: "/console/overview", language });
      await api("POST", "/api/sandbox/execute", { session_id: "console", command: "printf 'echo good \\342\\200\\213' > x.sh" });
      const id = await asks(`bash x.sh; cat missing; ls ${directory()}`);
      const covered = await page.locator("[data-covered]").textContent();
      for (const part of ["/workspace/x.sh", pinned, "echo good ⟨U+200B⟩"]) expect(covered.includes(part), `${part} is not in ${covered}`);
      const not = await page.locator("[data-not-covered]").textContent();
      for (const part of ["/workspace/missing", why]) expect(not.includes(part), `${part} is not in ${not}`);
      await page.locator("[data-answer=deny]").click();
      await ended(id);
      await done();
    }
  },

  async "notifications are asked for by a button that goes when they are on"(browser) {
    const unasked = (page) =>
      page.addInitScript(() => {
        window.Notification = class {
          static permission = "default";
          static async requestPermission() {
            return (this.permission = "granted");
          }
        };
      });
    const { page, done } = await visit(browser, { path: "/console/approvals", before: unasked });
    const button = page.getByRole("button", { name: "Turn on browser notifications" });
    await button.click();
    await button.waitFor({ state: "detached" });
    equal(await page.evaluate(() => window.Notification.permission), "granted", "what the browser was asked for");
    await done();
  },

  async "who answered is not guessed when it cannot be found out"(browser) {
    const id = await begin("true");
    await ended(id);
    const deaf = (page) => page.route("**/api/approvals?exec_id=*", (route) => route.fulfill({ status: 503, json: { error: { code: "BUSY", message: "not now" } } }));
    const { page, done } = await visit(browser, { path: `/console/execs/${id}`, before: deaf, may: ["exec_id"] });
    await page.getByRole("alert").getByText("not now").waitFor();
    equal(await page.getByText("No approval was needed").count(), 0, "what is not known");
    await page.getByRole("button", { name: "Try again" }).waitFor();
    await page.unroute("**/api/approvals?exec_id=*");
    await page.reload();
    await page.getByText("No approval was needed").waitFor();
    await done();
  },
};
