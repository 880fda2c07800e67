"""The server that argv[1] names, a client of it with a person before it, and the server's owner over HTTP."""

import asyncio
import contextlib
import json
import sys
import urllib.request

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

SITE = json.loads(sys.argv[1])
INVALID = -32602
# The newer revision has no code of its own for it.
NOT_FOUND = -32002 if SITE["mode"] == "legacy" else INVALID


class Person:
    """Whoever sits before the client: says what they are told to say, and remembers what they were asked."""

    def __init__(self):
        self.says = {"answer": "once"}
        self.asked = []
        self.open = 1

    async def answer(self, context, params):
        self.asked.append(params.message)
        # Slow enough that so many questions are open at once.
        while self.open > 1 and len(ask("GET", "/api/approvals?status=pending")["approvals"]) < self.open:
            await asyncio.sleep(0.02)
        self.open = 1
        if self.says is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content=self.says)


@contextlib.asynccontextmanager
async def connected(token, person=None, changed=None, session="mcp"):
    """A client, and whatever it needs to be one."""

    async def hear(message):
        if changed is not None and isinstance(message, types.ToolListChangedNotification):
            changed.set()

    own = types.Implementation(name="whole-task", version="1.2")
    options = {"mode": SITE["mode"], "cache": None, "message_handler": hear, "client_info": own}
    if person is not None:
        options["elicitation_callback"] = person.answer
    async with contextlib.AsyncExitStack() as stack:
        if SITE["transport"] == "http":
            client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120)
            await stack.enter_async_context(client)
            server = streamable_http_client(f"{SITE['url']}/mcp?session={session}", http_client=client)
        else:
            words = ["mcp", "--session", session]
            words += ["--url", SITE["url"], "--token", token] if SITE["transport"] == "bridge" else []
            words = ["--data", SITE["data"], *words]
            server = StdioServerParameters(command=SITE["binary"], args=words)
        yield await stack.enter_async_context(Client(server, **options))


def ask(method, path, body=None):
    """A request over HTTP, as the owner."""
    request = urllib.request.Request(SITE["url"] + path, method=method)
    request.add_header("Authorization", f"Bearer {SITE['owner']}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode() if body is not None else None) as answer:
        return json.load(answer)


def good(result):
    assert not result.is_error, result
    return result.structured_content


async def is_missing(client, uri, words="there is no", code=NOT_FOUND):
    """Told as what it is: there is no answer, and no other trouble either."""
    try:
        read = await client.read_resource(uri)
    except MCPError as error:
        told = error.error
        assert (told.code, told.data) == (code, {"uri": uri}) and words in told.message, (uri, told)
        return
    raise AssertionError(f"{uri} was read: {read}")
