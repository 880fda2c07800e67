-- What was said about a session beyond the settings of all of them. A session itself is its files; one about which nothing was
-- said has no row, and what is said ends with its files.
CREATE TABLE sessions (
    user_id       TEXT    NOT NULL,
    agent_id      TEXT    NOT NULL,
    session_id    TEXT    NOT NULL,
    -- NULL: as the settings say.
    confirmation  TEXT    CHECK (confirmation IN ('websocket', 'auto-approve', 'auto-reject', 'callback')),
    callback_url  TEXT,
    security_mode TEXT    CHECK (security_mode IN ('strict', 'permissive')),
    changed_at    BIGINT  NOT NULL,
    changed_by    TEXT    NOT NULL,
    PRIMARY KEY (user_id, agent_id, session_id)
);
