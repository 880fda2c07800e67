import { readFileSync } from "node:fs";

import { api, begin, ended, equal, expect, until, visit } from "./browser.mjs";

export const tests = {
  async "output is seen while it is printed, and the end without a reload"(browser) {
    // Continues when the page has shown the first line; a file tells the box.
    const id = await begin("echo first; while [ ! -e go ]; do sleep 0.05; done; printf '\\033[32mgreen\\033[0m \\033[38;2;255;0;0mred\\033[0m\\n'; echo kept > /workspace/artifacts/left.txt");
    const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
    await page.locator(".xterm-rows").getByText("first").waitFor();
    await page.locator("[data-status=RUNNING]").waitFor();
    const helper = await begin("touch go");
    await ended(helper);
    await page.locator("[data-status=SUCCEEDED]").waitFor();
    await page.locator(".xterm-rows").getByText("green").waitFor();
    const colour = await page.locator(".xterm-rows span", { hasText: "green" }).first().evaluate((span) => getComputedStyle(span).color);
    expect(colour !== "rgb(31, 35, 40)", `green is shown as ${colour}`);
    await page.getByText("left.txt", { exact: true }).waitFor();
    await page.locator("tr", { hasText: "left.txt" }).getByRole("button", { name: "View" }).click();
    await page.locator("[data-artifact]").getByText("kept").waitFor();
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator("tr", { hasText: "left.txt" }).getByRole("link", { name: "Download" }).click()]);
    equal(readFileSync(await file.path(), "utf8"), "kept\n", "the downloaded artifact");
    await done();
  },

  async "a running exec is cancelled from the page"(browser) {
    const id = await begin("echo on; sleep 1000");
    const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
    await page.locator(".xterm-rows").getByText("on").waitFor();
    await page.getByRole("button", { name: "Cancel exec" }).click();
    await page.getByRole("button", { name: "Yes" }).click();
    await page.locator("[data-status=CANCELLED]").waitFor();
    await done();
  },

  async "hostile output is shown and obeyed in nothing"(browser) {
    const script = [
      "printf '<img src=x onerror=alert(1)><script>alert(2)</script>\\n'",
      "printf '\\033]0;owned\\007\\033[2J\\033[Hhidden\\n'",
      "printf 'a\\342\\200\\256b\\n'",
      "printf '\\033]8;;https://evil.example/\\033\\\\link\\033]8;;\\033\\\\\\n'",
    ].join("; ");
    const id = await begin(script);
    await ended(id);
    const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
    const rows = page.locator(".xterm-rows");
    await rows.getByText("<img src=x onerror=alert(1)>").waitFor();
    await rows.getByText("hidden").waitFor();
    // Rows are rendered one after another.
    const text = await until("the last row", async () => {
      const shown = await rows.textContent();
      return shown.includes("evil.example") ? shown : null;
    });
    for (const part of ["␛]0;owned␇", "␛[2J␛[Hhidden", "a⟨U+202E⟩b", "␛]8;;https://evil.example/"]) expect(text.includes(part), `${part} is not in ${text}`);
    equal(await page.locator("[data-output] a[href*=evil], [data-output] img, [data-output] script").count(), 0, "elements made of output");
    expect(!(await page.title()).includes("owned"), "the title was changed");
    await page.getByRole("button", { name: "Plain text" }).click();
    expect((await page.locator("pre.output").textContent()).includes("a⟨U+202E⟩b"), "the plain view turns the writing");
    await done();
  },

  async "hostile names and a very long command stay text"(browser) {
    const name = "<b onmouseover=alert(1)>\u202Etxt.exe";
    // An argument has at most 128 KiB on Linux: a script of this length runs.
    const script = `echo y > "/workspace/artifacts/${name}" # <img src=x onerror=alert(1)>`;
    const id = await begin(script + "x".repeat(131_071 - Buffer.byteLength(script)));
    await ended(id);
    const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
    await page.locator("[data-status=SUCCEEDED]").waitFor();
    await page.locator("td", { hasText: "<b onmouseover=alert(1)>⟨U+202E⟩txt.exe" }).waitFor();
    const command = page.locator("[data-command]");
    const inert = async (length) => {
      const text = await command.textContent();
      expect(text.includes("<img src=x onerror=alert(1)>") && text.length > length, `the command is not whole: ${text.length}`);
      equal(await page.locator("b[onmouseover], main img").count(), 0, "elements made of a name or a command");
      const height = (await command.boundingBox()).height;
      expect(height < 400, `the command is ${height} high`);
    };
    await inert(131_000);
    // A longer one is refused. The record keeps an excerpt of 4 KiB, which is shown.
    const long = { kind: "shell", command: "bash", args: ["-lc", script + "x".repeat(200_000)] };
    const refused = await api("POST", "/sandbox/execs", { project_id: "console", exec: long });
    equal(`${refused.status} ${refused.body.detail.code}`, "403 POLICY_DENIED", "a word that no kernel takes");
    expect(refused.body.detail.message.includes("131071"), refused.body.detail.message);
    await page.goto(new URL(`/console/execs/${refused.body.detail.exec_id}`, page.url()).href);
    await page.locator("[data-status=POLICY_DENIED]").waitFor();
    await inert(4_000);
    expect((await command.textContent()).length < 5_000, "a refused command is stored whole");
    await done();
  },
};
