-- The schema. Times are milliseconds since the Unix epoch. Rows are ordered by `seq`, never by time.

-- Execs. `seq` is the number of the intent's entry in the audit chain.
CREATE TABLE sandbox_execs (
    seq              INTEGER PRIMARY KEY,
    exec_id          TEXT    NOT NULL UNIQUE,
    user_id          TEXT    NOT NULL,
    agent_id         TEXT    NOT NULL,
    caller           TEXT    NOT NULL,
    idempotency_key  TEXT,
    body_digest      BLOB,
    project_id       TEXT    NOT NULL,
    task_id          TEXT,
    conversation_id  TEXT,
    skill_id         TEXT,
    backend          TEXT    NOT NULL,
    image            TEXT,
    cmd              TEXT    NOT NULL,
    args             TEXT    NOT NULL,
    cwd              TEXT    NOT NULL,
    env_keys         TEXT    NOT NULL,
    policy_snapshot  TEXT    NOT NULL,
    created_at       INTEGER NOT NULL,
    artifacts_path   TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'AWAITING_APPROVAL', 'SUCCEEDED', 'FAILED',
                                                        'TIMEOUT', 'CANCELLED', 'POLICY_DENIED', 'LOST')),
    exit_code        INTEGER,
    error_reason     TEXT,
    started_at       INTEGER,
    ended_at         INTEGER,
    duration_ms      INTEGER,
    protections      TEXT,
    stdout_truncated INTEGER NOT NULL DEFAULT 0 CHECK (stdout_truncated IN (0, 1)),
    stderr_truncated INTEGER NOT NULL DEFAULT 0 CHECK (stderr_truncated IN (0, 1)),
    cpu_ms           INTEGER,
    max_rss_bytes    INTEGER,
    -- 1: in the list indexes. The writer adds ended execs to them in batches, because adding a
    -- single row changes a page of every index.
    filed            INTEGER NOT NULL DEFAULT 1 CHECK (filed IN (0, 1)),
    CHECK ((ended_at IS NULL) = (status IN ('QUEUED', 'RUNNING', 'AWAITING_APPROVAL')))
) STRICT;

CREATE UNIQUE INDEX sandbox_execs_once ON sandbox_execs (caller, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Execs that are not in the list indexes: first those that have not ended, in the order of `seq`.
CREATE INDEX sandbox_execs_unfiled ON sandbox_execs (ended_at, seq) WHERE filed = 0;

-- List indexes: one per combination of scope (all, user, agent), task and project. A list without a
-- status merges one range per final status. The order is `-seq` and not that of the primary key:
-- otherwise a planner that expects many matches walks the primary key through all rows.
CREATE INDEX sandbox_execs_filed ON sandbox_execs (status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_project ON sandbox_execs (project_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_task ON sandbox_execs (task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_task_project ON sandbox_execs (task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_filed_user ON sandbox_execs (user_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_user_project ON sandbox_execs (user_id, project_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_user_task ON sandbox_execs (user_id, task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_user_task_project ON sandbox_execs (user_id, task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_filed_agent ON sandbox_execs (user_id, agent_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_agent_project ON sandbox_execs (user_id, agent_id, project_id, status, (-seq))
    WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_agent_task ON sandbox_execs (user_id, agent_id, task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_agent_task_project ON sandbox_execs (user_id, agent_id, task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

-- The policy that an exec ran under, if it differs from the policy of its intent. Retention removes
-- the row with the exec.
CREATE TABLE exec_policies (
    exec_id  TEXT PRIMARY KEY,
    snapshot TEXT NOT NULL
) STRICT;

-- The network connections of an exec, as a JSON array. Retention removes the row with the exec.
CREATE TABLE exec_networks (
    exec_id     TEXT    PRIMARY KEY,
    connections TEXT    NOT NULL,
    -- The number of connections that are not in the array.
    left_out    INTEGER NOT NULL
) STRICT;

-- The audit chain.
CREATE TABLE audit (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    user_id  TEXT,
    agent_id TEXT,
    detail   TEXT    NOT NULL,
    -- The digest of the row that the entry is about, if it is about one.
    digest   BLOB,
    previous BLOB    NOT NULL,
    hash     BLOB    NOT NULL,
    -- 1: in the list indexes. Entries are added in order; `audit_head.filed_through` is the last one.
    filed    INTEGER NOT NULL DEFAULT 1 CHECK (filed IN (0, 1))
) STRICT;

CREATE INDEX audit_action ON audit (action, seq) WHERE filed = 1;
CREATE INDEX audit_actor ON audit (actor, seq) WHERE filed = 1;
CREATE INDEX audit_subject ON audit (subject, seq) WHERE filed = 1;
CREATE INDEX audit_user ON audit (user_id, seq) WHERE filed = 1 AND user_id IS NOT NULL;

-- One row: the newest entry.
CREATE TABLE audit_head (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    seq           INTEGER NOT NULL,
    hash          BLOB    NOT NULL,
    -- Entries after this number are not in the list indexes.
    filed_through INTEGER NOT NULL DEFAULT 0,
    -- HMAC-SHA256 of `seq` and `hash`; the key is not in the database. NULL before the first entry.
    mac           BLOB
) STRICT;
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, zeroblob(32));

-- One row: the newest entry that retention removed. The chain starts after it.
CREATE TABLE audit_checkpoint (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    seq     INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    removed INTEGER NOT NULL,
    at      INTEGER
) STRICT;
INSERT INTO audit_checkpoint VALUES (1, 0, zeroblob(32), 0, NULL);

-- Entries never change, apart from `filed`. Only entries up to the checkpoint can be removed.
CREATE TRIGGER audit_unchanged BEFORE UPDATE OF seq, at, actor, action, subject, user_id, agent_id, detail, digest, previous, hash ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit entries are never changed');
END;
CREATE TRIGGER audit_kept BEFORE DELETE ON audit WHEN old.seq > (SELECT seq FROM audit_checkpoint)
BEGIN
    SELECT RAISE(ABORT, 'audit entries are removed by retention alone');
END;

-- API tokens. `seq` is the number of the creation's entry in the audit chain.
CREATE TABLE tokens (
    seq        INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    hash       BLOB    NOT NULL UNIQUE,
    role       TEXT    NOT NULL,
    user_id    TEXT,
    agent_id   TEXT,
    label      TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    CHECK (CASE role
        WHEN 'owner'    THEN user_id IS NULL AND agent_id IS NULL
        WHEN 'operator' THEN user_id IS NULL AND agent_id IS NULL
        WHEN 'user'     THEN user_id IS NOT NULL AND agent_id IS NULL
        WHEN 'agent'    THEN user_id IS NOT NULL AND agent_id IS NOT NULL
        ELSE 0 END)
) STRICT;

-- All versions of the settings document.
CREATE TABLE settings (
    version  INTEGER PRIMARY KEY,
    document TEXT    NOT NULL,
    saved_at INTEGER NOT NULL,
    saved_by TEXT    NOT NULL
) STRICT;

-- The host user id of each agent.
CREATE TABLE identities (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    uid      INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (user_id, agent_id)
) STRICT;

-- The rules of a session. Sessions without rules have no row. NULL: the settings apply.
CREATE TABLE sessions (
    user_id            TEXT    NOT NULL,
    agent_id           TEXT    NOT NULL,
    session_id         TEXT    NOT NULL,
    -- The operator's rules.
    confirmation       TEXT    CHECK (confirmation IN ('websocket', 'auto-approve', 'auto-reject', 'callback')),
    callback_url       TEXT,
    security_mode      TEXT    CHECK (security_mode IN ('strict', 'permissive')),
    changed_at         INTEGER NOT NULL,
    changed_by         TEXT    NOT NULL,
    -- The user's rules, which can only tighten.
    user_confirmation  TEXT    CHECK (user_confirmation IN ('websocket', 'auto-reject', 'callback')),
    user_security_mode TEXT    CHECK (user_security_mode IN ('strict')),
    -- 1: the session was deleted. The rules then only tighten a new session with the same id.
    ended              INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
    PRIMARY KEY (user_id, agent_id, session_id)
);

-- Path control and the allowed host paths. Operators may edit both tables with SQL, so columns have
-- defaults, and several rows for the same path are accepted and count as one.
CREATE TABLE sandbox_configs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    enabled    INTEGER NOT NULL DEFAULT 0,
    changed_at INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE sandbox_paths (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    path        TEXT    NOT NULL,
    description TEXT    NOT NULL DEFAULT '',
    enabled     INTEGER NOT NULL DEFAULT 1,
    -- 'global', or 'user:' and a user id.
    scope       TEXT    NOT NULL DEFAULT 'global' CHECK (scope = 'global' OR scope LIKE 'user:_%'),
    created_at  INTEGER NOT NULL DEFAULT 0,
    created_by  TEXT    NOT NULL DEFAULT 'hand'
) STRICT;

-- Finds the paths that apply to one user: the global ones and the user's own.
CREATE INDEX sandbox_paths_scope ON sandbox_paths (scope, id);

-- Hosts that all boxes of a user may reach, because a person allowed them permanently.
CREATE TABLE net_hosts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id    TEXT    NOT NULL,
    entry      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    UNIQUE (user_id, entry)
) STRICT;

-- Approvals. `seq` is the number of the opening's entry in the audit chain.
CREATE TABLE approvals (
    seq             INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    kind            TEXT    NOT NULL CHECK (kind IN ('path', 'risk', 'network')),
    status          TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'remembered', 'denied', 'expired', 'cancelled')),
    exec_id         TEXT    NOT NULL,
    user_id         TEXT    NOT NULL,
    agent_id        TEXT    NOT NULL,
    session_id      TEXT    NOT NULL,
    command         TEXT    NOT NULL,
    code            TEXT,
    requested_paths TEXT    NOT NULL,
    blocked_paths   TEXT    NOT NULL,
    risk_level      TEXT    NOT NULL CHECK (risk_level IN ('safe', 'low', 'medium', 'high', 'critical')),
    patterns        TEXT    NOT NULL,
    -- The digest of the action that is to be approved.
    digest          BLOB    NOT NULL,
    asked_by        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    answered_at     INTEGER,
    answered_by     TEXT,
    reason          TEXT,
    -- The files that the approval covers, with their digests, and those that it does not, as JSON.
    files           TEXT    NOT NULL DEFAULT '{}',
    CHECK ((status = 'pending') = (answered_at IS NULL) AND (answered_at IS NULL) = (answered_by IS NULL))
) STRICT;

-- Lists are in the order of `-seq`, like the list indexes of execs.
CREATE INDEX approvals_status ON approvals (status, (-seq));
CREATE INDEX approvals_user ON approvals (user_id, (-seq));
CREATE INDEX approvals_user_status ON approvals (user_id, status, (-seq));
CREATE INDEX approvals_agent ON approvals (user_id, agent_id, (-seq));
CREATE INDEX approvals_agent_status ON approvals (user_id, agent_id, status, (-seq));
CREATE INDEX approvals_exec ON approvals (exec_id);

-- Browser actions. `seq` is the number of the intent's entry in the audit chain. Neither typed text
-- nor the content of a page is stored.
CREATE TABLE browser_actions (
    seq         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    user_id     TEXT    NOT NULL,
    agent_id    TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('external', 'sandbox')),
    action      TEXT    NOT NULL,
    -- The parameters of the action, as JSON.
    detail      TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'refused', 'lost')),
    error       TEXT,
    -- The address of the page after the action.
    url         TEXT,
    -- The browser's network connections during the action, as a JSON array.
    connections TEXT,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    CHECK ((status = 'running') = (ended_at IS NULL))
) STRICT;

CREATE INDEX browser_actions_session ON browser_actions (user_id, agent_id, session_id, (-seq));
CREATE INDEX browser_actions_running ON browser_actions (seq) WHERE ended_at IS NULL;

-- The bytes of recorded commands, code and approval files per workspace, for its quota. The triggers
-- count only texts above 4,096 bytes, so that an ordinary exec changes no further page.
CREATE TABLE record_usage (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    bytes    INTEGER NOT NULL,
    PRIMARY KEY (user_id, agent_id)
) STRICT;

CREATE TRIGGER sandbox_execs_counted AFTER INSERT ON sandbox_execs WHEN length(CAST(new.args AS BLOB)) > 4096
BEGIN
    INSERT INTO record_usage (user_id, agent_id, bytes)
    VALUES (new.user_id, new.agent_id, length(CAST(new.args AS BLOB)))
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER sandbox_execs_uncounted AFTER DELETE ON sandbox_execs WHEN length(CAST(old.args AS BLOB)) > 4096
BEGIN
    UPDATE record_usage SET bytes = bytes - length(CAST(old.args AS BLOB))
    WHERE user_id = old.user_id AND agent_id = old.agent_id;
END;
CREATE TRIGGER approvals_counted AFTER INSERT ON approvals WHEN length(CAST(new.code AS BLOB)) > 4096
BEGIN
    INSERT INTO record_usage (user_id, agent_id, bytes)
    VALUES (new.user_id, new.agent_id, length(CAST(new.code AS BLOB)))
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER approvals_uncounted AFTER DELETE ON approvals WHEN length(CAST(old.code AS BLOB)) > 4096
BEGIN
    UPDATE record_usage SET bytes = bytes - length(CAST(old.code AS BLOB))
    WHERE user_id = old.user_id AND agent_id = old.agent_id;
END;
CREATE TRIGGER approval_files_counted AFTER INSERT ON approvals WHEN length(CAST(new.files AS BLOB)) > 4096
BEGIN
    INSERT INTO record_usage (user_id, agent_id, bytes)
    VALUES (new.user_id, new.agent_id, length(CAST(new.files AS BLOB)))
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER approval_files_uncounted AFTER DELETE ON approvals WHEN length(CAST(old.files AS BLOB)) > 4096
BEGIN
    UPDATE record_usage SET bytes = bytes - length(CAST(old.files AS BLOB))
    WHERE user_id = old.user_id AND agent_id = old.agent_id;
END;
