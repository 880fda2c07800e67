-- Bytes of large commands and of large code in questions that are on record, for the quota of their workspace. Only
-- texts over 4 KiB count, so an ordinary exec touches no further page.
CREATE TABLE record_usage (
    user_id  TEXT   NOT NULL,
    agent_id TEXT   NOT NULL,
    bytes    BIGINT NOT NULL,
    PRIMARY KEY (user_id, agent_id)
);

INSERT INTO record_usage (user_id, agent_id, bytes)
SELECT user_id, agent_id, sum(bytes)::BIGINT FROM (
    SELECT user_id, agent_id, octet_length(args) AS bytes FROM sandbox_execs
    UNION ALL
    SELECT user_id, agent_id, octet_length(coalesce(code, '')) FROM approvals
) AS texts WHERE bytes > 4096 GROUP BY user_id, agent_id;

CREATE FUNCTION record_usage_add(of_user TEXT, of_agent TEXT, more BIGINT) RETURNS void LANGUAGE sql AS $$
    INSERT INTO record_usage (user_id, agent_id, bytes) VALUES (of_user, of_agent, more)
    ON CONFLICT (user_id, agent_id) DO UPDATE SET bytes = record_usage.bytes + excluded.bytes;
$$;
CREATE FUNCTION sandbox_execs_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.args));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.args));
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION approvals_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM record_usage_add(new.user_id, new.agent_id, octet_length(new.code));
    ELSE
        PERFORM record_usage_add(old.user_id, old.agent_id, -octet_length(old.code));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER sandbox_execs_counted AFTER INSERT ON sandbox_execs FOR EACH ROW
    WHEN (octet_length(new.args) > 4096) EXECUTE FUNCTION sandbox_execs_count();
CREATE TRIGGER sandbox_execs_uncounted AFTER DELETE ON sandbox_execs FOR EACH ROW
    WHEN (octet_length(old.args) > 4096) EXECUTE FUNCTION sandbox_execs_count();
CREATE TRIGGER approvals_counted AFTER INSERT ON approvals FOR EACH ROW
    WHEN (octet_length(new.code) > 4096) EXECUTE FUNCTION approvals_count();
CREATE TRIGGER approvals_uncounted AFTER DELETE ON approvals FOR EACH ROW
    WHEN (octet_length(old.code) > 4096) EXECUTE FUNCTION approvals_count();
