-- What an exec's box asked of the network, as one document: it is read as a whole and goes with its exec.
CREATE TABLE exec_networks (
    exec_id     TEXT    PRIMARY KEY,
    connections TEXT    NOT NULL,
    -- How many there were beyond those that are kept.
    left_out    INTEGER NOT NULL
) STRICT;

-- Hosts that a person has allowed a user's boxes for good.
CREATE TABLE net_hosts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id    TEXT    NOT NULL,
    entry      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    UNIQUE (user_id, entry)
) STRICT;
