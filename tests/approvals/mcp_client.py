"""A whole task through the official MCP client: argv[1] is JSON that says which server and which way of the protocol.

What must hold is asserted here, and the last line printed is what a test may want to look at from outside.
"""

import asyncio
import contextlib
import http.server
import io
import json
import pathlib
import threading
import urllib.request
import zipfile

from mcp_site import INVALID, SITE, Person, ask, connected, good, is_missing

TEXT = "what the file says"
MANIFEST = {
    "schema_version": "1.0",
    "id": "mcp.count",
    "name": "Count words",
    "description": "Counts the words of a text and keeps the count as count.json.",
    "interface": {
        "inputs": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        }
    },
    "runtime": {
        "kind": "native",
        "entrypoint": [
            "python",
            "-c",
            "import json, os\n"
            "words = len(json.loads(os.environ['SKILL_INPUTS'])['text'].split())\n"
            "json.dump({'words': words}, open('/workspace/artifacts/count.json', 'w'))\n"
            "print(words)",
        ],
    },
    "permissions": {"fs": {"read": [], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
}


# A skill as a person uploads it: it works on the agent's own files, and says what it needs.
SKILL = {
    "SKILL.md": "---\nname: report\ndescription: Makes a report of figures.\n---\n"
    "Put the figures into files/figures.txt, run `python3 report.py`, and read files/report.txt.\n",
    "report.py": "import pathlib, sys\n"
    "figures = pathlib.Path('/workspace/files/figures.txt')\n"
    "if not figures.exists():\n"
    "    sys.exit('the figures are missing')\n"
    "pathlib.Path('/workspace/files/report.txt').write_text('report: ' + figures.read_text().upper())\n",
}


async def tools_are_described(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name in ["run_code", "run_command", "run_skill", "read_file", "write_file", "edit_file", "list_files", "delete_file", "approval_status"]:
        tool = tools[name]
        assert tool.input_schema["additionalProperties"] is False and tool.output_schema["type"] == "object", tool
        assert tool.annotations.open_world_hint is False, tool
        assert name.startswith("run_") is ("no network" in tool.description), tool
        assert tool.annotations.read_only_hint is (name in ("read_file", "list_files", "approval_status")), tool
    assert "skill.shell.run" in tools, tools.keys()
    return tools


async def files_are_shared_with_commands(client):
    good(await client.call_tool("write_file", {"path": "data/a.txt", "content": "one\ntwo\n"}))
    good(await client.call_tool("edit_file", {"path": "/workspace/data/a.txt", "old_string": "two", "new_string": "2"}))
    read = good(await client.call_tool("read_file", {"path": "data/a.txt", "offset": 2}))
    assert read == {"content": "2\n"}, read
    ran = good(await client.call_tool("run_command", {"command": "cat data/a.txt; echo x >&2; echo left > data/b.txt"}))
    assert (ran["stdout"], ran["stderr"], ran["exit_code"], ran["status"]) == ("one\n2\n", "x\n", 0, "SUCCEEDED"), ran
    listed = good(await client.call_tool("list_files", {"path": "data"}))
    assert listed == {"paths": ["data/a.txt", "data/b.txt"]}, listed
    good(await client.call_tool("delete_file", {"path": "data/a.txt"}))
    missing = await client.call_tool("read_file", {"path": "data/a.txt"})
    assert missing.is_error and "not found" in missing.content[0].text, missing
    # What is the agent's own stays out of sessions.
    good(await client.call_tool("write_file", {"path": "skills/own/SKILL.md", "content": "name: own\n"}))
    failed = await client.call_tool("run_command", {"command": "ls skills"})
    assert not failed.is_error and failed.structured_content["exit_code"] == 2, failed


async def code_is_run_and_judged(client, person):
    files = [{"path": "data/in.txt", "content": "seven"}]
    code = "print(open('data/in.txt').read().upper())\nopen('output/out.txt', 'w').write('x')"
    ran = good(await client.call_tool("run_code", {"language": "python", "code": code, "files": files}))
    assert (ran["stdout"], ran["files_created"], ran["sandbox_type"]) == ("SEVEN\n", ["output/out.txt"], "native"), ran
    assert ran["risk"]["level"] == "medium", ran
    failed = good(await client.call_tool("run_code", {"language": "shell", "code": "echo no; exit 3"}))
    assert (failed["status"], failed["exit_code"]) == ("FAILED", 3), failed
    # A context remembers; what it shows is shown.
    good(await client.call_tool("run_code", {"language": "python", "code": "seven = 7", "context_id": "c"}))
    told = await client.call_tool("run_code", {"language": "python", "code": "seven * 6", "context_id": "c"})
    assert good(told)["results"] == [{"text/plain": "42"}] and "42" in told.content[0].text, told
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    shown = await client.call_tool("run_code", {"language": "python", "code": figure, "context_id": "c"})
    pictures = [block for block in shown.content if block.type == "image"]
    assert [picture.mime_type for picture in pictures] == ["image/png"] and pictures[0].data.startswith("iVBOR"), shown
    assert "iVBOR" not in str(shown.structured_content), shown
    # What could do harm is asked about first, with all of it.
    person.says = {"answer": "once"}
    risky = {"language": "python", "code": "import subprocess\nprint(subprocess.run(['echo', 'hi'], capture_output=True).stdout)"}
    ran = good(await client.call_tool("run_code", risky))
    assert ran["stdout"] == "b'hi\\n'\n" and ran["risk"]["detected_patterns"], ran
    assert "subprocess.run(['echo', 'hi']" in person.asked[-1], person.asked
    person.says = {"answer": "deny"}
    denied = await client.call_tool("run_code", risky)
    assert denied.is_error and denied.structured_content["status"] == "POLICY_DENIED", denied
    asked = len(person.asked)
    refused = await client.call_tool("run_code", {"language": "shell", "code": "rm -rf /"})
    assert refused.is_error and len(person.asked) == asked, refused


async def what_is_wrong_is_said(client):
    for name, arguments, words in [
        ("read_file", {"path": "../x"}, "out of scope"),
        ("read_file", {"path": "/etc/passwd"}, "out of scope"),
        ("read_file", {}, "missing field `path`"),
        ("read_file", {"path": "a", "pth": "b"}, "unknown field"),
        ("run_command", {"command": "echo '"}, ""),
        ("run_code", {"language": "ruby", "code": "1"}, "unknown variant"),
        ("run_code", {"language": "python", "code": "1", "timeout": 301}, "timeout"),
        ("run_skill", {"skill": "none", "command": "ls"}, "not found"),
        ("run_skill", {"skill": "own", "command": "nc"}, "not allowed"),
        ("run_skill", {"skill": "../own", "command": "ls"}, ""),
        ("approval_status", {"approval_id": "a_0"}, "no approval"),
        ("skill.mcp.count", {"text": 1}, "text"),
    ]:
        wrong = await client.call_tool(name, arguments)
        assert wrong.is_error and words in wrong.content[0].text, (name, arguments, wrong)
    try:
        await client.call_tool("no_such_tool", {})
        raise AssertionError("an unknown tool was called")
    except Exception as error:
        assert "no tool" in str(error), error


async def a_skill_is_a_tool(client):
    result = await client.call_tool("skill.mcp.count", {"text": "one two three"})
    ran = good(result)
    assert ran["stdout"] == "3\n", ran
    links = [block for block in result.content if block.type == "resource_link"]
    assert [link.name for link in links] == ["count.json"], result
    read = await client.read_resource(links[0].uri)
    assert json.loads(read.contents[0].text) == {"words": 3}, read
    # The other name of it is understood, whichever is listed.
    assert good(await client.call_tool("skill_mcp_count", {"text": "one"}))["stdout"] == "1\n"


async def resources_can_be_read(client):
    listed = {str(resource.uri): resource for resource in (await client.list_resources()).resources}
    assert "ringwall://skills/own/SKILL.md" in listed and "ringwall://sessions/mcp/data/b.txt" in listed, listed.keys()
    read = await client.read_resource("ringwall://skills/own/SKILL.md")
    assert (read.contents[0].text, read.contents[0].mime_type) == ("name: own\n", "text/markdown"), read
    templates = (await client.list_resource_templates()).resource_templates
    assert any(template.uri_template == "ringwall://execs/{exec_id}/artifacts/{+path}" for template in templates)
    for uri in [f"ringwall://execs/e_{'0' * 32}/stdout", "ringwall://execs/e_0/stdout", "ringwall://x", "file:///etc/passwd"]:
        await is_missing(client, uri)
    await is_missing(client, "ringwall://files/none", "Path not found")
    await is_missing(client, "ringwall://files/../../x", "out of scope", INVALID)


async def is_uploaded(client):
    """As a person would, over HTTP; where there is no server, an agent has the tools for files."""
    if "url" not in SITE:
        for name, content in SKILL.items():
            good(await client.call_tool("write_file", {"path": f"skills/report/{name}", "content": content}))
        return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in SKILL.items():
            archive.writestr(f"report/{name}", content)
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="report.zip"\r\n\r\n%b\r\n--x--\r\n' % packed.getvalue()
    request = urllib.request.Request(SITE["url"] + "/v1/skills/default/upload", form, method="POST")
    request.add_header("Authorization", f"Bearer {SITE['owner']}")
    request.add_header("Content-Type", "multipart/form-data; boundary=x")
    urllib.request.urlopen(request).close()


async def a_whole_task_is_done(client, person):
    """A skill is uploaded and run, a path that nobody has allowed is asked about and approved, and what was made is read."""
    await is_uploaded(client)
    listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
    assert "ringwall://skills/report/SKILL.md" in listed, listed
    read = await client.read_resource("ringwall://skills/report/SKILL.md")
    assert "python3 report.py" in read.contents[0].text, read
    run = {"skill": "report", "command": "python3", "args": ["report.py"]}
    failed = good(await client.call_tool("run_skill", run))
    assert (failed["status"], failed["exit_code"], failed["stderr"]) == ("FAILED", 1, "the figures are missing\n"), failed
    asked, person.says = len(person.asked), {"answer": "once"}
    figures = good(await client.call_tool("run_command", {"command": SITE["asks"]}))["stdout"]
    assert figures == TEXT and len(person.asked) == asked + 1 and SITE["asks"] in person.asked[-1], person.asked
    good(await client.call_tool("write_file", {"path": "files/figures.txt", "content": figures}))
    ran = good(await client.call_tool("run_skill", run))
    assert (ran["status"], ran["exit_code"], ran["sandbox_type"]) == ("SUCCEEDED", 0, "native"), ran
    read = await client.read_resource("ringwall://files/report.txt")
    assert read.contents[0].text == "report: " + TEXT.upper(), read
    if "url" in SITE:
        assert ask("GET", f"/sandbox/execs/{ran['exec_id']}")["skill_id"] == "report"


async def progress_is_told(client):
    words, begun = [], asyncio.Event()

    async def hear(progress, total, message):
        words.append((progress, message))
        if message == "begun":
            begun.set()

    # It goes on when its first word was heard, however long that takes.
    held = {"command": "echo begun; until [ -e data/go ]; do sleep 0.02; done; echo more"}
    running = asyncio.create_task(client.call_tool("run_command", held, progress_callback=hear))
    await begun.wait()
    good(await client.call_tool("write_file", {"path": "data/go", "content": ""}))
    ran = good(await running)
    assert ran["stdout"] == "begun\nmore\n", ran
    numbers = [number for number, _ in words]
    assert numbers == sorted(set(numbers)), words


async def what_is_taken_back_ends(client):
    heard = asyncio.Event()

    async def hear(progress, total, message):
        if message == "begun":
            heard.set()

    call = client.call_tool("run_command", {"command": "echo begun; sleep 1000"}, progress_callback=hear)
    calling = asyncio.create_task(call)
    await heard.wait()
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    if "url" not in SITE:
        return None
    while True:
        newest = ask("GET", "/sandbox/execs?limit=1")[0]
        if newest["status"] != "RUNNING":
            assert newest["status"] == "CANCELLED", newest
            return newest["exec_id"]
        await asyncio.sleep(0.05)


async def a_person_is_asked(client, person):
    command = {"command": SITE["asks"]}
    person.says = {"answer": "once"}
    ran = good(await client.call_tool("run_command", command))
    assert ran["stdout"] == TEXT, ran
    assert SITE["asks"] in person.asked[-1], person.asked
    person.says = {"answer": "deny", "reason": "not today"}
    denied = await client.call_tool("run_command", command)
    assert denied.is_error and "not today" in denied.structured_content["error"]["message"], denied
    person.says = None
    pending = good(await client.call_tool("run_command", command))
    assert pending["status"] == "approval_pending" and pending["approval"]["kind"] == "path", pending
    return pending["approval"]["approval_id"]


async def an_agent_waits(client, person):
    """An agent is never asked itself; somebody else answers over HTTP."""
    pending = good(await client.call_tool("run_command", {"command": SITE["asks"]}))
    assert pending["status"] == "approval_pending" and person.asked == [], pending
    approval = {"approval_id": pending["approval"]["approval_id"]}
    standing = good(await client.call_tool("approval_status", approval))
    assert standing["approval"]["status"] == "pending" and standing["exec"]["status"] == "AWAITING_APPROVAL", standing
    ask("POST", f"/api/approvals/{approval['approval_id']}", {"approved": True})
    while True:
        standing = good(await client.call_tool("approval_status", approval))
        assert standing["approval"]["status"] == "approved", standing
        if standing["exec"]["status"] not in ("AWAITING_APPROVAL", "QUEUED", "RUNNING"):
            break
        await asyncio.sleep(0.02)
    assert standing["exec"]["stdout"] == TEXT, standing
    told = standing["exec"]["exec_id"]
    # Of code, whoever comes back for it also learns what it made.
    code = "import os\nos.kill(os.getpid(), 0)\nopen('made.txt', 'w').write('x')"
    pending = good(await client.call_tool("run_code", {"language": "python", "code": code}))
    approval = {"approval_id": pending["approval"]["approval_id"]}
    assert pending["status"] == "approval_pending" and pending["approval"]["kind"] == "risk", pending
    ask("POST", f"/api/approvals/{approval['approval_id']}", {"approved": True})
    while (standing := good(await client.call_tool("approval_status", approval)))["exec"]["status"] != "SUCCEEDED":
        assert standing["exec"]["status"] in ("AWAITING_APPROVAL", "QUEUED", "RUNNING"), standing
        await asyncio.sleep(0.02)
    assert standing["exec"]["files_created"] == ["made.txt"], standing
    return told


def is_made(name):
    folder = pathlib.Path(SITE["data"], "skills", name)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST | {"id": name}))


async def news_are_told(client, changed):
    """A skill that came after the client's look and before it listened is told too, and so is one that comes later. Another
    client that looked in between changes nothing; on standard streams it is another window on the same data directory."""
    is_made("mcp.count")
    async with connected(SITE["owner"], session="other") as other:
        assert "skill.mcp.count" in {tool.name for tool in (await other.list_tools()).tools}
        good(await other.call_tool("write_file", {"path": "files/from-another", "content": "window"}))
    read = good(await client.call_tool("read_file", {"path": "files/from-another"}))
    assert read == {"content": "window"}, read
    if SITE["mode"] == "legacy":
        await changed.wait()
        return
    async with client.listen(tools_list_changed=True) as subscription:
        news = aiter(subscription)
        await anext(news)
        is_made("mcp.later")
        await anext(news)


class Greeter(http.server.BaseHTTPRequestHandler):
    """A host that boxes may want to reach."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


async def the_world_is_opened(client, changed, port):
    """Boxes may reach hosts that a person allows; the tools say so, and whoever has the old list is told."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["run_command"].annotations.open_world_hint is False, tools["run_command"]
    lifted = [f"localhost:{port}", f"127.0.0.1:{port}"]
    opened = {"net": {"mode": "allowlist", "allow": [], "unknown": "ask"}, "egress": {"allowed_hosts": lifted}}
    async with asyncio.timeout(60):
        if SITE["mode"] == "legacy":
            changed.clear()
            ask("PUT", "/settings", opened)
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as subscription:
                news = aiter(subscription)
                # Whoever says nothing of what it has is told at once; what counts is what comes after that.
                await anext(news)
                ask("PUT", "/settings", opened)
                await anext(news)
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name in ["run_code", "run_command", "run_skill"]:
        assert tools[name].annotations.open_world_hint is True, tools[name]
        assert "no network" not in tools[name].description, tools[name]
    for name in ["read_file", "skill.shell.run"]:
        assert tools[name].annotations.open_world_hint is False, tools[name]


async def hosts_are_asked_about(client, person, port):
    """Each host for itself, also two at once, in words about hosts."""
    get = "curl -sS http://%s:{}/".format(port)
    both = f"unset no_proxy NO_PROXY; {get % 'localhost'} & {get % '127.0.0.1'} & wait"
    person.says, person.open = {"answer": "once"}, 2
    ran = good(await client.call_tool("run_command", {"command": both}))
    assert ran["stdout"] == "hello\nhello\n" and len(person.asked) == 2, (ran, person.asked)
    for host in ["localhost", "127.0.0.1"]:
        words = [asked for asked in person.asked if f"connect to a host that is not allowed: {host}:{port}" in asked]
        assert len(words) == 1 and "path" not in words[0], person.asked
    person.says = {"answer": "deny"}
    denied = good(await client.call_tool("run_command", {"command": f"unset no_proxy NO_PROXY; {get % 'localhost'} -f"}))
    assert denied["exit_code"] not in (0, None) and len(person.asked) == 3, denied


async def an_agents_host_waits(client, port):
    """An agent is told that somebody is asked, while what it runs waits for the answer."""
    command = f"unset no_proxy NO_PROXY; curl -sS http://localhost:{port}/; curl -sS http://127.0.0.1:{port}/"
    result = await client.call_tool("run_command", {"command": command})
    pending = good(result)
    assert pending["status"] == "approval_pending" and "may connect to a host" in result.content[0].text, result
    assert pending["approval"]["kind"] == "network", pending
    approval = {"approval_id": pending["approval"]["approval_id"]}
    assert pending["approval"]["blocked_paths"] == [f"localhost:{port}"], pending
    ask("POST", f"/api/approvals/{approval['approval_id']}", {"approved": True})
    second = None
    while second is None:
        # The next host is asked about when the first was reached.
        standing = good(await client.call_tool("approval_status", approval))
        assert standing["exec"]["status"] == "RUNNING", standing
        second = standing["exec"].get("approval")
        await asyncio.sleep(0.02)
    assert second["blocked_paths"] == [f"127.0.0.1:{port}"], second
    ask("POST", f"/api/approvals/{second['approval_id']}", {"approved": True})
    while (standing := good(await client.call_tool("approval_status", approval)))["exec"]["status"] == "RUNNING":
        await asyncio.sleep(0.02)
    assert standing["exec"]["stdout"] == "hello\nhello\n", standing


async def the_network_asks():
    greeter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeter)
    threading.Thread(target=greeter.serve_forever, daemon=True).start()
    port, person, changed = greeter.server_port, Person(), asyncio.Event()
    async with connected(SITE["owner"], person, changed) as client:
        await the_world_is_opened(client, changed, port)
        await hosts_are_asked_about(client, person, port)
    async with connected(SITE["agent"], Person(), session="agents") as client:
        await an_agents_host_waits(client, port)
    ask("PUT", "/settings", {"net": {"mode": "none"}})
    print(json.dumps({"asked": person.asked}))


async def a_browser_asks(client, person):
    """The person behind the client is shown the page and the script, and never what would be typed."""
    page = "file:///workspace/form.html"
    form = "<title>Form</title><input id=p type=password>"
    good(await client.call_tool("write_file", {"path": "form.html", "content": form}))
    opened = good(await client.call_tool("browser_navigate", {"url": page, "needs_file_access": True}))
    assert opened["data"]["title"] == "Form", opened
    secret, script = "hunter2-typed", "document.querySelector('#p').value.length"
    for answer, length in [({"answer": "deny", "reason": "not today"}, 0), ({"answer": "once"}, len(secret))]:
        person.says = answer
        typed = await client.call_tool("browser_fill", {"selector": "#p", "value": secret})
        assert "password" in person.asked[-1] and page in person.asked[-1], person.asked
        assert secret not in "".join(person.asked), person.asked
        if length == 0:
            assert typed.is_error and "not today" in typed.structured_content["error"]["message"], typed
            ran = await client.call_tool("browser_evaluate", {"script": script})
            assert ran.is_error and "not today" in ran.structured_content["error"]["message"], ran
        else:
            good(typed)
        person.says = {"answer": "once"}
        ran = good(await client.call_tool("browser_evaluate", {"script": script}))
        assert ran["data"]["value"] == length, ran
        assert script in person.asked[-1] and page in person.asked[-1], person.asked
    assert len(person.asked) == 5, person.asked
    good(await client.call_tool("browser_close", {}))


async def main():
    if "browser" in SITE:
        person = Person()
        async with connected(SITE["owner"], person) as client:
            await a_browser_asks(client, person)
        print(json.dumps({"asked": person.asked}))
        return
    if "network" in SITE:
        await the_network_asks()
        return
    person, changed = Person(), asyncio.Event()
    async with connected(SITE["owner"], person, changed) as client:
        version = "2025-11-25" if SITE["mode"] == "legacy" else SITE["mode"]
        assert client.protocol_version == version, client.protocol_version
        tools = await tools_are_described(client)
        assert "skill.mcp.count" not in tools
        await news_are_told(client, changed)
        assert "skill.mcp.count" in {tool.name for tool in (await client.list_tools()).tools}
        await files_are_shared_with_commands(client)
        await code_is_run_and_judged(client, person)
        await a_skill_is_a_tool(client)
        await what_is_wrong_is_said(client)
        await resources_can_be_read(client)
        await a_whole_task_is_done(client, person)
        await progress_is_told(client)
        cancelled = await what_is_taken_back_ends(client)
        left_open = await a_person_is_asked(client, person)
    told = {"cancelled": cancelled, "left_open": left_open}
    if "agent" in SITE:
        stranger = Person()
        async with connected(SITE["agent"], stranger) as client:
            told["approved"] = await an_agent_waits(client, stranger)
    print(json.dumps(told))


# Far longer than any machine needs: whoever waits longer waits for nothing.
asyncio.run(asyncio.wait_for(main(), 600))
