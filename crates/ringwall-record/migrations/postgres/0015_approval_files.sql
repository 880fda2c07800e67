-- The files that an approval covers with their digests, and those that it does not, as JSON.
ALTER TABLE approvals ADD COLUMN files TEXT NOT NULL DEFAULT '{}';

-- They hold up to 64 KiB of scripts, so they count for the quota of their workspace as code does.
CREATE FUNCTION approval_files_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.files));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.files));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER approval_files_counted AFTER INSERT ON approvals FOR EACH ROW
    WHEN (octet_length(new.files) > 4096) EXECUTE FUNCTION approval_files_count();
CREATE TRIGGER approval_files_uncounted AFTER DELETE ON approvals FOR EACH ROW
    WHEN (octet_length(old.files) > 4096) EXECUTE FUNCTION approval_files_count();
