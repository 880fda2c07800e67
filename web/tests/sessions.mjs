import { api, begin, ended, equal, expect, serve, until, visit } from "./browser.mjs";

/** What a terminal shows now. */
function screen(page) {
  return page.locator("[data-terminal-state] .xterm-rows").innerText();
}

async function shows(page, text) {
  await until(`${text} in the terminal`, async () => (await screen(page)).replaceAll("\u00a0", " ").includes(text));
}

async function connected(page) {
  await page.locator("[data-terminal-state=connected]").waitFor();
}

export const tests = {
  async "a session's terminal is typed into, resized, left and opened again"(browser) {
    await api("POST", "/api/sessions", { session_id: "seat" });
    const { page, done } = await visit(browser, { path: "/console/sessions", may: ["/api/browser"] });
    await page.locator('[data-session="seat"] [data-terminal]').click();
    await connected(page);
    // Renamed into place, so that no reader sees it half written.
    const measure = "stty size > size && mv size wide\n";
    await page.keyboard.type(`echo answer-$((40+2)); ${measure}`);
    await shows(page, "answer-42");
    const sides = async () => {
      const { status, body } = await api("GET", "/api/sessions/seat/files/wide");
      return status === 200 ? String(body).split(" ").map(Number) : null;
    };
    const [tall, wide] = await until("the size", sides);
    await page.setViewportSize({ width: 800, height: 600 });
    await until("a smaller window", async () => {
      await page.keyboard.type(measure);
      const [rows, cols] = await sides();
      return rows < tall && cols < wide;
    });
    await page.keyboard.type("exit 3\n");
    await page.locator("[data-said]", { hasText: "3" }).waitFor();
    await page.locator("[data-again]").click();
    await connected(page);
    await page.keyboard.type("echo again-$((1+1))\n");
    await shows(page, "again-2");
    const exec = await until("the exec", async () => {
      const { body } = await api("GET", "/sandbox/execs?status=RUNNING");
      return body.find((one) => one.conversation_id === "seat");
    });
    // Leaving the page ends the terminal.
    await page.locator(".tabs a", { hasText: "Browser" }).click();
    await page.locator("[data-browser]").waitFor();
    await until("the end of the terminal", async () => (await api("GET", `/sandbox/execs/${exec.exec_id}`)).body.status === "CANCELLED");
    await done();
  },

  async "a terminal that cannot be opened says why, in Chinese too"(browser) {
    const { page, done } = await visit(browser, { path: "/console/sessions/a..b", language: "zh-CN", may: ["a..b"] });
    await page.locator("[data-again]", { hasText: "重新连接" }).waitFor();
    await page.locator("[data-said]", { hasText: /^无法打开终端。.*session/ }).waitFor();
    await page.locator(".tabs a", { hasText: "浏览器" }).waitFor();
    await done();
  },

  async "the overview says how full the pool is"(browser) {
    const { page, done } = await visit(browser, { path: "/console/overview" });
    const { max } = (await api("GET", "/api/pool")).body;
    await page.locator("[data-figure=pool]").getByText(`/ ${max}`).waitFor();
    await done();
  },

  async "an exec's connections are listed with what became of them"(browser) {
    const pages = await serve({ "/": "x".repeat(2048) });
    await api("PUT", "/settings", { net: { mode: "allowlist", allow: [pages.host] }, egress: { allowed_hosts: [pages.host] } });
    try {
      const id = await begin(`unset no_proxy NO_PROXY; curl -sS http://${pages.host}/ | wc -c; curl -sS http://refused.example/; true`);
      await ended(id);
      const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
      await page.locator("[data-output]").waitFor();
      equal((await page.locator("[data-net] td").allTextContents()).join("|"), "Network|allowed hosts only|settings", "whose word the network is");
      await page.locator(".tabs a", { hasText: "Network" }).click();
      await page.locator("[data-outcome=refused]", { hasText: "refused.example:80" }).getByText("it is not among the hosts").waitFor();
      const allowed = page.locator("[data-outcome=allowed]", { hasText: pages.host });
      await allowed.getByText(/^2\.\d KiB$/).waitFor();
      await done();
    } finally {
      await api("PUT", "/settings", { net: { mode: "none", allow: [] }, egress: { allowed_hosts: [] } });
      await pages.close();
    }
    const quiet = await begin("true");
    await ended(quiet);
    const { page, done } = await visit(browser, { path: `/console/execs/${quiet}?tab=network` });
    await page.locator("[data-network]").getByText("asked for no connections").waitFor();
    await done();
  },

  async "a session's browser is shown with what was done in it"(browser) {
    const { page, done } = await visit(browser, { path: "/console/sessions/looked?tab=browser", may: ["/api/browser"] });
    await page.getByText("No browser is open").waitFor();
    const pages = await serve({ "/form": "<title>&lt;b>Form&lt;/b> \u202E</title><h1>A form</h1>" });
    await api("PUT", "/settings", { browser: { allowed_hosts: [pages.host] } });
    try {
      const act = async (action, params) => (await api("POST", "/api/browser/looked", { action, params })).body;
      const opened = await act("navigate", { url: `http://${pages.host}/form` });
      expect(opened.success, JSON.stringify(opened));
      equal((await act("click", { text: "<img src=x onerror=alert(1)>" })).success, false, "what is not there");
      expect((await act("screenshot", {})).success, "no picture was taken");
      await page.locator("[data-address]", { hasText: `http://${pages.host}/form` }).waitFor();
      await page.getByRole("heading", { name: "<b>Form</b> ⟨U+202E⟩" }).waitFor();
      await page.locator("[data-browser] tr", { hasText: "onerror" }).getByText("failed", { exact: true }).waitFor();
      await page.locator("[data-browser] tr", { hasText: "navigate" }).getByText("done", { exact: true }).waitFor();
      await until("the picture", () => page.locator("img.picture").evaluate((image) => image.naturalWidth > 300));
      equal(await page.locator("[data-browser] td img").count(), 0, "elements made of what was done");
      await act("close", {});
      // Its actions are not execs although their ids look alike: the audit page links to no exec
      // page.
      await page.goto(new URL("/console/audit", page.url()).href);
      await page.locator("tbody tr", { hasText: "browser.outcome" }).first().waitFor();
      equal(await page.locator("tbody tr", { hasText: "browser." }).locator("a").count(), 0, "links to execs that there are not");
      await done();
    } finally {
      await api("PUT", "/settings", { browser: { allowed_hosts: [] } });
      await pages.close();
    }
  },
};
