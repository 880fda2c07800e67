// A workspace as the API names it. Owners and operators name the user; other users have their own.

import { upload as send, unwrap, url } from "./api";
import type { Skill } from "./forms";

export interface Workspace {
  user: string;
  agent: string;
  /** Whether the user has to be named. */
  named: boolean;
}

function query(place: Workspace, words: Record<string, string | number> = {}) {
  return place.named ? { ...words, user: place.user } : words;
}

function route(place: Workspace, verb: string): string {
  return `/v1/${encodeURIComponent(place.agent)}/${verb}`;
}

export function files(place: Workspace, path: string): Promise<string[]> {
  return unwrap("GET", route(place, "files"), { query: query(place, { path }) });
}

export async function content(place: Workspace, path: string, lines?: number): Promise<{ content: string; lines: string[] }> {
  const words: Record<string, string | number> = lines === undefined ? { path } : { path, offset: 1, limit: lines };
  return unwrap("GET", route(place, "content"), { query: query(place, words) });
}

export function write(place: Workspace, path: string, text: string): Promise<string> {
  return unwrap("POST", route(place, "write"), { query: query(place), body: { file_path: path, content: text } });
}

export function remove(place: Workspace, path: string): Promise<string> {
  return unwrap("DELETE", route(place, "delete"), { query: query(place, { path }) });
}

export function download(place: Workspace, path: string): string {
  return url(route(place, "download"), query(place, { path }));
}

export function uploadFile(place: Workspace, file: File, progress: (share: number) => void): Promise<string> {
  return send(`/v1/files/${encodeURIComponent(place.agent)}/upload`, query(place), file, progress);
}

export function skills(place: Workspace): Promise<Skill[]> {
  return unwrap("GET", `/v1/skills/${encodeURIComponent(place.agent)}/layers`, { query: query(place) });
}

export function removeSkill(place: Workspace, name: string): Promise<string> {
  return unwrap("DELETE", `/v1/skills/${encodeURIComponent(place.agent)}/delete`, { query: query(place, { name }) });
}

export type Layer = "overlay" | "baseline";

export function uploadSkill(place: Workspace, layer: Layer, file: File, progress: (share: number) => void): Promise<string> {
  const agent = encodeURIComponent(place.agent);
  if (!place.named) return send(`/v1/skills/${agent}/upload`, {}, file, progress);
  return send(`/v1/skills/${encodeURIComponent(place.user)}/${agent}/upload`, { scope: layer }, file, progress);
}
