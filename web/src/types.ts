// Types of the server's answers, as far as the page uses them. Times are milliseconds since 1970.

export interface Me {
  role: "owner" | "operator" | "user" | "agent";
  user: string | null;
  agent: string | null;
  token_id: string;
}

export type Status =
  | "QUEUED"
  | "RUNNING"
  | "AWAITING_APPROVAL"
  | "SUCCEEDED"
  | "FAILED"
  | "TIMEOUT"
  | "CANCELLED"
  | "POLICY_DENIED"
  | "LOST";

export const STATUSES: Status[] = [
  "QUEUED",
  "RUNNING",
  "AWAITING_APPROVAL",
  "SUCCEEDED",
  "FAILED",
  "TIMEOUT",
  "CANCELLED",
  "POLICY_DENIED",
  "LOST",
];

export const UNFINISHED: ReadonlySet<Status> = new Set<Status>(["QUEUED", "RUNNING", "AWAITING_APPROVAL"]);
export const UNSUCCESSFUL: ReadonlySet<Status> = new Set<Status>(["FAILED", "TIMEOUT", "POLICY_DENIED", "LOST"]);

export interface ExecSummary {
  exec_id: string;
  user_id: string;
  agent_id: string;
  project_id: string;
  task_id: string | null;
  conversation_id: string | null;
  skill_id: string | null;
  backend: string;
  status: Status;
  exit_code: number | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  duration_ms: number | null;
}

export interface Exec extends ExecSummary {
  image: string | null;
  cmd: string;
  args: string[];
  cwd: string;
  env_keys: string[];
  policy_snapshot: {
    version?: string;
    limits?: Record<string, number>;
    layers?: Record<string, string>;
    /** Older records have no layer for a box without a network. */
    net?: { mode?: string; layer?: string };
    path_control?: "on" | "off";
    /** The part of the host that was visible while path control was off. Older records have none: all was visible. */
    when_disabled?: HostView;
    /** Host paths in the box, with the user that accesses them and the source of the permission. */
    paths?: { path: string; real?: string; acts_as: string; by: string }[];
  } | null;
  protections: { name: string; state: string; why: string | null }[] | null;
  error_reason: { code: string; message: string } | null;
  stdout_truncated: boolean;
  stderr_truncated: boolean;
  usage: { cpu_ms: number | null; max_rss_bytes: number | null };
}

export interface ArtifactFile {
  path: string;
  size: number;
  hash: string;
}

export interface PathEntry {
  id: number | string;
  path: string;
  description: string;
  enabled: boolean;
  scope?: string;
  /** Why allowing the path is dangerous. */
  warning: string | null;
}

export interface SandboxSettings {
  enabled: boolean;
  paths: PathEntry[];
}

export type ApprovalStatus = "pending" | "approved" | "remembered" | "denied" | "expired" | "cancelled";

export interface Approval {
  id: string;
  kind: "path" | "risk" | "network";
  status: ApprovalStatus;
  session_id: string | null;
  exec_id: string | null;
  user: string | null;
  agent: string | null;
  command: string;
  code: string | null;
  requested_paths: string[];
  blocked_paths: string[];
  risk_level: string | null;
  patterns: string[];
  covered_files: CoveredFile[];
  not_covered: { path: string; why: string }[];
  created_at: number | string;
  expires_at: number | string;
  answered_by: string | null;
  reason: string | null;
}

/** A file whose content is part of what is approved. */
export interface CoveredFile {
  path: string;
  sha256: string;
  size: number;
  pinned: boolean;
  script?: { text: string; is_whole: boolean };
}

/** The entries that remembering would store, and their effect on past execs. */
export interface Preview {
  entries: { path: string; scope: string; warning: string | null }[];
  execs: { looked_at: number; would_allow: number; would_still_ask: number };
}

export interface Minute {
  at: number;
  ended_well: number;
  went_wrong: number;
  running: number;
  waiting: number;
  asking: number;
  boxes: number;
}

export interface Overview {
  running: number;
  waiting: number;
  asking: number;
  set_up_ms: number | null;
  minutes: Minute[];
}

export interface Pool {
  total: number;
  busy: number;
  idle: number;
  warming: number;
  max: number;
}

export interface TokenInfo {
  id: string;
  role: string;
  user_id: string | null;
  agent_id: string | null;
  label: string | null;
  created_at: number;
  created_by: string;
  expires_at: number | null;
  revoked_at: number | null;
}

export interface AuditEntry {
  seq: number;
  at: number | string;
  actor: string;
  action: string;
  subject: string;
  exec_id?: string | null;
  request_id?: string | null;
  details: unknown;
  hash: string;
}

export interface Skill {
  name: string;
  description: string;
  warnings?: string[];
  /** The directory; its name may differ from the name in the skill. */
  folder: string;
  layer: "baseline" | "overlaid" | "overlay";
  update?: "waiting";
}

export const CONFIRMATIONS = ["websocket", "auto-approve", "auto-reject", "callback"] as const;

export interface Session {
  session_id: string;
  user_id: string;
  agent_id: string;
  confirmation: (typeof CONFIRMATIONS)[number];
  callback_url: string | null;
  security_mode: "strict" | "permissive";
  created_at: number;
  last_used_at: number;
  expires_at: number;
}

export interface ExecConnection {
  at: number;
  duration_ms: number;
  host: string;
  port: number;
  address: string | null;
  outcome: string;
  reason: string;
  bytes_sent: number;
  bytes_received: number;
}

export interface ExecConnections {
  connections: ExecConnection[];
  left_out: number;
}

export interface BrowserAction {
  action_id: string;
  action: string;
  /** Parameters of the action, without typed text. */
  detail: Record<string, unknown> | null;
  actor: string;
  status: "running" | "succeeded" | "failed" | "refused" | "lost";
  error: string | null;
  url: string | null;
  started_at: number;
  ended_at: number | null;
}

/** A session without a browser has no kind. */
export interface SessionBrowser {
  kind: string | null;
  url: string | null;
  title: string | null;
  /** A PNG in base64. */
  screenshot: string | null;
  actions: BrowserAction[];
}

/** The setting sandbox.when_disabled. */
export type HostView = "readonly" | "full";

export interface Ready {
  path_control: "on" | "off";
  /** While path control is off. */
  when_disabled?: HostView;
}
