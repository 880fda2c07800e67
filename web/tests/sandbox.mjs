import { api, equal, expect, visit } from "./browser.mjs";

const PAGE = "/console/settings/sandbox";

async function clear(enabled) {
  await api("PUT", "/api/sandbox", { enabled });
  const { body } = await api("GET", "/api/sandbox");
  for (const entry of body.paths) await api("DELETE", `/api/sandbox/paths/${encodeURIComponent(entry.id)}`);
}

export const tests = {
  async "the switch says what it means, and turning it off is asked once more"(browser) {
    await clear(false);
    const { page, done } = await visit(browser, { path: PAGE });
    const state = page.locator("[data-state]");
    await state.getByText("Off:").waitFor();
    equal(await page.locator("[data-paths]").count(), 0, "paths while it is off");
    await page.locator("[data-remedy]").getByText("sandbox.when_disabled = full").waitFor();
    await page.getByRole("switch", { name: "Enable sandbox mode" }).click();
    await state.getByText("On:").waitFor();
    await page.getByRole("heading", { name: "Allowed paths" }).waitFor();
    equal((await api("GET", "/api/sandbox")).body.enabled, true, "what is stored");
    await page.getByRole("switch", { name: "Enable sandbox mode" }).click();
    equal((await api("GET", "/api/sandbox")).body.enabled, true, "what is stored before it is sure");
    await page.locator("[data-sure]").click();
    await state.getByText("Off:").waitFor();
    equal((await api("GET", "/api/sandbox")).body.enabled, false, "what is stored");
    await done();
  },

  async "paths are added by button and Enter, switched and deleted"(browser) {
    await clear(true);
    const { page, done } = await visit(browser, { path: PAGE });
    await page.getByText("No paths are allowed yet").waitFor();
    await page.getByRole("button", { name: "Add path" }).click();
    await page.getByRole("alert").getByText("Enter a path").waitFor();
    await page.locator("input[name=path]").fill("/srv/one/../one");
    await page.locator("input[name=description]").fill("first");
    await page.getByRole("button", { name: "Add path" }).click();
    const first = page.locator("[data-path]", { hasText: "/srv/one" });
    await first.getByText("first").waitFor();
    await page.locator("input[name=path]").fill("C:\\Users\\Documents");
    await page.keyboard.press("Enter");
    await page.locator("[data-path]", { hasText: "C:\\Users\\Documents" }).waitFor();
    await page.locator("input[name=path]").fill("/srv/one");
    await page.keyboard.press("Enter");
    await page.getByText("already in the list").waitFor();
    await first.getByRole("switch").click();
    await page.waitForFunction(() => document.querySelector("[data-path] [role=switch]").getAttribute("aria-checked") === "false");
    await page.reload();
    equal(await first.getByRole("switch").getAttribute("aria-checked"), "false", "the switch after a reload");
    await page.getByRole("button", { name: "Delete C:\\Users\\Documents" }).click();
    await page.locator("[data-path]", { hasText: "C:\\Users" }).waitFor({ state: "detached" });
    equal((await api("GET", "/api/sandbox")).body.paths.map((entry) => entry.path).join(), "/srv/one", "what is stored");
    await done();
  },

  async "a sensitive path is added with a warning, a hostile one is text"(browser) {
    await clear(true);
    const { page, done } = await visit(browser, { path: PAGE });
    await page.locator("input[name=path]").fill("/etc");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.locator("[data-path]", { hasText: "/etc" }).locator(".badge.warn").waitFor();
    // The server decides which paths are sensitive.
    for (const [path, warnings] of [["/var/log/app", 0], ["/srv/backup/.ssh", 1]]) {
      await page.locator("input[name=path]").fill(path);
      await page.keyboard.press("Enter");
      const entry = page.locator("[data-path]", { hasText: path });
      await entry.waitFor();
      equal(await entry.locator(".badge.warn").count(), warnings, path);
    }
    await page.locator("input[name=path]").fill("/srv/<img src=x onerror=alert(1)>\u202Egpj");
    await page.locator("input[name=description]").fill("<script>alert(1)</script>");
    await page.keyboard.press("Enter");
    await page.locator("[data-path]", { hasText: "<img src=x onerror=alert(1)>⟨U+202E⟩gpj" }).waitFor();
    equal(await page.locator("main img, main script").count(), 0, "elements made of a path");
    await clear(true);
    await done();
  },

  async "the Chinese words are those of the contract"(browser) {
    await clear(true);
    await api("POST", "/api/sandbox/paths", { path: "/srv/docs", description: "文档目录" });
    await api("POST", "/api/sandbox/paths", { path: "/etc" });
    const { page, done } = await visit(browser, { path: PAGE, language: "zh-CN" });
    await page.getByRole("switch", { name: "启用 Sandbox 模式" }).waitFor();
    await page.getByRole("heading", { name: "允许的路径" }).waitFor();
    const [path, description, button] = await Promise.all(
      [page.getByLabel("路径", { exact: true }), page.getByLabel("描述"), page.getByRole("button", { name: "添加路径" })].map((part) => part.boundingBox()),
    );
    expect(path.x < description.x && description.x < button.x, "path, description and button do not stand in this order");
    await page.getByText("文档目录").waitFor();
    await page.locator("[data-path]", { hasText: "/etc" }).getByText("这里是机器的配置").waitFor();
    await page.getByRole("button", { name: "删除 /etc" }).click();
    await page.getByRole("button", { name: "删除 /srv/docs" }).click();
    await page.getByText("还没有允许的路径").waitFor();
    await done();
  },

  async "a user sees the switch and cannot flip it"(browser) {
    await clear(true);
    const made = (await api("POST", "/api/tokens", { role: "user", user_id: "carl" })).body;
    const { page, done } = await visit(browser, { path: PAGE, by: made.token });
    await page.getByText("Only an operator or the owner").waitFor();
    equal(await page.getByRole("switch", { name: "Enable sandbox mode" }).isDisabled(), true, "the switch");
    equal(await page.locator("input[name=path]").count(), 0, "the form");
    await done();
  },
};
