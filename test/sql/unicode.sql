-- Lock names beyond ASCII.  Other encodings than UTF8 have a TAP test.
SELECT getdatabaseencoding() <> 'UTF8' AS skip \gset
\if :skip
\quit
\endif
SET client_encoding = 'UTF8';

-- a letter with two spellings is two names; nothing is folded or normalized
CREATE TABLE names (name text PRIMARY KEY);
INSERT INTO names VALUES
  (U&'caf\00E9'), (U&'cafe\0301'), (U&'CAF\00C9'), ('cafe'),
  ('caf%C3%A9'), (U&'\+01F512'), (U&'\+01F510'), (U&'\00FF'), (U&'\0080'),
  (U&'\200B'), (U&'\FEFF'), (U&'\FFFD'), (U&'\+10FFFF'), (U&'\05D0/\05D1');
BEGIN;
SELECT count(*) FROM (SELECT zk_lock(name) FROM names) AS l;
SELECT path FROM zk_locks ORDER BY path COLLATE "C";
SELECT count(*) AS "shown as they were given"
  FROM names JOIN zk_locks USING (name);
COMMIT;

-- 255 bytes once encoded: 28 letters of nine bytes each, and three plain ones
BEGIN;
SELECT zk_lock(repeat(U&'\20AC', 28) || 'eur');
SELECT name, length(path) - length('/zklock/') AS encoded FROM zk_locks;
ROLLBACK;
SELECT zk_lock(repeat(U&'\20AC', 28) || 'euro');
\echo :SQLSTATE
SELECT zk_unlock(U&'\+01F512');

-- a namespace, which an administrator types, is ASCII
SET zklock.root = U&'/caf\00E9' UESCAPE '\';
\echo :SQLSTATE

DROP TABLE names;
SELECT count(*) AS held FROM zk_locks;
