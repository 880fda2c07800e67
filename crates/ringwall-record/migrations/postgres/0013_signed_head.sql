-- HMAC-SHA256 of the head's number and hash, under a key that is not in the database. NULL until
-- the first entry of a version that signs.
ALTER TABLE audit_head ADD COLUMN mac BYTEA;
