-- What browsers were asked to do, and what became of it. Nothing that was typed and nothing of a page is in here but its
-- address. A list is one session's, newest first.
CREATE TABLE browser_actions (
    -- The number of the intent's entry in the audit chain.
    seq         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    user_id     TEXT    NOT NULL,
    agent_id    TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('external', 'sandbox')),
    action      TEXT    NOT NULL,
    -- What it was asked for, as JSON.
    detail      TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'refused', 'lost')),
    error       TEXT,
    -- Where the page was afterwards.
    url         TEXT,
    -- What the browser asked of the network meanwhile, as JSON.
    connections TEXT,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    CHECK ((status = 'running') = (ended_at IS NULL))
) STRICT;

CREATE INDEX browser_actions_session ON browser_actions (user_id, agent_id, session_id, (-seq));
CREATE INDEX browser_actions_running ON browser_actions (seq) WHERE ended_at IS NULL;
