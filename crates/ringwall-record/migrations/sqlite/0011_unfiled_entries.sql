-- Entries are filed in their order, so that those which are not yet are the ones behind a number: no index has to hold them,
-- and an entry touches one page less.
ALTER TABLE audit_head ADD COLUMN filed_through INTEGER NOT NULL DEFAULT 0;
UPDATE audit_head SET filed_through = coalesce((SELECT min(seq) - 1 FROM audit WHERE filed = 0), seq);
DROP INDEX audit_unfiled;
