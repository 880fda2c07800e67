"""What the MCP door has beside the whole task, through the official client: resources page by page and nobody else's, progress
and an end for whatever runs, and news of tools that became others or are gone. argv[1] is JSON as for `mcp_client.py`.
"""

import asyncio
import contextlib
import json
import pathlib
import shutil

from mcp.shared.exceptions import MCPError
from mcp_site import INVALID, SITE, ask, connected, good, is_missing

PAGE = 500
TEMPLATES = [
    "ringwall://files/{+path}",
    "ringwall://skills/{skill}/{+path}",
    "ringwall://sessions/{session_id}/{+path}",
    "ringwall://execs/{exec_id}/artifacts/{+path}",
    "ringwall://execs/{exec_id}/stdout",
    "ringwall://execs/{exec_id}/stderr",
]
# Leaves something, and prints both ways.
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
# Says that it is there, and goes on when the file is there that it is given.
WAITS = "import os, sys, time\nprint('begun', flush=True)\nwhile not os.path.exists({go}): time.sleep(0.02)\nprint('more')\n"


async def all_pages(client):
    """Each page as it is listed."""
    pages, cursor = [], None
    while True:
        listed = await client.list_resources(cursor=cursor)
        pages.append([str(resource.uri) for resource in listed.resources])
        cursor = listed.next_cursor
        if cursor is None:
            return pages
        assert len(pages) < 10, pages[-1]


async def resources_come_in_pages(client):
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


async def what_an_exec_left_is_read(client):
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == TEMPLATES, templates
    ran = good(await client.call_tool("skill.mcp.leaves", {}))
    place = f"ringwall://execs/{ran['exec_id']}"
    assert ran["artifacts"] == [f"{place}/artifacts/a%20b.txt"], ran
    assert (await client.read_resource(f"{place}/artifacts/a%20b.txt")).contents[0].text == "left\n"
    assert (await client.read_resource(f"{place}/stdout")).contents[0].text == "out\n"
    # What is no text is told as the bytes that it is.
    told = (await client.read_resource(f"{place}/stderr")).contents[0]
    assert (told.blob, told.mime_type) == ("/w==", "application/octet-stream"), told
    for rest in ["stdin", "artifacts/none.txt"]:
        await is_missing(client, f"{place}/{rest}")
    await is_missing(client, f"{place}/artifacts/../meta.json", "goes up", INVALID)
    await is_missing(client, f"{place}/artifacts/", "is empty", INVALID)
    return place


async def nobody_elses_are_there(client, place):
    """Somebody else, in a session of the same name."""
    own = good(await client.call_tool("run_command", {"command": "echo bob; echo bob > own.txt"}))
    listed = [uri for page in await all_pages(client) for uri in page]
    assert listed == ["ringwall://sessions/mcp/own.txt"], listed
    read = await client.read_resource(f"ringwall://execs/{own['exec_id']}/stdout")
    assert read.contents[0].text == "bob\n", "the control: their own is there"
    for uri in [f"{place}/stdout", f"{place}/stderr", f"{place}/artifacts/a%20b.txt"]:
        await is_missing(client, uri)
    for uri in ["ringwall://files/own.txt", "ringwall://sessions/mcp/data/many/f0001"]:
        await is_missing(client, uri, "Path not found")


async def whatever_runs_tells_and_ends(client):
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
        await progress_is_told(client, tool, arguments, go)
        good(await client.call_tool("delete_file", {"path": go}))
        await it_ends_when_it_is_taken_back(client, tool, endless)


def begins(client, tool, arguments):
    """The call, what is told of it, and when it has printed its first word."""
    words, begun = [], asyncio.Event()

    async def hear(progress, total, message):
        words.append((progress, message))
        if message == "begun":
            begun.set()

    return asyncio.create_task(client.call_tool(tool, arguments, progress_callback=hear)), words, begun


async def progress_is_told(client, tool, arguments, go):
    running, words, begun = begins(client, tool, arguments)
    async with asyncio.timeout(60):
        await begun.wait()
    # It goes on when its first word was heard, however long that takes.
    good(await client.call_tool("write_file", {"path": go, "content": ""}))
    ran = good(await running)
    assert ran["stdout"] == "begun\nmore\n", (tool, ran)
    numbers = [number for number, _ in words]
    assert numbers == sorted(set(numbers)), (tool, words)


async def it_ends_when_it_is_taken_back(client, tool, arguments):
    calling, _, begun = begins(client, tool, arguments)
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


async def news_are_told(client, changed):
    """A tool that says something else, that takes something else, and that goes. One that comes is told elsewhere."""
    folder = pathlib.Path(SITE["data"], "skills", "mcp.leaves")

    def becomes(manifest):
        # In one step, so that nobody ever sees half of it.
        (folder / "new").write_text(json.dumps(manifest))
        (folder / "new").rename(folder / "manifest.json")

    def comes():
        folder.mkdir(parents=True)
        becomes(MANIFEST)

    takes = {"inputs": {"type": "object", "properties": {"more": {"type": "string"}}, "additionalProperties": False}}
    steps = [
        (lambda: becomes(MANIFEST | {"description": "Edited."}), lambda tool: tool.description == "Edited."),
        (lambda: becomes(MANIFEST | {"description": "Edited.", "interface": takes}), lambda tool: "more" in tool.input_schema["properties"]),
        (lambda: shutil.rmtree(folder), lambda tool: tool is None),
    ]

    async def is_seen(has_come):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return has_come(tools.get("skill.mcp.leaves"))

    comes()
    async with contextlib.AsyncExitStack() as stack:
        if SITE["mode"] != "legacy":
            news = aiter(await stack.enter_async_context(client.listen(tools_list_changed=True)))
            # Whoever says nothing of what it has is told at once.
            await anext(news)
        assert await is_seen(lambda tool: tool.description == MANIFEST["description"])
        for deed, has_come in steps:
            changed.clear()
            deed()
            async with asyncio.timeout(60):
                while True:
                    if SITE["mode"] == "legacy":
                        await changed.wait()
                        changed.clear()
                    else:
                        await anext(news)
                    if await is_seen(has_come):
                        break
    comes()


async def main():
    changed = asyncio.Event()
    async with connected(SITE["owner"], changed=changed) as client:
        await news_are_told(client, changed)
        await resources_come_in_pages(client)
        place = await what_an_exec_left_is_read(client)
        async with connected(SITE["other"]) as other:
            await nobody_elses_are_there(other, place)
        await whatever_runs_tells_and_ends(client)
    print(json.dumps({"place": place}))


# Far longer than any machine needs: whoever waits longer waits for nothing.
asyncio.run(asyncio.wait_for(main(), 600))
