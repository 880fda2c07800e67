// The HTTP client: same origin, with the login cookie. The families of routes have different forms
// of errors; all become a `Problem`. The server translates its messages by `accept-language`.

import { noteServerTime } from "./clock";
import { language } from "./texts";

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

/** Sets the handler of responses with status 401. */
export function onLoggedOut(act: () => void): void {
  whenLoggedOut = act;
}

export function url(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
}

async function send(method: string, path: string, { query, body, signal }: Options = {}): Promise<Response> {
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
  noteServerTime(response);
  if (response.ok) return response;
  throw problemOf(response.status, await response.text(), path);
}

/** Reads an error response of any route. */
function problemOf(status: number, text: string, path: string): Problem {
  let body: any = null;
  try {
    body = JSON.parse(text);
  } catch {
    // The response of a proxy; only its status is known.
  }
  if (status === 401 && path !== "/api/login") whenLoggedOut();
  const inner = body?.error ?? body?.detail ?? body?.data ?? "";
  if (typeof inner === "string") return new Problem(status, "", inner);
  return new Problem(status, inner.code ?? "", inner.message ?? "", inner.hint);
}

export async function ask<T>(method: string, path: string, options?: Options): Promise<T> {
  const response = await send(method, path, options);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export async function blob(path: string, query?: Query): Promise<Blob> {
  return (await send("GET", path, { query })).blob();
}

/** The `data` of a response of the `/v1` routes. */
export async function askData<T>(method: string, path: string, options?: Options): Promise<T> {
  return (await ask<{ data: T }>(method, path, options)).data;
}

export interface Page<T> {
  items: T[];
  next: string | null;
}

/** A page of a list. The cursor of the next page is in a header or in the body. */
export async function list<T>(path: string, query: Query, key?: string): Promise<Page<T>> {
  const response = await send("GET", path, { query });
  const body = await response.json();
  if (Array.isArray(body)) return { items: body as T[], next: response.headers.get("x-next-cursor") };
  return { items: (key ? body[key] : []) ?? [], next: body.next_cursor ?? null };
}

/** Sends a file as a form and reports the sent share. */
export function upload(path: string, query: Query, file: File, progress: (share: number) => void): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url(path, query));
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    };
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve(String(JSON.parse(request.responseText).data));
      else reject(problemOf(request.status, request.responseText, path));
    };
    request.onerror = () => reject(new Problem(0, "UNREACHABLE", ""));
    const form = new FormData();
    form.append("file", file, file.name);
    request.send(form);
  });
}
