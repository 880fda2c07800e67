-- Bytes of large commands and of large code in questions that are on record, for the quota of their workspace. Only
-- texts over 4 KiB count, so an ordinary exec touches no further page.
CREATE TABLE record_usage (
    user_id  TEXT    NOT NULL,
    agent_id TEXT    NOT NULL,
    bytes    INTEGER NOT NULL,
    PRIMARY KEY (user_id, agent_id)
) STRICT;

INSERT INTO record_usage (user_id, agent_id, bytes)
SELECT user_id, agent_id, sum(bytes) FROM (
    SELECT user_id, agent_id, length(CAST(args AS BLOB)) AS bytes FROM sandbox_execs
    UNION ALL
    SELECT user_id, agent_id, length(CAST(coalesce(code, '') AS BLOB)) FROM approvals
) WHERE bytes > 4096 GROUP BY user_id, agent_id;

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
