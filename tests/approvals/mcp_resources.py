"""Resources, progress, cancellation and tool list changes with the official MCP client. argv[1] is JSON as for `mcp_client.py`."""

import asyncio
import contextlib
import json
import pathlib
import shutil

from mcp.shared.exceptions import MCPError
from mcp_support import INVALID, SERVER, ask, connected, good, assert_missing

PAGE = 500
TEMPLATES = [
    "ringwall://files/{+path}",
    "ringwall://skills/{skill}/{+path}",
    "ringwall://sessions/{session_id}/{+path}",
    "ringwall://execs/{exec_id}/artifacts/{+path}",
    "ringwall://execs/{exec_id}/stdout",
    "ringwall://execs/{exec_id}/stderr",
]
# Writes an artifact and to both output streams.
MANIFEST = {
    "schema_version": "1.0",
    "id": "mcp.leaves",
    "name": "Leaves a file",
    "description": "Leaves a file.",
    "interface": {"inputs": {"type": "object", "properties": {}, "additionalProperties": False}},
    "runtime": {
        "kind": "native",
        "entrypoint": ["bash", "-c", "echo left > '/workspace/artifacts/a b.txt'; echo out; printf '\\377' >&2"],
    },
    "permissions": {"fs": {"read": [], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
}
# Prints a line, and another one when the file `go` exists.
WAITS = "import os, sys, time\nprint('begun', flush=True)\nwhile not os.path.exists({go}): time.sleep(0.02)\nprint('more')\n"


async def all_pages(client):
    """The URIs of each page."""
    pages, cursor = [], None
    while True:
        listed = await client.list_resources(cursor=cursor)
        pages.append([str(resource.uri) for resource in listed.resources])
        cursor = listed.next_cursor
        if cursor is None:
            return pages
        assert len(pages) < 10, pages[-1]


async def check_resource_pages(client):
    names = [f"data/many/f{number:04}" for number in range(PAGE + 100)]
    make = "mkdir -p data/many && cd data/many && printf 'f%04d\\n' $(seq 0 599) | xargs touch && printf one > 'a b ü.txt'"
    ran = good(await client.call_tool("run_command", {"command": make}))
    assert ran["exit_code"] == 0, ran
    good(await client.call_tool("write_file", {"path": "files/own.txt", "content": "agent's"}))
    pages = await all_pages(client)
    listed = [uri for page in pages for uri in page]
    assert [len(page) for page in pages[:-1]] == [PAGE] * (len(pages) - 1) and 0 < len(pages[-1]) <= PAGE, [len(page) for page in pages]
    assert len(pages) > 1 and len(listed) == len(set(listed)), len(listed)
    strange = "ringwall://sessions/mcp/data/many/a%20b%20%C3%BC.txt"
    for uri in [f"ringwall://sessions/mcp/{name}" for name in names] + [strange, "ringwall://files/own.txt"]:
        assert uri in listed, uri
    read = await client.read_resource(strange)
    assert read.contents[0].text == "one", read
    past = await client.list_resources(cursor="1000000")
    assert past.resources == [] and past.next_cursor is None, past
    for cursor in ["-1", "x", ""]:
        try:
            await client.list_resources(cursor=cursor)
            raise AssertionError(f"{cursor!r} is a cursor")
        except MCPError as error:
            assert error.error.code == INVALID and "cursor" in error.error.message, error.error


async def check_exec_resources(client):
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == TEMPLATES, templates
    ran = good(await client.call_tool("skill.mcp.leaves", {}))
    prefix = f"ringwall://execs/{ran['exec_id']}"
    assert ran["artifacts"] == [f"{prefix}/artifacts/a%20b.txt"], ran
    assert (await client.read_resource(f"{prefix}/artifacts/a%20b.txt")).contents[0].text == "left\n"
    assert (await client.read_resource(f"{prefix}/stdout")).contents[0].text == "out\n"
    # Output that is not UTF-8 is a blob.
    blob = (await client.read_resource(f"{prefix}/stderr")).contents[0]
    assert (blob.blob, blob.mime_type) == ("/w==", "application/octet-stream"), blob
    for rest in ["stdin", "artifacts/none.txt"]:
        await assert_missing(client, f"{prefix}/{rest}")
    await assert_missing(client, f"{prefix}/artifacts/../meta.json", "contains the component '..'", INVALID)
    await assert_missing(client, f"{prefix}/artifacts/", "is empty", INVALID)
    return prefix


async def check_resources_of_others_are_missing(client, prefix):
    """Another user, in a session of the same name."""
    own = good(await client.call_tool("run_command", {"command": "echo bob; echo bob > own.txt"}))
    listed = [uri for page in await all_pages(client) for uri in page]
    assert listed == ["ringwall://sessions/mcp/own.txt"], listed
    read = await client.read_resource(f"ringwall://execs/{own['exec_id']}/stdout")
    assert read.contents[0].text == "bob\n", "the control: the own resource can be read"
    for uri in [f"{prefix}/stdout", f"{prefix}/stderr", f"{prefix}/artifacts/a%20b.txt"]:
        await assert_missing(client, uri)
    for uri in ["ringwall://files/own.txt", "ringwall://sessions/mcp/data/many/f0001"]:
        await assert_missing(client, uri, "Path not found")


async def check_progress_and_cancellation(client):
    good(await client.call_tool("write_file", {"path": "skills/waits/SKILL.md", "content": "name: waits\n"}))
    script = WAITS.format(go="sys.argv[1]")
    good(await client.call_tool("write_file", {"path": "skills/waits/waits.py", "content": script}))
    code = {"language": "python", "code": WAITS.format(go="'data/go'")}
    never = {"language": "python", "code": WAITS.format(go="'data/never'")}
    skill = {"skill": "waits", "command": "python3"}
    for tool, arguments, endless, go in [
        ("run_code", code, never, "data/go"),
        ("run_code", code | {"context_id": "c"}, never | {"context_id": "c"}, "data/go"),
        (
            "run_skill",
            skill | {"args": ["waits.py", "/workspace/files/go"]},
            skill | {"args": ["waits.py", "/workspace/files/never"]},
            "files/go",
        ),
    ]:
        await check_progress(client, tool, arguments, go)
        good(await client.call_tool("delete_file", {"path": go}))
        await check_cancelled_call_cancels_exec(client, tool, endless)


def start_call(client, tool, arguments):
    """Starts a call. Returns its task, its progress messages, and an event for its first output."""
    messages, begun = [], asyncio.Event()

    async def receive(progress, total, message):
        messages.append((progress, message))
        if message == "begun":
            begun.set()

    return asyncio.create_task(client.call_tool(tool, arguments, progress_callback=receive)), messages, begun


async def check_progress(client, tool, arguments, go):
    running, messages, begun = start_call(client, tool, arguments)
    async with asyncio.timeout(60):
        await begun.wait()
    # The command continues after its first output was received.
    good(await client.call_tool("write_file", {"path": go, "content": ""}))
    ran = good(await running)
    assert ran["stdout"] == "begun\nmore\n", (tool, ran)
    numbers = [number for number, _ in messages]
    assert numbers == sorted(set(numbers)), (tool, messages)


async def check_cancelled_call_cancels_exec(client, tool, arguments):
    calling, _, begun = start_call(client, tool, arguments)
    async with asyncio.timeout(60):
        await begun.wait()
    newest = ask("GET", "/sandbox/execs?limit=1")[0]
    assert newest["status"] == "RUNNING", (tool, newest)
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    async with asyncio.timeout(60):
        while (now := ask("GET", f"/sandbox/execs/{newest['exec_id']}"))["status"] == "RUNNING":
            await asyncio.sleep(0.05)
    assert now["status"] == "CANCELLED", (tool, now)


async def check_list_changes(client, changed):
    """The client is notified of a changed description, a changed schema and a removed tool. `mcp_client.py` covers a new tool."""
    folder = pathlib.Path(SERVER["data"], "skills", "mcp.leaves")

    def write_manifest(manifest):
        # By rename, so that the server never reads a partial file.
        (folder / "new").write_text(json.dumps(manifest))
        (folder / "new").rename(folder / "manifest.json")

    def create_skill():
        folder.mkdir(parents=True)
        write_manifest(MANIFEST)

    takes = {"inputs": {"type": "object", "properties": {"more": {"type": "string"}}, "additionalProperties": False}}
    steps = [
        (lambda: write_manifest(MANIFEST | {"description": "Edited."}), lambda tool: tool.description == "Edited."),
        (lambda: write_manifest(MANIFEST | {"description": "Edited.", "interface": takes}), lambda tool: "more" in tool.input_schema["properties"]),
        (lambda: shutil.rmtree(folder), lambda tool: tool is None),
    ]

    async def check_tool(condition):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return condition(tools.get("skill.mcp.leaves"))

    create_skill()
    async with contextlib.AsyncExitStack() as stack:
        if SERVER["mode"] != "legacy":
            changes = aiter(await stack.enter_async_context(client.listen(tools_list_changed=True)))
            # The first notification comes at once, because the server does not know the list of a sessionless client.
            await anext(changes)
        assert await check_tool(lambda tool: tool.description == MANIFEST["description"])
        for change, condition in steps:
            changed.clear()
            change()
            async with asyncio.timeout(60):
                while True:
                    if SERVER["mode"] == "legacy":
                        await changed.wait()
                        changed.clear()
                    else:
                        await anext(changes)
                    if await check_tool(condition):
                        break
    create_skill()


async def main():
    changed = asyncio.Event()
    async with connected(SERVER["owner"], changed=changed) as client:
        await check_list_changes(client, changed)
        await check_resource_pages(client)
        prefix = await check_exec_resources(client)
        async with connected(SERVER["other"]) as other:
            await check_resources_of_others_are_missing(other, prefix)
        await check_progress_and_cancellation(client)
    print(json.dumps({"prefix": prefix}))


# A hang fails after this time.
asyncio.run(asyncio.wait_for(main(), 600))
