import { api, begin, ended, equal, until, visit } from "./browser.mjs";

/** What a terminal shows now. */
function screen(page) {
  return page.locator("[data-seat] .xterm-rows").innerText();
}

async function shows(page, text) {
  await until(`${text} in the terminal`, async () => (await screen(page)).replaceAll("\u00a0", " ").includes(text));
}

async function connected(page) {
  await page.locator("[data-seat][data-state=connected]").waitFor();
}

export const tests = {
  async "a session's terminal is typed into, resized, left and opened again"(browser) {
    await api("POST", "/api/sessions", { session_id: "seat" });
    const { page, done } = await visit(browser, { path: "/console/sessions", may: ["/api/browser"] });
    await page.locator('[data-session="seat"] [data-terminal]').click();
    await connected(page);
    await page.keyboard.type("echo answer-$((40+2)); stty size > wide\n");
    await shows(page, "answer-42");
    const sides = async () => (await api("GET", "/api/sessions/seat/files/wide")).body;
    const before = String(await until("the size", sides));
    await page.setViewportSize({ width: 800, height: 600 });
    await until("a smaller window", async () => {
      await page.keyboard.type("stty size > wide\n");
      const [rows, cols] = String(await sides()).split(" ").map(Number);
      const [tall, wide] = before.split(" ").map(Number);
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
    // Whoever leaves the page hangs up.
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
    const tile = page.locator("[data-pool]");
    await tile.getByText(`/ ${max}`).waitFor();
    equal(await tile.locator("meter").getAttribute("max"), String(max), "the meter");
    await done();
  },

  async "an exec's connections are listed with what became of them"(browser) {
    const id = await begin("true");
    await ended(id);
    const { page, done } = await visit(browser, { path: `/console/execs/${id}` });
    await page.locator("[data-output]").waitFor();
    await page.locator(".tabs a", { hasText: "Network" }).click();
    await page.locator("[data-network]").getByText("asked for no connection").waitFor();
    const one = { at: 1_760_000_000_000, duration_ms: 12, host: "evil.example\u202e", port: 443, address: null, outcome: "refused", reason: "not in the list", bytes_sent: 0, bytes_received: 0 };
    const other = { ...one, host: "good.example", address: "192.0.2.7:443", outcome: "allowed", reason: "good.example", bytes_received: 2048 };
    await page.route("**/network", (route) => route.fulfill({ json: { connections: [one, other], left_out: 3 } }));
    await page.reload();
    await page.locator("[data-outcome=refused]", { hasText: "evil.example⟨U+202E⟩:443" }).waitFor();
    await page.locator("[data-outcome=allowed]", { hasText: "2.0 KiB" }).waitFor();
    await page.getByText("3 more are not listed").waitFor();
    await done();
  },

  async "a session's browser is shown with what was done in it"(browser) {
    const { page, done } = await visit(browser, { path: "/console/sessions/looked?tab=browser", may: ["/api/browser"] });
    await page.getByText("No browser is open").waitFor();
    const screenshot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const actions = [
      { action_id: "b", action: "click", detail: { target: "<img src=x onerror=alert(1)>" }, actor: "t_1", status: "refused", error: "no", url: null, started_at: 1_760_000_001_000, ended_at: null },
      { action_id: "a", action: "navigate", detail: { url: "http://a.example/", wait: 3 }, actor: "t_1", status: "succeeded", error: null, url: null, started_at: 1_760_000_000_000, ended_at: 1_760_000_000_100 },
    ];
    const shown = { kind: "external", url: "http://a.example/\u202e", title: "<b>A</b>", screenshot, actions };
    await page.route("**/api/browser/**", (route) => route.fulfill({ json: shown }));
    await page.reload();
    await page.locator("[data-address]", { hasText: "http://a.example/⟨U+202E⟩" }).waitFor();
    await page.getByText("<b>A</b>").waitFor();
    await page.locator("[data-browser] tr", { hasText: "onerror" }).getByText("refused").waitFor();
    await page.locator("[data-browser] td", { hasText: "url: http://a.example/, wait: 3" }).waitFor();
    await until("the picture", () => page.locator("img.picture").evaluate((image) => image.naturalWidth === 1));
    equal(await page.locator("[data-browser] td img").count(), 0, "elements made of what was done");
    await done();
  },
};
