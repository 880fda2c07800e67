-- Which paths of the host agents may reach, and whether that is controlled at all. People write rows here by hand, so
-- everything but the path has a default, and no row is refused for being a second one of the same path: whoever reads takes
-- them for one.

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
    -- 'global', or 'user:' and whose it is.
    scope       TEXT    NOT NULL DEFAULT 'global' CHECK (scope = 'global' OR scope LIKE 'user:_%'),
    created_at  INTEGER NOT NULL DEFAULT 0,
    created_by  TEXT    NOT NULL DEFAULT 'hand'
) STRICT;
