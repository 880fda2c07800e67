import { readFileSync } from "node:fs";

import { api, base, equal, expect, token, visit } from "./browser.mjs";
import { zip } from "./zip.mjs";

const SKILL = `---
name: count
description: Counts the lines of a file.
---
# Count

Run \`python3 main.py FILE\`. <script>alert(1)</script>

[good](https://example.org/) [bad](javascript:alert(1)) ![pic](https://evil.example/x.png)

\`\`\`python
print(1)
\`\`\`
`;

export const tests = {
  async "a file is uploaded, edited, downloaded and deleted"(browser) {
    const { page, done } = await visit(browser, { path: "/console/workspaces" });
    await page.getByText("No files yet.").waitFor();
    await page.locator("[data-files] input[type=file]").setInputFiles({ name: "list.txt", mimeType: "text/plain", buffer: Buffer.from("apples\npears\n") });
    await page.getByRole("button", { name: "list.txt" }).click();
    await page.locator("[data-file]").getByText("pears").waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await page.locator("textarea").fill("apples\nplums\n");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved files/list.txt.").waitFor();
    const stored = await api("GET", "/v1/default/content?path=files/list.txt&user=default");
    equal(stored.body.data.content, "apples\nplums\n", "what is stored");
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator("[data-file] a", { hasText: "Download" }).click()]);
    equal(file.suggestedFilename(), "list.txt", "the name of the download");
    equal(readFileSync(await file.path(), "utf8"), "apples\nplums\n", "the download");
    await page.locator("[data-file]").getByRole("button", { name: "Delete" }).click();
    await page.locator("[data-file]").getByRole("button", { name: "Delete" }).click();
    await page.getByText("Deleted files/list.txt.").waitFor();
    await done();
  },

  async "a new file in a directory; a path that leads out is refused where it stands"(browser) {
    const { page, done } = await visit(browser, { path: "/console/workspaces?user=ann&agent=helper", may: ["/v1/"] });
    await page.getByRole("button", { name: "New file" }).click();
    await page.locator("input[name=new-path]").fill("files/../../secret");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.locator("input[name=new-path]").fill("files/notes/plan.py");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "notes" }).click();
    await page.getByRole("button", { name: "Edit" }).click();
    await page.locator("textarea").fill("def plan():\n    return 'x\u202Ey'\n");
    await page.keyboard.press("Control+s");
    await page.locator("[data-file] .hljs-keyword", { hasText: "def" }).waitFor();
    await page.locator("[data-file]").getByText("x⟨U+202E⟩y").waitFor();
    const stored = await api("GET", "/v1/helper/content?path=files/notes/plan.py&user=ann");
    expect(stored.body.data.content.includes("x\u202Ey"), "what is stored is not what was there");
    await done();
  },

  async "hostile file names are text"(browser) {
    const name = "files/<img src=x onerror=alert(1)>\u202Egpj.sh";
    await api("POST", "/v1/default/write?user=eve", { file_path: name, content: "x" });
    const { page, done } = await visit(browser, { path: "/console/workspaces?user=eve&agent=default" });
    const button = page.locator(".tree button", { hasText: "⟨U+202E⟩gpj.sh" });
    await button.click();
    await page.locator("[data-file] h2", { hasText: "⟨U+202E⟩gpj.sh" }).waitFor();
    equal(await page.locator("main img").count(), 0, "elements made of a name");
    await done();
  },

  async "each skill says whose it is"(browser) {
    const skill = (name, folder) => zip({ [`${folder}/SKILL.md`]: `name: ${name}\ndescription: x\n` });
    const push = async (query, data) => {
      const form = new FormData();
      form.append("file", new Blob([data]), "s.zip");
      const answer = await fetch(`${base}/v1/skills/layla/layered/upload${query}`, { method: "POST", headers: { authorization: `Bearer ${token}` }, body: form });
      equal(answer.status, 200, "an upload");
    };
    await push("?scope=baseline", skill("shared", "shared"));
    await push("?scope=baseline", skill("changed", "changed"));
    await push("", skill("mine", "of-mine"));
    await api("POST", "/v1/layered/write?user=layla", { file_path: "skills/changed/more.txt", content: "x" });
    for (const [language, words] of [["en-US", ["shared, modified", "own", "shared"]], ["zh-CN", ["共享，已修改", "自有", "共享"]]]) {
      const { page, done } = await visit(browser, { path: "/console/workspaces?user=layla&agent=layered&tab=skills", language });
      const badges = page.locator("[data-layer]");
      await badges.first().waitFor();
      equal((await badges.allTextContents()).join("|"), words.join("|"), language);
      // The skill's directory has another name than the skill.
      await page.locator("tr", { hasText: "mine" }).getByRole("button").first().click();
      await page.locator("[data-file] h2", { hasText: "skills/of-mine/SKILL.md" }).waitFor();
      await done();
    }
  },

  async "a skill is uploaded and its page is harmless"(browser) {
    const { page, done } = await visit(browser, { path: "/console/workspaces?user=default&agent=default&tab=skills", may: ["/v1/"] });
    await page.getByText("No skills yet.").waitFor();
    const input = page.locator("[data-skills] input[type=file]");
    await input.setInputFiles({ name: "bad.zip", mimeType: "application/zip", buffer: Buffer.from("no zip") });
    await page.getByRole("alert").waitFor();
    await input.setInputFiles({ name: "count.zip", mimeType: "application/zip", buffer: zip({ "count/SKILL.md": SKILL, "count/main.py": "print(1)\n" }) });
    await page.getByText("Uploaded count.zip.").waitFor();
    await page.getByRole("button", { name: "View" }).click();
    const prose = page.locator(".prose");
    await prose.getByRole("heading", { name: "Count" }).waitFor();
    expect((await prose.textContent()).includes("<script>alert(1)</script>"), "HTML is not shown as text");
    equal(await prose.locator("script, img, a[href^=javascript]").count(), 0, "elements made of a skill");
    equal(await prose.locator("a").count(), 1, "links");
    await prose.locator(".hljs-built_in, .hljs-title, .hljs-number").first().waitFor();
    await page.locator("[data-skills]").getByRole("button", { name: "Delete" }).click();
    await page.locator("[data-skills]").getByRole("button", { name: "Delete" }).click();
    await page.getByText("Deleted count.").waitFor();
    await done();
  },

  async "how far an upload is can be seen"(browser) {
    const { page, context, done } = await visit(browser, { path: "/console/workspaces?user=slow&agent=default&tab=skills" });
    await page.getByText("No skills yet.").waitFor();
    // The page records all messages, so that none is missed.
    await page.evaluate(() => {
      window.said = [];
      const note = () => {
        const status = document.querySelector("[data-skills] [role=status]:has(progress)");
        if (status) window.said.push([status.textContent.trim(), status.querySelector("progress").value, document.querySelector("[data-skills] input[type=file] + button").disabled]);
      };
      new MutationObserver(note).observe(document.querySelector("[data-skills]"), { subtree: true, childList: true, characterData: true, attributes: true });
    });
    const line = await context.newCDPSession(page);
    await line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 2_000_000 });
    const file = { name: "large.zip", mimeType: "application/zip", buffer: zip({ "large/SKILL.md": SKILL, "large/data.bin": "x".repeat(3_000_000) }) };
    await page.locator("[data-skills] input[type=file]").setInputFiles(file);
    await page.getByText("Uploaded large.zip.").waitFor();
    const said = await page.evaluate(() => window.said);
    const shares = said.map(([words]) => words.match(/^Uploading… (\d+) %$/)?.[1]).filter((share) => share !== undefined).map(Number);
    expect(shares.some((share) => share > 0 && share < 100), `nothing between the beginning and the end: ${JSON.stringify(said)}`);
    expect(shares.every((share, index) => index === 0 || share >= shares[index - 1]), `it goes back: ${shares}`);
    expect(said.some(([words, share]) => words === "Checking and unpacking…" && share === 1), `the end is not said: ${JSON.stringify(said)}`);
    expect(said.every(([, , isDisabled]) => isDisabled), "another file could be chosen meanwhile");
    equal(await page.locator("[data-skills] [role=status]:has(progress)").count(), 0, "what is said afterwards");
    await done();
  },
};
