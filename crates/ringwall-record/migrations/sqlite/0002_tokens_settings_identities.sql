-- Who may ask, under which settings, and as which user of the host.

CREATE TABLE tokens (
    -- The number of the creation's entry in the audit chain.
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

CREATE TABLE settings (
    version  INTEGER PRIMARY KEY,
    document TEXT    NOT NULL,
    saved_at INTEGER NOT NULL,
    saved_by TEXT    NOT NULL
) STRICT;

CREATE TABLE identities (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    uid      INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (user_id, agent_id)
) STRICT;
