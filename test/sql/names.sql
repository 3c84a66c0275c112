-- Lock names: which are refused, and which directory each has.

-- NULL and empty
SELECT zk_lock(NULL);
\echo :SQLSTATE
SELECT zk_try_lock(NULL);
SELECT zk_unlock(NULL);
\echo :SQLSTATE
SELECT zk_fencing_token(NULL);
SELECT zk_lock('');
\echo :SQLSTATE
SELECT zk_try_lock('');
SELECT zk_unlock('');
SELECT zk_fencing_token('');

-- 255 bytes as a path component, and not one more
SELECT zk_lock(repeat('x', 256));
\echo :SQLSTATE
SELECT zk_lock(repeat('x', 4) || repeat('/', 84));
SELECT zk_unlock(repeat('x', 256));
\echo :SQLSTATE
BEGIN;
SELECT zk_lock(repeat('x', 255));
SELECT zk_lock(repeat('/', 85));
SELECT zk_lock('xxx' || repeat('%', 84));
SELECT left(name, 5) AS name, length(name),
       length(path) - length('/zklock/') AS encoded
  FROM zk_locks ORDER BY name COLLATE "C";
COMMIT;

-- every name has a directory of its own, in which it can be read
CREATE TABLE names (name text PRIMARY KEY);
INSERT INTO names VALUES
  ('stock'), ('STOCK'), ('stock '), (' stock'), ('stock/17'), ('stock%2F17'),
  ('/'), ('//'), ('%'), ('%%'), ('%2F'), ('%2f'), ('%252F'), ('%2'),
  ('.'), ('..'), ('...'), ('.stock'), ('stock..'), ('./stock'), ('../zklock'),
  ('%2E'), (' '), (E'\t'), (E'line\nfeed'), ('-_.~:@=+,'),
  ('!"#$&''()*;<>?[\]^`{|}'), ('zookeeper'), ('/zookeeper/quota'),
  ('_c_00000000-0000-4000-8000-000000000000-lock-0000000001'), ('0');
BEGIN;
SELECT count(*) FROM (SELECT zk_lock(name) FROM names) AS l;
SELECT name, path FROM zk_locks ORDER BY path COLLATE "C";
SELECT count(DISTINCT path) AS paths, count(DISTINCT (classid, objid)) AS tags
  FROM zk_locks;
SELECT name AS "not shown as it was given" FROM names
 WHERE name NOT IN (SELECT name FROM zk_locks);
-- and so it is found again
SELECT bool_and(zk_try_lock(name)), bool_and(zk_fencing_token(name) > 0)
  FROM names;
SELECT bool_and(zk_unlock(name)), bool_and(zk_unlock(name)) FROM names;
SELECT count(*) AS held FROM zk_locks;
COMMIT;

-- messages give the name as the user did
SELECT zk_unlock('stock/17');
SELECT zk_fencing_token('100%s');

DROP TABLE names;
SELECT count(*) AS held FROM zk_locks;
