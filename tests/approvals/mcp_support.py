"""The server from the JSON in argv[1], an MCP client with a simulated user, and HTTP requests as the server's owner."""

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

SERVER = json.loads(sys.argv[1])
INVALID = -32602
# Revision 2026-07-28 has no special code for an unknown resource.
NOT_FOUND = -32002 if SERVER["mode"] == "legacy" else INVALID


class Person:
    """The simulated user of a client: gives the configured answer and stores the questions."""

    def __init__(self):
        self.reply = {"answer": "once"}
        self.questions = []
        self.open = 1
        self.is_silent = False
        self.cancelled = asyncio.Event()

    async def answer(self, context, params):
        self.questions.append(params.message)
        if self.is_silent:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        # Answers only when this many questions are open at the same time.
        while self.open > 1 and len(ask("GET", "/api/approvals?status=pending")["approvals"]) < self.open:
            await asyncio.sleep(0.02)
        self.open = 1
        if self.reply is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content=self.reply)


@contextlib.asynccontextmanager
async def connected(token, person=None, changed=None, session="mcp"):
    """A connected client."""

    async def receive(message):
        if changed is not None and isinstance(message, types.ToolListChangedNotification):
            changed.set()

    own = types.Implementation(name="whole-task", version="1.2")
    options = {"mode": SERVER["mode"], "cache": None, "message_handler": receive, "client_info": own}
    if person is not None:
        options["elicitation_callback"] = person.answer
    async with contextlib.AsyncExitStack() as stack:
        if SERVER["transport"] == "http":
            client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120)
            await stack.enter_async_context(client)
            server = streamable_http_client(f"{SERVER['url']}/mcp?session={session}", http_client=client)
        else:
            arguments = ["mcp", "--session", session]
            arguments += ["--url", SERVER["url"], "--token", token] if SERVER["transport"] == "bridge" else []
            arguments = ["--data", SERVER["data"], *arguments]
            server = StdioServerParameters(command=SERVER["binary"], args=arguments)
        yield await stack.enter_async_context(Client(server, **options))


def ask(method, path, body=None):
    """Sends an HTTP request as the owner."""
    request = urllib.request.Request(SERVER["url"] + path, method=method)
    request.add_header("Authorization", f"Bearer {SERVER['owner']}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode() if body is not None else None) as response:
        return json.load(response)


def good(result):
    assert not result.is_error, result
    return result.structured_content


async def assert_missing(client, uri, text="there is no", code=NOT_FOUND):
    """Asserts that reading the resource fails with this code, and with `text` in the message."""
    try:
        read = await client.read_resource(uri)
    except MCPError as error:
        data = error.error
        assert (data.code, data.data) == (code, {"uri": uri}) and text in data.message, (uri, data)
        return
    raise AssertionError(f"{uri} was read: {read}")
