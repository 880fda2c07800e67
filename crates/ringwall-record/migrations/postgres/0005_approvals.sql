-- What was put before a person, and what became of it. Lists, newest first, are ranges of one index each, in the order of
-- `-seq` for the reason that those of execs are.
CREATE TABLE approvals (
    -- The number of the opening's entry in the audit chain.
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
    -- Of the exact action that was asked for.
    digest          BYTEA   NOT NULL,
    asked_by        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    expires_at      BIGINT  NOT NULL,
    answered_at     BIGINT,
    answered_by     TEXT,
    reason          TEXT,
    CHECK ((status = 'pending') = (answered_at IS NULL) AND (answered_at IS NULL) = (answered_by IS NULL))
);

CREATE INDEX approvals_status ON approvals (status, (-seq));
CREATE INDEX approvals_user ON approvals (user_id, (-seq));
CREATE INDEX approvals_user_status ON approvals (user_id, status, (-seq));
CREATE INDEX approvals_agent ON approvals (user_id, agent_id, (-seq));
CREATE INDEX approvals_agent_status ON approvals (user_id, agent_id, status, (-seq));
CREATE INDEX approvals_exec ON approvals (exec_id);

-- Who did something is asked for as often as what was done.
CREATE INDEX audit_actor ON audit (actor, seq);
