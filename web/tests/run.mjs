// The console in a real browser against a real server: RINGWALL_URL and RINGWALL_TOKEN say which. `node tests/run.mjs [WORDS]` runs
// those tests whose name has the words in it. tests/console starts the server and calls this.

import { api, lately, launch } from "./browser.mjs";
import { tests as approvals } from "./approvals.mjs";
import { tests as code } from "./code.mjs";
import { tests as login } from "./login.mjs";
import { tests as output } from "./output.mjs";
import { tests as pages } from "./pages.mjs";
import { tests as sandbox } from "./sandbox.mjs";
import { tests as sessions } from "./sessions.mjs";
import { tests as work } from "./work.mjs";

const wanted = process.argv.slice(2).join(" ");
const all = Object.entries({ ...login, ...work, ...pages, ...output, ...sandbox, ...approvals, ...code, ...sessions }).filter(([name]) => name.includes(wanted));
const browser = await launch();
let failed = 0;
for (const [name, test] of all) {
  const begun = Date.now();
  try {
    await test(browser);
    console.log(`ok      ${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${[error.stack, ...lately].join("\n")}`);
    // Closes what the test left open, which would affect later tests.
    const open = (await api("GET", "/api/approvals?status=pending&limit=1000")).body.approvals;
    for (const { id } of open) await api("POST", `/api/approvals/${id}`, { approved: false });
  }
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
console.log(`${all.length - failed} of ${all.length} hold`);
process.exit(failed || all.length === 0 ? 1 : 0);
