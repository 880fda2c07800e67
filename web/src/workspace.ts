// Files and skills of a workspace. Requests of owners and operators name its user.

import { askData, upload as send, url } from "./api";
import type { Skill } from "./types";

export interface Workspace {
  user: string;
  agent: string;
  /** True if requests must name the user. */
  namesUser: boolean;
}

function query(workspace: Workspace, more: Record<string, string | number> = {}) {
  return workspace.namesUser ? { ...more, user: workspace.user } : more;
}

function route(workspace: Workspace, verb: string): string {
  return `/v1/${encodeURIComponent(workspace.agent)}/${verb}`;
}

export function files(workspace: Workspace, path: string): Promise<string[]> {
  return askData("GET", route(workspace, "files"), { query: query(workspace, { path }) });
}

export async function content(workspace: Workspace, path: string, lines?: number): Promise<{ content: string; lines: string[] }> {
  const more: Record<string, string | number> = lines === undefined ? { path } : { path, offset: 1, limit: lines };
  return askData("GET", route(workspace, "content"), { query: query(workspace, more) });
}

export function write(workspace: Workspace, path: string, text: string): Promise<string> {
  return askData("POST", route(workspace, "write"), { query: query(workspace), body: { file_path: path, content: text } });
}

export function remove(workspace: Workspace, path: string): Promise<string> {
  return askData("DELETE", route(workspace, "delete"), { query: query(workspace, { path }) });
}

export function download(workspace: Workspace, path: string): string {
  return url(route(workspace, "download"), query(workspace, { path }));
}

export function uploadFile(workspace: Workspace, file: File, progress: (share: number) => void): Promise<string> {
  return send(`/v1/files/${encodeURIComponent(workspace.agent)}/upload`, query(workspace), file, progress);
}

export function skills(workspace: Workspace): Promise<Skill[]> {
  return askData("GET", `/v1/skills/${encodeURIComponent(workspace.agent)}/layers`, { query: query(workspace) });
}

export function removeSkill(workspace: Workspace, name: string): Promise<string> {
  return askData("DELETE", `/v1/skills/${encodeURIComponent(workspace.agent)}/delete`, { query: query(workspace, { name }) });
}

export type Layer = "overlay" | "baseline";

export function uploadSkill(workspace: Workspace, layer: Layer, file: File, progress: (share: number) => void): Promise<string> {
  const agent = encodeURIComponent(workspace.agent);
  if (!workspace.namesUser) return send(`/v1/skills/${agent}/upload`, {}, file, progress);
  return send(`/v1/skills/${encodeURIComponent(workspace.user)}/${agent}/upload`, { scope: layer }, file, progress);
}
