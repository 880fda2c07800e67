"""A whole task with the official MCP client. argv[1] is JSON with the server and the mode of the protocol.

The script contains the assertions. Its last line is JSON with ids that the Rust test checks from outside.
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

from mcp_support import INVALID, SERVER, Person, ask, connected, good, assert_missing

FILE_CONTENT = "content of the blocked file"
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


# A skill of the agent: it reads and writes the agent's own files.
SKILL = {
    "SKILL.md": "---\nname: report\ndescription: Makes a report of figures.\n---\n"
    "Put the figures into files/figures.txt, run `python3 report.py`, and read files/report.txt.\n",
    "report.py": "import pathlib, sys\n"
    "figures = pathlib.Path('/workspace/files/figures.txt')\n"
    "if not figures.exists():\n"
    "    sys.exit('the figures are missing')\n"
    "pathlib.Path('/workspace/files/report.txt').write_text('report: ' + figures.read_text().upper())\n",
}


async def check_tool_list(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name in ["run_code", "run_command", "run_skill", "read_file", "write_file", "edit_file", "list_files", "delete_file", "approval_status"]:
        tool = tools[name]
        assert tool.input_schema["additionalProperties"] is False and tool.output_schema["type"] == "object", tool
        assert tool.annotations.open_world_hint is False, tool
        assert name.startswith("run_") is ("no network" in tool.description), tool
        assert tool.annotations.read_only_hint is (name in ("read_file", "list_files", "approval_status")), tool
    assert "skill.shell.run" in tools, tools.keys()
    return tools


async def check_files_are_shared_with_commands(client):
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
    # The agent's own files are not visible in session boxes.
    good(await client.call_tool("write_file", {"path": "skills/own/SKILL.md", "content": "name: own\n"}))
    failed = await client.call_tool("run_command", {"command": "ls skills"})
    assert not failed.is_error and failed.structured_content["exit_code"] == 2, failed


async def check_run_code(client, person):
    files = [{"path": "data/in.txt", "content": "seven"}]
    code = "print(open('data/in.txt').read().upper())\nopen('output/out.txt', 'w').write('x')"
    ran = good(await client.call_tool("run_code", {"language": "python", "code": code, "files": files}))
    assert (ran["stdout"], ran["files_created"], ran["sandbox_type"]) == ("SEVEN\n", ["output/out.txt"], "native"), ran
    assert ran["risk"]["level"] == "medium", ran
    failed = good(await client.call_tool("run_code", {"language": "shell", "code": "echo no; exit 3"}))
    assert (failed["status"], failed["exit_code"]) == ("FAILED", 3), failed
    # A context keeps variables; its images are content blocks.
    good(await client.call_tool("run_code", {"language": "python", "code": "seven = 7", "context_id": "c"}))
    result = await client.call_tool("run_code", {"language": "python", "code": "seven * 6", "context_id": "c"})
    assert good(result)["results"] == [{"text/plain": "42"}] and "42" in result.content[0].text, result
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    shown = await client.call_tool("run_code", {"language": "python", "code": figure, "context_id": "c"})
    images = [block for block in shown.content if block.type == "image"]
    assert [image.mime_type for image in images] == ["image/png"] and images[0].data.startswith("iVBOR"), shown
    assert "iVBOR" not in str(shown.structured_content), shown
    # Code of high risk needs an approval, and the question contains the whole code.
    person.reply = {"answer": "once"}
    risky = {"language": "python", "code": "import subprocess\nprint(subprocess.run(['echo', 'hi'], capture_output=True).stdout)"}
    ran = good(await client.call_tool("run_code", risky))
    assert ran["stdout"] == "b'hi\\n'\n" and ran["risk"]["detected_patterns"], ran
    assert "subprocess.run(['echo', 'hi']" in person.questions[-1], person.questions
    person.reply = {"answer": "deny"}
    denied = await client.call_tool("run_code", risky)
    assert denied.is_error and denied.structured_content["status"] == "POLICY_DENIED", denied
    asked = len(person.questions)
    refused = await client.call_tool("run_code", {"language": "shell", "code": "rm -rf /"})
    assert refused.is_error and len(person.questions) == asked, refused


async def check_errors(client):
    for name, arguments, text in [
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
        assert wrong.is_error and text in wrong.content[0].text, (name, arguments, wrong)
    try:
        await client.call_tool("no_such_tool", {})
        raise AssertionError("an unknown tool was called")
    except Exception as error:
        assert "no tool" in str(error), error


async def check_skill_tool(client):
    result = await client.call_tool("skill.mcp.count", {"text": "one two three"})
    ran = good(result)
    assert ran["stdout"] == "3\n", ran
    links = [block for block in result.content if block.type == "resource_link"]
    assert [link.name for link in links] == ["count.json"], result
    read = await client.read_resource(links[0].uri)
    assert json.loads(read.contents[0].text) == {"words": 3}, read
    # The plain name works too.
    assert good(await client.call_tool("skill_mcp_count", {"text": "one"}))["stdout"] == "1\n"


async def check_resources(client):
    listed = {str(resource.uri): resource for resource in (await client.list_resources()).resources}
    assert "ringwall://skills/own/SKILL.md" in listed and "ringwall://sessions/mcp/data/b.txt" in listed, listed.keys()
    read = await client.read_resource("ringwall://skills/own/SKILL.md")
    assert (read.contents[0].text, read.contents[0].mime_type) == ("name: own\n", "text/markdown"), read
    templates = (await client.list_resource_templates()).resource_templates
    assert any(template.uri_template == "ringwall://execs/{exec_id}/artifacts/{+path}" for template in templates)
    for uri in [f"ringwall://execs/e_{'0' * 32}/stdout", "ringwall://execs/e_0/stdout", "ringwall://x", "file:///etc/passwd"]:
        await assert_missing(client, uri)
    await assert_missing(client, "ringwall://files/none", "Path not found")
    await assert_missing(client, "ringwall://files/../../x", "out of scope", INVALID)


async def upload_skill(client):
    """Uploads over HTTP; without a server, writes the files with the file tools."""
    if "url" not in SERVER:
        for name, content in SKILL.items():
            good(await client.call_tool("write_file", {"path": f"skills/report/{name}", "content": content}))
        return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in SKILL.items():
            archive.writestr(f"report/{name}", content)
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="report.zip"\r\n\r\n%b\r\n--x--\r\n' % packed.getvalue()
    request = urllib.request.Request(SERVER["url"] + "/v1/skills/default/upload", form, method="POST")
    request.add_header("Authorization", f"Bearer {SERVER['owner']}")
    request.add_header("Content-Type", "multipart/form-data; boundary=x")
    urllib.request.urlopen(request).close()


async def check_task_with_skill_and_approval(client, person):
    """Uploads and runs a skill, reads a blocked path after an approval, and reads the result."""
    await upload_skill(client)
    listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
    assert "ringwall://skills/report/SKILL.md" in listed, listed
    read = await client.read_resource("ringwall://skills/report/SKILL.md")
    assert "python3 report.py" in read.contents[0].text, read
    run = {"skill": "report", "command": "python3", "args": ["report.py"]}
    failed = good(await client.call_tool("run_skill", run))
    assert (failed["status"], failed["exit_code"], failed["stderr"]) == ("FAILED", 1, "the figures are missing\n"), failed
    asked, person.reply = len(person.questions), {"answer": "once"}
    figures = good(await client.call_tool("run_command", {"command": SERVER["asks"]}))["stdout"]
    assert figures == FILE_CONTENT and len(person.questions) == asked + 1 and SERVER["asks"] in person.questions[-1], person.questions
    good(await client.call_tool("write_file", {"path": "files/figures.txt", "content": figures}))
    ran = good(await client.call_tool("run_skill", run))
    assert (ran["status"], ran["exit_code"], ran["sandbox_type"]) == ("SUCCEEDED", 0, "native"), ran
    read = await client.read_resource("ringwall://files/report.txt")
    assert read.contents[0].text == "report: " + FILE_CONTENT.upper(), read
    if "url" in SERVER:
        assert ask("GET", f"/sandbox/execs/{ran['exec_id']}")["skill_id"] == "report"


async def check_progress(client):
    messages, begun = [], asyncio.Event()

    async def receive(progress, total, message):
        messages.append((progress, message))
        if message == "begun":
            begun.set()

    # The command continues after its first output was received.
    held = {"command": "echo begun; until [ -e data/go ]; do sleep 0.02; done; echo more"}
    running = asyncio.create_task(client.call_tool("run_command", held, progress_callback=receive))
    await begun.wait()
    good(await client.call_tool("write_file", {"path": "data/go", "content": ""}))
    ran = good(await running)
    assert ran["stdout"] == "begun\nmore\n", ran
    numbers = [number for number, _ in messages]
    assert numbers == sorted(set(numbers)), messages


async def check_cancelled_call_cancels_exec(client):
    heard = asyncio.Event()

    async def receive(progress, total, message):
        if message == "begun":
            heard.set()

    call = client.call_tool("run_command", {"command": "echo begun; sleep 1000"}, progress_callback=receive)
    calling = asyncio.create_task(call)
    await heard.wait()
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    if "url" not in SERVER:
        return None
    while True:
        newest = ask("GET", "/sandbox/execs?limit=1")[0]
        if newest["status"] != "RUNNING":
            assert newest["status"] == "CANCELLED", newest
            return newest["exec_id"]
        await asyncio.sleep(0.05)


async def check_elicitation(client, person):
    command = {"command": SERVER["asks"]}
    person.reply = {"answer": "once"}
    ran = good(await client.call_tool("run_command", command))
    assert ran["stdout"] == FILE_CONTENT, ran
    assert SERVER["asks"] in person.questions[-1], person.questions
    person.reply = {"answer": "deny", "reason": "not today"}
    denied = await client.call_tool("run_command", command)
    assert denied.is_error and "not today" in denied.structured_content["error"]["message"], denied
    person.reply = None
    pending = good(await client.call_tool("run_command", command))
    assert pending["status"] == "approval_pending" and pending["approval"]["kind"] == "path", pending
    return pending["approval"]["approval_id"]


async def check_question_ends_with_its_approval(client, person):
    """The server cancels the client's question when the approval is answered elsewhere. Only with a session: without one the
    question is a result."""
    if SERVER["mode"] != "legacy" or "url" not in SERVER:
        return
    asked, person.is_silent = len(person.questions), True
    calling = asyncio.create_task(client.call_tool("run_command", {"command": SERVER["asks"]}))
    while len(person.questions) == asked:
        await asyncio.sleep(0.02)
    open_approvals = ask("GET", "/api/approvals?status=pending")["approvals"]
    assert len(open_approvals) == 1, open_approvals
    ask("POST", f"/api/approvals/{open_approvals[0]['id']}", {"approved": True})
    await person.cancelled.wait()
    ran = good(await calling)
    assert ran["stdout"] == FILE_CONTENT, ran
    person.is_silent = False


async def check_approval_status(client, person):
    """An agent's client is never asked; the owner answers over HTTP."""
    pending = good(await client.call_tool("run_command", {"command": SERVER["asks"]}))
    assert pending["status"] == "approval_pending" and person.questions == [], pending
    approval = {"approval_id": pending["approval"]["approval_id"]}
    state = good(await client.call_tool("approval_status", approval))
    assert state["approval"]["status"] == "pending" and state["exec"]["status"] == "AWAITING_APPROVAL", state
    ask("POST", f"/api/approvals/{approval['approval_id']}", {"approved": True})
    while True:
        state = good(await client.call_tool("approval_status", approval))
        assert state["approval"]["status"] == "approved", state
        if state["exec"]["status"] not in ("AWAITING_APPROVAL", "QUEUED", "RUNNING"):
            break
        await asyncio.sleep(0.02)
    assert state["exec"]["stdout"] == FILE_CONTENT, state
    exec_id = state["exec"]["exec_id"]
    # The later result of code also has the created files.
    code = "import os\nos.kill(os.getpid(), 0)\nopen('made.txt', 'w').write('x')"
    pending = good(await client.call_tool("run_code", {"language": "python", "code": code}))
    approval = {"approval_id": pending["approval"]["approval_id"]}
    assert pending["status"] == "approval_pending" and pending["approval"]["kind"] == "risk", pending
    ask("POST", f"/api/approvals/{approval['approval_id']}", {"approved": True})
    while (state := good(await client.call_tool("approval_status", approval)))["exec"]["status"] != "SUCCEEDED":
        assert state["exec"]["status"] in ("AWAITING_APPROVAL", "QUEUED", "RUNNING"), state
        await asyncio.sleep(0.02)
    assert state["exec"]["files_created"] == ["made.txt"], state
    return exec_id


def create_skill(name):
    folder = pathlib.Path(SERVER["data"], "skills", name)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST | {"id": name}))


async def check_list_changes(client, changed):
    """The client is notified of a skill that was added after it listed the tools, before or after it began to listen, also if
    another client has listed the tools in between. On standard streams the other client is another process."""
    create_skill("mcp.count")
    async with connected(SERVER["owner"], session="other") as other:
        assert "skill.mcp.count" in {tool.name for tool in (await other.list_tools()).tools}
        good(await other.call_tool("write_file", {"path": "files/from-another", "content": "other"}))
    read = good(await client.call_tool("read_file", {"path": "files/from-another"}))
    assert read == {"content": "other"}, read
    if SERVER["mode"] == "legacy":
        await changed.wait()
        return
    async with client.listen(tools_list_changed=True) as subscription:
        changes = aiter(subscription)
        await anext(changes)
        create_skill("mcp.later")
        await anext(changes)


class Greeter(http.server.BaseHTTPRequestHandler):
    """An HTTP server that boxes connect to."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


async def enable_network(client, changed, port):
    """Lets boxes reach hosts after an approval. Descriptions and hints change, and the client is notified."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["run_command"].annotations.open_world_hint is False, tools["run_command"]
    lifted = [f"localhost:{port}", f"127.0.0.1:{port}"]
    opened = {"net": {"mode": "allowlist", "allow": [], "unknown": "ask"}, "egress": {"allowed_hosts": lifted}}
    async with asyncio.timeout(60):
        if SERVER["mode"] == "legacy":
            changed.clear()
            ask("PUT", "/settings", opened)
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as subscription:
                changes = aiter(subscription)
                # The first notification comes at once, because the server does not know the list of a sessionless client.
                await anext(changes)
                ask("PUT", "/settings", opened)
                await anext(changes)
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name in ["run_code", "run_command", "run_skill"]:
        assert tools[name].annotations.open_world_hint is True, tools[name]
        assert "no network" not in tools[name].description, tools[name]
    for name in ["read_file", "skill.shell.run"]:
        assert tools[name].annotations.open_world_hint is False, tools[name]


async def check_hosts_are_asked(client, person, port):
    """One question per host, also for two hosts at the same time."""
    get = "curl -sS http://%s:{}/".format(port)
    both = f"unset no_proxy NO_PROXY; {get % 'localhost'} & {get % '127.0.0.1'} & wait"
    person.reply, person.open = {"answer": "once"}, 2
    ran = good(await client.call_tool("run_command", {"command": both}))
    assert ran["stdout"] == "hello\nhello\n" and len(person.questions) == 2, (ran, person.questions)
    for host in ["localhost", "127.0.0.1"]:
        found = [text for text in person.questions if f"connect to a host that is not allowed: {host}:{port}" in text]
        assert len(found) == 1 and "path" not in found[0], person.questions
    person.reply = {"answer": "deny"}
    denied = good(await client.call_tool("run_command", {"command": f"unset no_proxy NO_PROXY; {get % 'localhost'} -f"}))
    assert denied["exit_code"] not in (0, None) and len(person.questions) == 3, denied


async def check_agent_gets_pending_host(client, port):
    """An agent's client gets `approval_pending` while its command waits for the answer."""
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
        # The question about the second host opens when the first was reached.
        state = good(await client.call_tool("approval_status", approval))
        assert state["exec"]["status"] == "RUNNING", state
        second = state["exec"].get("approval")
        await asyncio.sleep(0.02)
    assert second["blocked_paths"] == [f"127.0.0.1:{port}"], second
    ask("POST", f"/api/approvals/{second['approval_id']}", {"approved": True})
    while (state := good(await client.call_tool("approval_status", approval)))["exec"]["status"] == "RUNNING":
        await asyncio.sleep(0.02)
    assert state["exec"]["stdout"] == "hello\nhello\n", state


async def check_network():
    greeter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeter)
    threading.Thread(target=greeter.serve_forever, daemon=True).start()
    port, person, changed = greeter.server_port, Person(), asyncio.Event()
    async with connected(SERVER["owner"], person, changed) as client:
        await enable_network(client, changed, port)
        await check_hosts_are_asked(client, person, port)
    async with connected(SERVER["agent"], Person(), session="agents") as client:
        await check_agent_gets_pending_host(client, port)
    ask("PUT", "/settings", {"net": {"mode": "none"}})
    print(json.dumps({"asked": person.questions}))


async def check_browser_questions(client, person):
    """Questions show the page and the script, and never the text to be typed."""
    page = "file:///workspace/form.html"
    form = "<title>Form</title><input id=p type=password>"
    good(await client.call_tool("write_file", {"path": "form.html", "content": form}))
    opened = good(await client.call_tool("browser_navigate", {"url": page, "needs_file_access": True}))
    assert opened["data"]["title"] == "Form", opened
    secret, script = "hunter2-typed", "document.querySelector('#p').value.length"
    for answer, length in [({"answer": "deny", "reason": "not today"}, 0), ({"answer": "once"}, len(secret))]:
        person.reply = answer
        typed = await client.call_tool("browser_fill", {"selector": "#p", "value": secret})
        assert "password" in person.questions[-1] and page in person.questions[-1], person.questions
        assert secret not in "".join(person.questions), person.questions
        if length == 0:
            assert typed.is_error and "not today" in typed.structured_content["error"]["message"], typed
            ran = await client.call_tool("browser_evaluate", {"script": script})
            assert ran.is_error and "not today" in ran.structured_content["error"]["message"], ran
        else:
            good(typed)
        person.reply = {"answer": "once"}
        ran = good(await client.call_tool("browser_evaluate", {"script": script}))
        assert ran["data"]["value"] == length, ran
        assert script in person.questions[-1] and page in person.questions[-1], person.questions
    assert len(person.questions) == 5, person.questions
    good(await client.call_tool("browser_close", {}))


async def main():
    if "browser" in SERVER:
        person = Person()
        async with connected(SERVER["owner"], person) as client:
            await check_browser_questions(client, person)
        print(json.dumps({"asked": person.questions}))
        return
    if "network" in SERVER:
        await check_network()
        return
    person, changed = Person(), asyncio.Event()
    async with connected(SERVER["owner"], person, changed) as client:
        version = "2025-11-25" if SERVER["mode"] == "legacy" else SERVER["mode"]
        assert client.protocol_version == version, client.protocol_version
        tools = await check_tool_list(client)
        assert "skill.mcp.count" not in tools
        await check_list_changes(client, changed)
        assert "skill.mcp.count" in {tool.name for tool in (await client.list_tools()).tools}
        await check_files_are_shared_with_commands(client)
        await check_run_code(client, person)
        await check_skill_tool(client)
        await check_errors(client)
        await check_resources(client)
        await check_task_with_skill_and_approval(client, person)
        await check_progress(client)
        cancelled = await check_cancelled_call_cancels_exec(client)
        await check_question_ends_with_its_approval(client, person)
        left_open = await check_elicitation(client, person)
    result = {"cancelled": cancelled, "left_open": left_open}
    if "agent" in SERVER:
        stranger = Person()
        async with connected(SERVER["agent"], stranger) as client:
            result["approved"] = await check_approval_status(client, stranger)
    print(json.dumps(result))


# A hang fails after this time.
asyncio.run(asyncio.wait_for(main(), 600))
