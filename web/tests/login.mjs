import { api, base, equal, expect, token, visit } from "./browser.mjs";

export const tests = {
  async "a wrong token is told, a right one leads to the page that was meant"(browser) {
    const { page, done } = await visit(browser, { path: "/console/audit", by: null, may: ["/api/login"] });
    await page.waitForURL("**/login?to=/console/audit");
    await page.getByLabel("Token").fill("rw_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").getByText("This token is not valid").waitFor();
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Audit" }).waitFor();
    equal(await page.evaluate(() => document.cookie), "", "a script sees the cookie");
    await page.getByRole("button", { name: "Log out" }).click();
    await page.waitForURL("**/login**");
    await done();
  },

  async "the link that the server prints logs its owner in once"(browser) {
    const path = process.env.RINGWALL_LINK.slice(base.length);
    expect(process.env.RINGWALL_LINK.startsWith(`${base}/login#`), process.env.RINGWALL_LINK);
    const { page, done } = await visit(browser, { path, by: null });
    await page.waitForURL("**/console/overview");
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    equal(await page.evaluate(async () => (await (await fetch("/api/me")).json()).role), "owner", "who came in");
    await done();
    const again = await visit(browser, { path, by: null, may: ["/api/login"] });
    await again.page.getByText("This link has already been used").waitFor();
    equal(await again.page.evaluate(async () => (await fetch("/api/me")).status), 401, "the second use");
    await again.done();
  },

  async "a link that was used says so, and its code is not left in the address"(browser) {
    const { page, done } = await visit(browser, { path: `/login#${"0".repeat(32)}`, by: null, may: ["/api/login"] });
    await page.getByText("This link has already been used").waitFor();
    equal(new URL(page.url()).hash, "", "the address");
    await done();
  },

  async "nobody is led elsewhere after logging in"(browser) {
    const { page, done } = await visit(browser, { path: "/login?to=//evil.example/", by: null });
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.waitForURL("**/console/overview");
    await done();
  },

  async "a revoked token ends what is open"(browser) {
    const made = (await api("POST", "/api/tokens", { role: "operator" })).body;
    const { page, done } = await visit(browser, { path: "/console/execs", by: made.token, may: [base] });
    await page.getByRole("heading", { name: "Execs" }).waitFor();
    await api("DELETE", `/api/tokens/${made.id}`);
    await page.waitForURL("**/login**");
    await done();
  },

  async "the policy is in force"(browser) {
    const { page, context } = await visit(browser, { path: "/console/overview" });
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    const refused = await page.evaluate(async () => {
      const found = [];
      document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
      const script = document.createElement("script");
      script.textContent = "window.planted = 1";
      const style = document.createElement("style");
      style.textContent = "body { display: none }";
      const image = document.createElement("img");
      image.src = "https://evil.example/x.png";
      document.body.append(script, style, image);
      document.body.setAttribute("style", "display: none");
      await fetch("https://evil.example/").catch(() => {});
      // Each event is delivered in its own task.
      for (let turn = 0; turn < 600 && new Set(found).size < 5; turn += 1) await new Promise((resolve) => setTimeout(resolve, 50));
      return { found: [...new Set(found)].sort(), planted: "planted" in window, shown: getComputedStyle(document.body).display };
    });
    equal(refused.planted, false, "an inline script ran");
    equal(refused.shown, "block", "an inline style held");
    for (const part of ["script-src-elem", "style-src-elem", "style-src-attr", "img-src", "connect-src"]) {
      expect(refused.found.includes(part), `${part} was not refused: ${refused.found}`);
    }
    await context.close();
  },
};
