"""The browser tools with the official MCP client. argv[1] is JSON as for `mcp_client.py`.

Each tool is used on pages that this script serves on loopback (`browser.allowed_hosts` permits that). Its effect is checked in
the page, in the session's files, or in the record.
"""

import asyncio
import contextlib
import http.server
import json
import threading

from mcp_support import SERVER, ask, connected, good

FIRST = "<title>First</title>the first page"
# Shows the last event.
TOOLS = """<title>Tools</title><p id=told></p>
<input id=q oninput="told.textContent = 'typed ' + q.value">
<select id=s onchange="told.textContent = 'chose ' + s.value"><option>one<option>two</select>
<input id=f type=file onchange="f.files[0].text().then((text) => told.textContent = f.files[0].name + ' has ' + text)">
<a id=d href=/file>save</a>
<button id=b onclick="setTimeout(() => told.textContent = 'came later', 300)">Later</button>
<div style='height:5000px'></div><p id=end>end</p>
<script>onscroll = () => told.textContent = scrollY > 4000 ? 'at the end' : 'down by ' + scrollY</script>"""


class Pages(http.server.BaseHTTPRequestHandler):
    # Set when /slow was requested, and when its client has disconnected.
    is_requested, is_left = threading.Event(), threading.Event()

    def do_GET(self):
        if self.path == "/slow":
            self.is_requested.set()
            # Blocks until the client disconnects.
            self.rfile.read(1)
            self.is_left.set()
            return
        self.send_response(200)
        if self.path == "/file":
            self.send_header("Content-Disposition", 'attachment; filename="report.txt"')
        page = {"/first": FIRST, "/tools": TOOLS, "/file": "downloaded"}.get(self.path, "").encode()
        self.send_header("Content-Type", "application/octet-stream" if self.path == "/file" else "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


async def wait_for_text(client, text):
    """Waits, because the page shows an event a little later."""
    good(await client.call_tool("browser_wait_for", {"text": text, "timeout": 60}))


async def check_page_tools(client, at):
    opened = good(await client.call_tool("browser_navigate", {"url": at + "/first"}))["data"]
    assert (opened["title"], opened["status"], opened["browser"]) == ("First", 200, "external"), opened
    good(await client.call_tool("browser_navigate", {"url": at + "/tools"}))
    # A missing text fails after the timeout; a text that appears later is found.
    missing = await client.call_tool("browser_wait_for", {"text": "came later", "timeout": 1})
    assert missing.is_error and missing.structured_content["status"] == "FAILED", missing
    outline = good(await client.call_tool("browser_content", {"format": "outline"}))["data"]["content"]
    reference = next(line for line in outline.splitlines() if "Later" in line).split("[ref=")[1].split("]")[0]
    for element in [{"ref": reference}, {"selector": "#b"}, {"text": "Later"}]:
        good(await client.call_tool("browser_fill", {"selector": "#q", "value": "hell"}))
        await wait_for_text(client, "typed hell")
        good(await client.call_tool("browser_click", element))
        await wait_for_text(client, "came later")
    good(await client.call_tool("browser_fill", {"selector": "#q", "value": "hell"}))
    good(await client.call_tool("browser_press", {"key": "o"}))
    await wait_for_text(client, "typed hello")
    good(await client.call_tool("browser_press", {"key": "Backspace"}))
    await wait_for_text(client, "typed hell")
    good(await client.call_tool("browser_select", {"selector": "#s", "values": ["two"]}))
    await wait_for_text(client, "chose two")
    good(await client.call_tool("browser_scroll", {"y": 250}))
    await wait_for_text(client, "down by 250")
    good(await client.call_tool("browser_scroll", {"selector": "#end"}))
    await wait_for_text(client, "at the end")


async def check_file_tools(client):
    good(await client.call_tool("write_file", {"path": "data/in.txt", "content": "seven"}))
    good(await client.call_tool("browser_upload", {"selector": "#f", "files": ["data/in.txt"]}))
    await wait_for_text(client, "in.txt has seven")
    kept = good(await client.call_tool("browser_download", {"selector": "#d"}))["data"]
    assert kept["files"] == ["data/report.txt"], kept
    assert good(await client.call_tool("read_file", {"path": "data/report.txt"})) == {"content": "downloaded"}
    printed = good(await client.call_tool("browser_pdf", {}))["data"]
    assert printed["files"] == ["data/page.pdf"], printed
    ran = good(await client.call_tool("run_command", {"command": "head -c 5 data/page.pdf"}))
    assert ran["stdout"] == "%PDF-", ran
    back = good(await client.call_tool("browser_back", {}))["data"]
    assert back["title"] == "First", back
    shown = good(await client.call_tool("browser_content", {}))["data"]
    assert "the first page" in shown["content"], shown


async def check_cancelled_call_ends_action(client, at):
    """Cancels a navigation to a page that never responds."""
    Pages.is_requested.clear(), Pages.is_left.clear()
    calling = asyncio.create_task(client.call_tool("browser_navigate", {"url": at + "/slow", "timeout": 120}))
    assert await asyncio.to_thread(Pages.is_requested.wait, 60), "the page was not requested"
    newest = ask("GET", "/api/browser/mcp")["actions"][0]
    assert (newest["action"], newest["status"]) == ("navigate", "running"), newest
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    async with asyncio.timeout(60):
        while (newest := ask("GET", "/api/browser/mcp")["actions"][0])["status"] == "running":
            await asyncio.sleep(0.05)
    assert (newest["status"], newest["error"]) == ("failed", "it was cancelled"), newest
    # The browser is usable, and has closed the connection of the cancelled navigation.
    opened = good(await client.call_tool("browser_navigate", {"url": at + "/first"}))["data"]
    assert opened["title"] == "First" and "notes" not in opened, opened
    assert await asyncio.to_thread(Pages.is_left.wait, 60), "the connection is still open"


async def main():
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{pages.server_port}"
    ask("PUT", "/settings", {"browser": {"allowed_hosts": [host]}})
    at = f"http://{host}"
    async with connected(SERVER["owner"]) as client:
        if SERVER["mode"] != "legacy":
            await check_page_tools(client, at)
            await check_file_tools(client)
        await check_cancelled_call_ends_action(client, at)
        good(await client.call_tool("browser_close", {}))
    actions = [action["action"] for action in ask("GET", "/api/browser/mcp")["actions"]]
    print(json.dumps({"actions": actions}))


# A hang fails after this time.
asyncio.run(asyncio.wait_for(main(), 600))
