// Open questions, shown on every page.
//
// They arrive over a WebSocket: all for operators and owners, their own for users. It is reopened
// when it breaks; until then the list is polled every few seconds. Only the server ends a question.
// Answers use HTTP, so that an error appears where the answer was given.

import { computed, reactive, ref, watch } from "vue";

import { ask, list, Problem } from "./api";
import { serverNow } from "./clock";
import type { Approval } from "./types";
import { isOperator, mayAnswer, me } from "./session";
import { visible } from "./text";
import { milliseconds, nameOf } from "./texts";

const POLL_PERIOD = 3000;
const MIN_RECONNECT_DELAY = 1000;
const MAX_RECONNECT_DELAY = 15_000;

const open = reactive(new Map<string, Approval>());
/** Ids of closed questions, which a delayed response of the list must not add again. */
const closed = new Set<string>();
/** Ids of questions that the user postponed. They stay in the list of open approvals. */
const postponed = reactive(new Set<string>());
/** Incremented with every change, so that lists can watch it and reload. */
export const changes = ref(0);
export const isLive = ref(false);

export const pending = computed(() =>
  [...open.values()].sort((left, right) => milliseconds(left.created_at) - milliseconds(right.created_at)),
);
/** The question that the dialog shows. */
export const current = computed(() => (mayAnswer.value ? (pending.value.find((one) => !postponed.has(one.id)) ?? null) : null));

export function postpone(id: string): void {
  postponed.add(id);
}

export function reopen(id: string): void {
  postponed.delete(id);
}

/** The part of a text key that names the kind of question. */
export function topic(one: Approval): string {
  return one.code ? "code" : one.kind;
}

function drop(id: string): void {
  closed.add(id);
  open.delete(id);
  postponed.delete(id);
  changes.value += 1;
}

export async function answer(id: string, body: { approved: boolean; remember: boolean; reason?: string; modified_code?: string }): Promise<void> {
  try {
    await ask("POST", `/api/approvals/${encodeURIComponent(id)}`, { body });
    drop(id);
  } catch (error) {
    // Answered by another person, expired or void: it is no longer open.
    if (error instanceof Problem && [404, 409, 410].includes(error.status)) void reload();
    throw error;
  }
}

/** Reloads all open questions. */
async function reload(): Promise<void> {
  const known = new Set(open.keys());
  const page = await list<Approval>("/api/approvals", { status: "pending", limit: 1000 }, "approvals");
  const ids = new Set(page.items.map((one) => one.id));
  // Removes only questions that were known before the request: one that arrived over the socket
  // meanwhile is not in the answer, nor is one beyond the page.
  if (!page.next) for (const id of [...open.keys()].filter((id) => known.has(id) && !ids.has(id))) drop(id);
  for (const one of page.items) add(one);
}

function add(one: Approval): void {
  if (closed.has(one.id)) return;
  const isNew = !open.has(one.id);
  open.set(one.id, one);
  if (!isNew) return;
  changes.value += 1;
  notify(one);
}

function notify(one: Approval): void {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.visibilityState === "visible") return;
  const body = visible(one.command).slice(0, 200);
  try {
    const note = new Notification(nameOf("dialog.title", topic(one)), { body, tag: one.id });
    note.onclick = () => {
      window.focus();
      note.close();
    };
  } catch {
    // Some browsers, such as Chrome on Android, allow notifications only from a service worker. The
    // page shows the question anyway.
  }
}

interface SocketMessage {
  type: string;
  requestId?: string;
  request_id?: string;
  requestedPath?: string;
  requestedPaths?: string[];
  [more: string]: unknown;
}

function receive(message: SocketMessage): void {
  const id = String(message.requestId ?? message.request_id ?? "");
  if (message.type === "permission_resolved") {
    drop(id);
  } else if (message.type === "permission_request" && id) {
    const requested = message.requestedPaths ?? (message.requestedPath ? [message.requestedPath] : []);
    add({
      id,
      kind: (message.kind as Approval["kind"]) ?? "path",
      status: "pending",
      session_id: (message.session_id as string) ?? null,
      exec_id: (message.exec_id as string) ?? null,
      user: (message.user as string) ?? null,
      agent: (message.agent as string) ?? null,
      command: (message.command as string) ?? "",
      code: (message.code as string) ?? null,
      requested_paths: requested,
      blocked_paths: (message.blocked_paths as string[]) ?? [],
      risk_level: (message.risk_level as string) ?? null,
      patterns: (message.patterns as string[]) ?? [],
      covered_files: (message.covered_files as Approval["covered_files"]) ?? [],
      not_covered: (message.not_covered as Approval["not_covered"]) ?? [],
      created_at: (message.created_at as number) ?? serverNow(),
      expires_at: message.expires_at as number,
      answered_by: null,
      reason: null,
    });
  }
}

let socket: WebSocket | null = null;
let timer: number | undefined;
let reconnectDelay = MIN_RECONNECT_DELAY;
/** Incremented when another user logs in, which stops the connection and polling of the previous one. */
let generation = 0;

function connect(own: number): void {
  if (own !== generation) return;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/approvals${isOperator.value ? "" : "/own"}`);
  socket.onopen = () => {
    isLive.value = true;
    reconnectDelay = MIN_RECONNECT_DELAY;
    void reload().catch(() => {});
  };
  socket.onmessage = (event) => {
    try {
      receive(JSON.parse(String(event.data)) as SocketMessage);
    } catch {
      // Not a message of this protocol.
    }
  };
  socket.onclose = () => {
    isLive.value = false;
    if (own !== generation) return;
    window.setTimeout(() => connect(own), reconnectDelay);
    reconnectDelay = Math.min(reconnectDelay * 2, MAX_RECONNECT_DELAY);
  };
}

async function poll(own: number): Promise<void> {
  if (own !== generation) return;
  if (!isLive.value) {
    try {
      await reload();
    } catch (error) {
      // A server without this route is not asked again.
      if (error instanceof Problem && error.status === 404) return;
    }
  }
  timer = window.setTimeout(() => void poll(own), POLL_PERIOD);
}

function stop(): void {
  generation += 1;
  window.clearTimeout(timer);
  socket?.close();
  socket = null;
  isLive.value = false;
  open.clear();
  postponed.clear();
  closed.clear();
}

watch(
  me,
  (who) => {
    stop();
    if (!who) return;
    void poll(generation);
    if (mayAnswer.value) connect(generation);
  },
  { immediate: true },
);
