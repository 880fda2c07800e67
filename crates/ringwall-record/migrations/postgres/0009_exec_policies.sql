-- The policy under which an exec ran, where that is not the one of its intent. It goes with its exec.
CREATE TABLE exec_policies (
    exec_id  TEXT PRIMARY KEY,
    snapshot TEXT NOT NULL
);

-- A session's command reads what counts for its user, and nobody else's entries.
CREATE INDEX sandbox_paths_scope ON sandbox_paths (scope, id);
