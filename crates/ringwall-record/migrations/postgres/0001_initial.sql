-- The schema. Times are milliseconds since the Unix epoch. Rows are ordered by `seq`, never by time.

-- Execs. `seq` is the number of the intent's entry in the audit chain.
CREATE TABLE sandbox_execs (
    seq              BIGINT  PRIMARY KEY,
    exec_id          TEXT    NOT NULL UNIQUE,
    user_id          TEXT    NOT NULL,
    agent_id         TEXT    NOT NULL,
    caller           TEXT    NOT NULL,
    idempotency_key  TEXT,
    body_digest      BYTEA,
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
    created_at       BIGINT  NOT NULL,
    artifacts_path   TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'AWAITING_APPROVAL', 'SUCCEEDED', 'FAILED',
                                                        'TIMEOUT', 'CANCELLED', 'POLICY_DENIED', 'LOST')),
    exit_code        BIGINT,
    error_reason     TEXT,
    started_at       BIGINT,
    ended_at         BIGINT,
    duration_ms      BIGINT,
    protections      TEXT,
    stdout_truncated BIGINT  NOT NULL DEFAULT 0 CHECK (stdout_truncated IN (0, 1)),
    stderr_truncated BIGINT  NOT NULL DEFAULT 0 CHECK (stderr_truncated IN (0, 1)),
    cpu_ms           BIGINT,
    max_rss_bytes    BIGINT,
    -- 1: in the list indexes. The writer adds ended execs to them in batches, because adding a
    -- single row changes a page of every index.
    filed            BIGINT  NOT NULL DEFAULT 1 CHECK (filed IN (0, 1)),
    CHECK ((ended_at IS NULL) = (status IN ('QUEUED', 'RUNNING', 'AWAITING_APPROVAL')))
);

CREATE UNIQUE INDEX sandbox_execs_once ON sandbox_execs (caller, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Execs that are not in the list indexes: first those that have not ended, in the order of `seq`.
CREATE INDEX sandbox_execs_unfiled ON sandbox_execs (ended_at NULLS FIRST, seq) WHERE filed = 0;

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
);

-- The network connections of an exec, as a JSON array. Retention removes the row with the exec.
CREATE TABLE exec_networks (
    exec_id     TEXT    PRIMARY KEY,
    connections TEXT    NOT NULL,
    -- The number of connections that are not in the array.
    left_out    BIGINT  NOT NULL
);

-- The audit chain.
CREATE TABLE audit (
    seq      BIGINT  PRIMARY KEY,
    at       BIGINT  NOT NULL,
    actor    TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    user_id  TEXT,
    agent_id TEXT,
    detail   TEXT    NOT NULL,
    -- The digest of the row that the entry is about, if it is about one.
    digest   BYTEA,
    previous BYTEA   NOT NULL,
    hash     BYTEA   NOT NULL,
    -- 1: in the list indexes. Entries are added in order; `audit_head.filed_through` is the last one.
    filed    BIGINT  NOT NULL DEFAULT 1 CHECK (filed IN (0, 1))
);

CREATE INDEX audit_action ON audit (action, seq) WHERE filed = 1;
CREATE INDEX audit_actor ON audit (actor, seq) WHERE filed = 1;
CREATE INDEX audit_subject ON audit (subject, seq) WHERE filed = 1;
CREATE INDEX audit_user ON audit (user_id, seq) WHERE filed = 1 AND user_id IS NOT NULL;

-- One row: the newest entry.
CREATE TABLE audit_head (
    id            BIGINT  PRIMARY KEY CHECK (id = 1),
    seq           BIGINT  NOT NULL,
    hash          BYTEA   NOT NULL,
    -- Entries after this number are not in the list indexes.
    filed_through BIGINT  NOT NULL DEFAULT 0,
    -- HMAC-SHA256 of `seq` and `hash`; the key is not in the database. NULL before the first entry.
    mac           BYTEA
);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, decode(repeat('00', 32), 'hex'));

-- One row: the newest entry that retention removed. The chain starts after it.
CREATE TABLE audit_checkpoint (
    id      BIGINT  PRIMARY KEY CHECK (id = 1),
    seq     BIGINT  NOT NULL,
    hash    BYTEA   NOT NULL,
    removed BIGINT  NOT NULL,
    at      BIGINT
);
INSERT INTO audit_checkpoint VALUES (1, 0, decode(repeat('00', 32), 'hex'), 0, NULL);

-- Entries never change, apart from `filed`. Only entries up to the checkpoint can be removed.
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit entries are never changed, and removed by retention alone';
END;
$$;
CREATE FUNCTION audit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF old.seq > (SELECT seq FROM audit_checkpoint) THEN
        RAISE EXCEPTION 'audit entries are removed by retention alone';
    END IF;
    RETURN old;
END;
$$;
CREATE TRIGGER audit_unchanged BEFORE UPDATE OF seq, at, actor, action, subject, user_id, agent_id, detail, digest, previous, hash ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_kept BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_keep();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();

-- API tokens. `seq` is the number of the creation's entry in the audit chain.
CREATE TABLE tokens (
    seq        BIGINT  PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    hash       BYTEA   NOT NULL UNIQUE,
    role       TEXT    NOT NULL,
    user_id    TEXT,
    agent_id   TEXT,
    label      TEXT,
    created_at BIGINT  NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    CHECK (CASE role
        WHEN 'owner'    THEN user_id IS NULL AND agent_id IS NULL
        WHEN 'operator' THEN user_id IS NULL AND agent_id IS NULL
        WHEN 'user'     THEN user_id IS NOT NULL AND agent_id IS NULL
        WHEN 'agent'    THEN user_id IS NOT NULL AND agent_id IS NOT NULL
        ELSE FALSE END)
);

-- All versions of the settings document.
CREATE TABLE settings (
    version  BIGINT  PRIMARY KEY,
    document TEXT    NOT NULL,
    saved_at BIGINT  NOT NULL,
    saved_by TEXT    NOT NULL
);

-- The host user id of each agent.
CREATE TABLE identities (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    uid      BIGINT  NOT NULL UNIQUE,
    PRIMARY KEY (user_id, agent_id)
);

-- The rules of a session. Sessions without rules have no row. NULL: the settings apply.
CREATE TABLE sessions (
    user_id            TEXT    NOT NULL,
    agent_id           TEXT    NOT NULL,
    session_id         TEXT    NOT NULL,
    -- The operator's rules.
    confirmation       TEXT    CHECK (confirmation IN ('websocket', 'auto-approve', 'auto-reject', 'callback')),
    callback_url       TEXT,
    security_mode      TEXT    CHECK (security_mode IN ('strict', 'permissive')),
    changed_at         BIGINT  NOT NULL,
    changed_by         TEXT    NOT NULL,
    -- The user's rules, which can only tighten.
    user_confirmation  TEXT    CHECK (user_confirmation IN ('websocket', 'auto-reject', 'callback')),
    user_security_mode TEXT    CHECK (user_security_mode IN ('strict')),
    -- 1: the session was deleted. The rules then only tighten a new session with the same id.
    ended              BIGINT  NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
    PRIMARY KEY (user_id, agent_id, session_id)
);

-- Path control and the allowed host paths. Operators may edit both tables with SQL, so columns have
-- defaults, and several rows for the same path are accepted and count as one.
CREATE TABLE sandbox_configs (
    id         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    enabled    BIGINT  NOT NULL DEFAULT 0,
    changed_at BIGINT  NOT NULL DEFAULT 0
);

CREATE TABLE sandbox_paths (
    id          BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    path        TEXT    NOT NULL,
    description TEXT    NOT NULL DEFAULT '',
    enabled     BIGINT  NOT NULL DEFAULT 1,
    -- 'global', or 'user:' and a user id.
    scope       TEXT    NOT NULL DEFAULT 'global' CHECK (scope = 'global' OR scope LIKE 'user:_%'),
    created_at  BIGINT  NOT NULL DEFAULT 0,
    created_by  TEXT    NOT NULL DEFAULT 'hand'
);

-- Finds the paths that apply to one user: the global ones and the user's own.
CREATE INDEX sandbox_paths_scope ON sandbox_paths (scope, id);

-- Hosts that all boxes of a user may reach, because a person allowed them permanently.
CREATE TABLE net_hosts (
    id         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    user_id    TEXT    NOT NULL,
    entry      TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    created_by TEXT    NOT NULL,
    UNIQUE (user_id, entry)
);

-- Approvals. `seq` is the number of the opening's entry in the audit chain.
CREATE TABLE approvals (
    seq             BIGINT  PRIMARY KEY,
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
    digest          BYTEA   NOT NULL,
    asked_by        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    expires_at      BIGINT  NOT NULL,
    answered_at     BIGINT,
    answered_by     TEXT,
    reason          TEXT,
    -- The files that the approval covers, with their digests, and those that it does not, as JSON.
    files           TEXT    NOT NULL DEFAULT '{}',
    CHECK ((status = 'pending') = (answered_at IS NULL) AND (answered_at IS NULL) = (answered_by IS NULL))
);

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
    seq         BIGINT  PRIMARY KEY,
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
    started_at  BIGINT  NOT NULL,
    ended_at    BIGINT,
    CHECK ((status = 'running') = (ended_at IS NULL))
);

CREATE INDEX browser_actions_session ON browser_actions (user_id, agent_id, session_id, (-seq));
CREATE INDEX browser_actions_running ON browser_actions (seq) WHERE ended_at IS NULL;

-- The bytes of recorded commands, code and approval files per workspace, for its quota. The triggers
-- count only texts above 4,096 bytes, so that an ordinary exec changes no further page.
CREATE TABLE record_usage (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    bytes    BIGINT  NOT NULL,
    PRIMARY KEY (user_id, agent_id)
);

CREATE FUNCTION record_usage_add(of_user TEXT, of_agent TEXT, more BIGINT) RETURNS void LANGUAGE sql AS $$
    INSERT INTO record_usage (user_id, agent_id, bytes) VALUES (of_user, of_agent, more)
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = record_usage.bytes + excluded.bytes;
$$;
CREATE FUNCTION sandbox_execs_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.args));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.args));
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION approvals_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.code));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.code));
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION approval_files_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.files));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.files));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER sandbox_execs_counted AFTER INSERT ON sandbox_execs FOR EACH ROW
    WHEN (octet_length(new.args) > 4096) EXECUTE FUNCTION sandbox_execs_count();
CREATE TRIGGER sandbox_execs_uncounted AFTER DELETE ON sandbox_execs FOR EACH ROW
    WHEN (octet_length(old.args) > 4096) EXECUTE FUNCTION sandbox_execs_count();
CREATE TRIGGER approvals_counted AFTER INSERT ON approvals FOR EACH ROW
    WHEN (octet_length(new.code) > 4096) EXECUTE FUNCTION approvals_count();
CREATE TRIGGER approvals_uncounted AFTER DELETE ON approvals FOR EACH ROW
    WHEN (octet_length(old.code) > 4096) EXECUTE FUNCTION approvals_count();
CREATE TRIGGER approval_files_counted AFTER INSERT ON approvals FOR EACH ROW
    WHEN (octet_length(new.files) > 4096) EXECUTE FUNCTION approval_files_count();
CREATE TRIGGER approval_files_uncounted AFTER DELETE ON approvals FOR EACH ROW
    WHEN (octet_length(old.files) > 4096) EXECUTE FUNCTION approval_files_count();
