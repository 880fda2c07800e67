-- confirmation, callback_url and security_mode hold an operator's word; rows written before this step count as such, so that
-- no user can loosen them. A user's own word has columns of its own and only tightens.
ALTER TABLE sessions ADD COLUMN user_confirmation TEXT
    CHECK (user_confirmation IN ('websocket', 'auto-reject', 'callback'));
ALTER TABLE sessions ADD COLUMN user_security_mode TEXT CHECK (user_security_mode IN ('strict'));
-- 1: the session was deleted after the operator's word. The word then only tightens a new session of the same id.
ALTER TABLE sessions ADD COLUMN ended BIGINT NOT NULL DEFAULT 0 CHECK (ended IN (0, 1));
