-- What ran, and the chain of entries that says so. Times are milliseconds since the epoch; order is `seq` alone.

CREATE TABLE sandbox_execs (
    -- The number of the intent's entry in the audit chain, so that both are in one order.
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
    CHECK ((ended_at IS NULL) = (status IN ('QUEUED', 'RUNNING', 'AWAITING_APPROVAL')))
) STRICT;

CREATE UNIQUE INDEX sandbox_execs_once ON sandbox_execs (caller, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX sandbox_execs_unfinished ON sandbox_execs (seq) WHERE ended_at IS NULL;

-- Lists, newest first: every scope alone, and with each one of the other questions. When several are asked, the text of
-- the statement says which of them an index answers.
CREATE INDEX sandbox_execs_status ON sandbox_execs (status, seq);
CREATE INDEX sandbox_execs_project ON sandbox_execs (project_id, seq);
CREATE INDEX sandbox_execs_task ON sandbox_execs (task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX sandbox_execs_user ON sandbox_execs (user_id, seq);
CREATE INDEX sandbox_execs_user_status ON sandbox_execs (user_id, status, seq);
CREATE INDEX sandbox_execs_user_task ON sandbox_execs (user_id, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX sandbox_execs_user_project ON sandbox_execs (user_id, project_id, seq);
CREATE INDEX sandbox_execs_agent ON sandbox_execs (user_id, agent_id, seq);
CREATE INDEX sandbox_execs_agent_status ON sandbox_execs (user_id, agent_id, status, seq);
CREATE INDEX sandbox_execs_agent_task ON sandbox_execs (user_id, agent_id, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX sandbox_execs_agent_project ON sandbox_execs (user_id, agent_id, project_id, seq);

CREATE TABLE audit (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    user_id  TEXT,
    agent_id TEXT,
    detail   TEXT    NOT NULL,
    -- The digest of the row that the entry speaks of, where it speaks of one.
    digest   BLOB,
    previous BLOB    NOT NULL,
    hash     BLOB    NOT NULL
) STRICT;

CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_subject ON audit (subject, seq);
CREATE INDEX audit_user ON audit (user_id, seq) WHERE user_id IS NOT NULL;

-- Where the chain ends, and where it begins after retention has taken the oldest entries away. One row each.
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash BLOB    NOT NULL
) STRICT;
INSERT INTO audit_head VALUES (1, 0, zeroblob(32));

CREATE TABLE audit_checkpoint (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    seq     INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    removed INTEGER NOT NULL,
    at      INTEGER
) STRICT;
INSERT INTO audit_checkpoint VALUES (1, 0, zeroblob(32), 0, NULL);

-- Entries are never changed, and go only when the checkpoint has passed them.
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit entries are never changed');
END;
CREATE TRIGGER audit_kept BEFORE DELETE ON audit WHEN old.seq > (SELECT seq FROM audit_checkpoint)
BEGIN
    SELECT RAISE(ABORT, 'audit entries are removed by retention alone');
END;
