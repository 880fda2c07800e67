// Open questions, shown on every page.
//
// They arrive over a WebSocket: all for operators and owners, their own for users. It is reopened
// when it breaks; until then the list is polled every few seconds. Only the server ends a question.
// Answers use HTTP, so that an error appears where the answer was given.

import { computed, reactive, ref, watch } from "vue";

import { ask, list, Problem } from "./api";
import { serverNow } from "./clock";
import type { Approval } from "./forms";
import { isOperator, mayAnswer, me } from "./session";
import { visible } from "./text";
import { milliseconds, named } from "./words";

const EVERY = 3000;
const LONGEST_WAIT = 15_000;

const open = reactive(new Map<string, Approval>());
/** Answered or over: a list that was on its way meanwhile does not bring them back. */
const settled = new Set<string>();
/** Put aside for now; they stay in the inbox. */
const aside = reactive(new Set<string>());
/** Grows with every change, for lists that want to look again. */
export const changes = ref(0);
export const isLive = ref(false);

export const pending = computed(() =>
  [...open.values()].sort((left, right) => milliseconds(left.created_at) - milliseconds(right.created_at)),
);
/** The one that the dialog shows. */
export const current = computed(() => (mayAnswer.value ? (pending.value.find((one) => !aside.has(one.id)) ?? null) : null));

export function putAside(id: string): void {
  aside.add(id);
}

export function bringBack(id: string): void {
  aside.delete(id);
}

/** What it is about, in one word. */
export function topic(one: Approval): string {
  return one.code ? "code" : one.kind;
}

function drop(id: string): void {
  settled.add(id);
  open.delete(id);
  aside.delete(id);
  changes.value += 1;
}

export async function answer(id: string, body: { approved: boolean; remember: boolean; reason?: string; modified_code?: string }): Promise<void> {
  try {
    await ask("POST", `/api/approvals/${encodeURIComponent(id)}`, { body });
    drop(id);
  } catch (error) {
    // Answered by another person, expired or void: it is no longer open.
    if (error instanceof Problem && [404, 409, 410].includes(error.status)) void look();
    throw error;
  }
}

/** Asks for all that are open. */
async function look(): Promise<void> {
  const known = new Set(open.keys());
  const page = await list<Approval>("/api/approvals", { status: "pending", limit: 1000 }, "approvals");
  const ids = new Set(page.items.map((one) => one.id));
  // Removes only questions that were known before the request: one that arrived over the socket
  // meanwhile is not in the answer, nor is one beyond the page.
  if (!page.next) for (const id of [...open.keys()].filter((id) => known.has(id) && !ids.has(id))) drop(id);
  for (const one of page.items) take(one);
}

function take(one: Approval): void {
  if (settled.has(one.id)) return;
  const isNew = !open.has(one.id);
  open.set(one.id, one);
  if (!isNew) return;
  changes.value += 1;
  notify(one);
}

function notify(one: Approval): void {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.visibilityState === "visible") return;
  const words = visible(one.command).slice(0, 200);
  try {
    const note = new Notification(named("dialog.title", topic(one)), { body: words, tag: one.id });
    note.onclick = () => {
      window.focus();
      note.close();
    };
  } catch {
    // Some browsers, such as Chrome on Android, allow notifications only from a service worker. The
    // page shows the question anyway.
  }
}

interface Told {
  type: string;
  requestId?: string;
  request_id?: string;
  requestedPath?: string;
  requestedPaths?: string[];
  [more: string]: unknown;
}

function hear(told: Told): void {
  const id = String(told.requestId ?? told.request_id ?? "");
  if (told.type === "permission_resolved") {
    drop(id);
  } else if (told.type === "permission_request" && id) {
    const requested = told.requestedPaths ?? (told.requestedPath ? [told.requestedPath] : []);
    take({
      id,
      kind: (told.kind as Approval["kind"]) ?? "path",
      status: "pending",
      session_id: (told.session_id as string) ?? null,
      exec_id: (told.exec_id as string) ?? null,
      user: (told.user as string) ?? null,
      agent: (told.agent as string) ?? null,
      command: (told.command as string) ?? "",
      code: (told.code as string) ?? null,
      requested_paths: requested,
      blocked_paths: (told.blocked_paths as string[]) ?? [],
      risk_level: (told.risk_level as string) ?? null,
      patterns: (told.patterns as string[]) ?? [],
      covered_files: (told.covered_files as Approval["covered_files"]) ?? [],
      not_covered: (told.not_covered as Approval["not_covered"]) ?? [],
      created_at: (told.created_at as number) ?? serverNow(),
      expires_at: told.expires_at as number,
      answered_by: null,
      reason: null,
    });
  }
}

let socket: WebSocket | null = null;
let timer: number | undefined;
let patience = 1000;
/** Another person, another watch: what the last one set going stops. */
let watching = 0;

function listen(turn: number): void {
  if (turn !== watching) return;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/approvals${isOperator.value ? "" : "/own"}`);
  socket.onopen = () => {
    isLive.value = true;
    patience = 1000;
    void look().catch(() => {});
  };
  socket.onmessage = (event) => {
    try {
      hear(JSON.parse(String(event.data)) as Told);
    } catch {
      // An agent's token gets no questions.
    }
  };
  socket.onclose = () => {
    isLive.value = false;
    if (turn !== watching) return;
    window.setTimeout(() => listen(turn), patience);
    patience = Math.min(patience * 2, LONGEST_WAIT);
  };
}

async function poll(turn: number): Promise<void> {
  if (turn !== watching) return;
  if (!isLive.value) {
    try {
      await look();
    } catch (error) {
      // A server without this route is not asked again.
      if (error instanceof Problem && error.status === 404) return;
    }
  }
  timer = window.setTimeout(() => void poll(turn), EVERY);
}

function stop(): void {
  watching += 1;
  window.clearTimeout(timer);
  socket?.close();
  socket = null;
  isLive.value = false;
  open.clear();
  aside.clear();
  settled.clear();
}

watch(
  me,
  (who) => {
    stop();
    if (!who) return;
    void poll(watching);
    if (mayAnswer.value) listen(watching);
  },
  { immediate: true },
);
