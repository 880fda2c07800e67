// The HTTP client: same origin, with the login cookie. Each family of routes has its own form of
// errors, which become one here. The server's messages are in the page's language where a
// translation exists.

import { hearTime } from "./clock";
import { language } from "./words";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | undefined | null>;

let whenLoggedOut: () => void = () => {};

/** What to do when the server no longer knows us. */
export function onLoggedOut(act: () => void): void {
  whenLoggedOut = act;
}

export function url(path: string, query: Query = {}): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") words.set(name, String(value));
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

interface Asked {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
}

async function send(method: string, path: string, { query, body, signal }: Asked = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url(path, query), {
      method,
      signal,
      headers: { "accept-language": language.value, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "UNREACHABLE", "");
  }
  hearTime(response);
  if (response.ok) return response;
  throw told(response.status, await response.text(), path);
}

/** Reads a problem in whichever form it was told. */
export function told(status: number, text: string, path: string): Problem {
  let body: any = null;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy answered; only the status is known.
  }
  if (status === 401 && path !== "/api/login") whenLoggedOut();
  const inner = body?.error ?? body?.detail ?? body?.data ?? "";
  if (typeof inner === "string") return new Problem(status, "", inner);
  return new Problem(status, inner.code ?? "", inner.message ?? "", inner.hint);
}

export async function ask<T>(method: string, path: string, asked?: Asked): Promise<T> {
  const response = await send(method, path, asked);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export async function blob(path: string, query?: Query): Promise<Blob> {
  return (await send("GET", path, { query })).blob();
}

/** The body of an envelope. */
export async function unwrap<T>(method: string, path: string, asked?: Asked): Promise<T> {
  return (await ask<{ data: T }>(method, path, asked)).data;
}

export interface Page<T> {
  items: T[];
  next: string | null;
}

/** A list with the way to its rest, whichever of the two forms it has. */
export async function list<T>(path: string, query: Query, key?: string): Promise<Page<T>> {
  const response = await send("GET", path, { query });
  const body = await response.json();
  if (Array.isArray(body)) return { items: body as T[], next: response.headers.get("x-next-cursor") };
  return { items: (key ? body[key] : []) ?? [], next: body.next_cursor ?? null };
}

/** Sends a file as a form, and says how much of it has gone. */
export function upload(path: string, query: Query, file: File, progress: (share: number) => void): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url(path, query));
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    };
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve(String(JSON.parse(request.responseText).data));
      else reject(told(request.status, request.responseText, path));
    };
    request.onerror = () => reject(new Problem(0, "UNREACHABLE", ""));
    const form = new FormData();
    form.append("file", file, file.name);
    request.send(form);
  });
}
