-- The files that an approval covers with their digests, and those that it does not, as JSON.
ALTER TABLE approvals ADD COLUMN files TEXT NOT NULL DEFAULT '{}';

-- They hold up to 64 KiB of scripts, so they count for the quota of their workspace as code does.
CREATE TRIGGER approval_files_counted AFTER INSERT ON approvals WHEN length(CAST(new.files AS BLOB)) > 4096
BEGIN
    INSERT INTO record_usage (user_id, agent_id, bytes)
    VALUES (new.user_id, new.agent_id, length(CAST(new.files AS BLOB)))
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER approval_files_uncounted AFTER DELETE ON approvals WHEN length(CAST(old.files AS BLOB)) > 4096
BEGIN
    UPDATE record_usage SET bytes = bytes - length(CAST(old.files AS BLOB))
    WHERE user_id = old.user_id AND agent_id = old.agent_id;
END;
