-- A row enters the indices of lists some time after it was written, together with others: to put each one there by itself
-- touches a page of every index. Until then it is in one small index, and whoever asks for a list looks there too. An
-- exec is filed after it has ended, and never moves in the lists.
ALTER TABLE sandbox_execs ADD COLUMN filed BIGINT NOT NULL DEFAULT 1 CHECK (filed IN (0, 1));
UPDATE sandbox_execs SET filed = 0 WHERE ended_at IS NULL;
ALTER TABLE audit ADD COLUMN filed BIGINT NOT NULL DEFAULT 1 CHECK (filed IN (0, 1));

DROP INDEX sandbox_execs_unfinished;
DROP INDEX sandbox_execs_ended;
DROP INDEX sandbox_execs_ended_project;
DROP INDEX sandbox_execs_ended_task;
DROP INDEX sandbox_execs_ended_task_project;
DROP INDEX sandbox_execs_ended_user;
DROP INDEX sandbox_execs_ended_user_project;
DROP INDEX sandbox_execs_ended_user_task;
DROP INDEX sandbox_execs_ended_user_task_project;
DROP INDEX sandbox_execs_ended_agent;
DROP INDEX sandbox_execs_ended_agent_project;
DROP INDEX sandbox_execs_ended_agent_task;
DROP INDEX sandbox_execs_ended_agent_task_project;
DROP INDEX audit_action;
DROP INDEX audit_subject;
DROP INDEX audit_user;
DROP INDEX audit_actor;

-- Those that have not ended come first, in their order.
CREATE INDEX sandbox_execs_unfiled ON sandbox_execs (ended_at NULLS FIRST, seq) WHERE filed = 0;

CREATE INDEX sandbox_execs_filed ON sandbox_execs (status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_project ON sandbox_execs (project_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_task ON sandbox_execs (task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_task_project ON sandbox_execs (task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_filed_user ON sandbox_execs (user_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_user_project ON sandbox_execs (user_id, project_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_user_task ON sandbox_execs (user_id, task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_user_task_project ON sandbox_execs (user_id, task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_filed_agent ON sandbox_execs (user_id, agent_id, status, (-seq)) WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_agent_project ON sandbox_execs (user_id, agent_id, project_id, status, (-seq))
    WHERE filed = 1;
CREATE INDEX sandbox_execs_filed_agent_task ON sandbox_execs (user_id, agent_id, task_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_filed_agent_task_project ON sandbox_execs (user_id, agent_id, task_id, project_id, status, (-seq))
    WHERE filed = 1 AND task_id IS NOT NULL;

CREATE INDEX audit_unfiled ON audit (seq) WHERE filed = 0;
CREATE INDEX audit_action ON audit (action, seq) WHERE filed = 1;
CREATE INDEX audit_actor ON audit (actor, seq) WHERE filed = 1;
CREATE INDEX audit_subject ON audit (subject, seq) WHERE filed = 1;
CREATE INDEX audit_user ON audit (user_id, seq) WHERE filed = 1 AND user_id IS NOT NULL;

-- What an entry says is never changed; where it is filed is no part of it.
DROP TRIGGER audit_unchanged ON audit;
CREATE TRIGGER audit_unchanged BEFORE UPDATE OF seq, at, actor, action, subject, user_id, agent_id, detail, digest, previous, hash ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_refuse();
