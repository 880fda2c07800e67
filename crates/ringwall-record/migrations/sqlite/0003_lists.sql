-- Lists, newest first. Every question is a range of one index: each scope alone, with a project, with a task, with both,
-- and each of these with a status. Without a status the ranges of all endings are merged, so that one index serves both;
-- what has no ending yet is little, and found by `sandbox_execs_unfinished`. An exec enters these when it ends, and never
-- moves in them. They are in the order of `-seq`, which the primary key is not: a planner that believes there are many
-- rows of a kind would otherwise walk through all that there are to find the newest of them.
DROP INDEX sandbox_execs_status;
DROP INDEX sandbox_execs_project;
DROP INDEX sandbox_execs_task;
DROP INDEX sandbox_execs_user;
DROP INDEX sandbox_execs_user_status;
DROP INDEX sandbox_execs_user_task;
DROP INDEX sandbox_execs_user_project;
DROP INDEX sandbox_execs_agent;
DROP INDEX sandbox_execs_agent_status;
DROP INDEX sandbox_execs_agent_task;
DROP INDEX sandbox_execs_agent_project;

CREATE INDEX sandbox_execs_ended ON sandbox_execs (status, (-seq)) WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_project ON sandbox_execs (project_id, status, (-seq)) WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_task ON sandbox_execs (task_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_ended_task_project ON sandbox_execs (task_id, project_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_ended_user ON sandbox_execs (user_id, status, (-seq)) WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_user_project ON sandbox_execs (user_id, project_id, status, (-seq))
    WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_user_task ON sandbox_execs (user_id, task_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_ended_user_task_project ON sandbox_execs (user_id, task_id, project_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;

CREATE INDEX sandbox_execs_ended_agent ON sandbox_execs (user_id, agent_id, status, (-seq)) WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_agent_project ON sandbox_execs (user_id, agent_id, project_id, status, (-seq))
    WHERE ended_at IS NOT NULL;
CREATE INDEX sandbox_execs_ended_agent_task ON sandbox_execs (user_id, agent_id, task_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;
CREATE INDEX sandbox_execs_ended_agent_task_project ON sandbox_execs (user_id, agent_id, task_id, project_id, status, (-seq))
    WHERE ended_at IS NOT NULL AND task_id IS NOT NULL;
