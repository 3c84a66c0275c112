-- Shared locks: readers hold together, and exclude those who write.
-- PostgreSQL 19 adds a line with the hash of the name; t/075 has the contexts of waits
\set SHOW_CONTEXT never
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION other(statement text) RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink('other', statement) AS r (result text)$$;
-- what another session finds: the lock is free, shared, or exclusive
CREATE FUNCTION seen(name text) RETURNS text LANGUAGE sql AS
  $$SELECT CASE
      WHEN other(format('SELECT zk_try_lock(%L)', name))::boolean THEN 'free'
      WHEN other(format('SELECT zk_try_lock(%L, shared => true)', name))::boolean THEN 'shared'
      ELSE 'exclusive' END$$;
-- what this session holds
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid() AND granted$$;
CREATE TABLE note (t text);

-- for the statement, or for the transaction
SELECT zk_lock('a', shared => true);
SELECT held(), seen('a');
BEGIN;
SELECT zk_lock('a', shared => true);
SELECT held(), seen('a');
COMMIT;
SELECT held(), seen('a');
SELECT zk_try_lock('a', '1 min', true);
SELECT zk_lock('a', shared => NULL);
\echo :SQLSTATE

-- two hold it together, and it takes the end of both for it to be free
BEGIN;
SELECT zk_lock('a', shared => true);
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a', shared => true)$$);
SELECT z.name, z.mode, z.granted, l.mode AS pg_locks, l.granted, z.pid = pg_backend_pid() AS ours
  FROM zk_locks z JOIN pg_locks l USING (pid, classid, objid, objsubid) ORDER BY ours;
COMMIT;
SELECT zk_try_lock('a'), zk_try_lock('a', '20ms'), zk_try_lock('a', shared => true);
SELECT zk_lock('a', '20ms');
\echo :SQLSTATE
SELECT dblink_exec('other', 'COMMIT');
SELECT zk_try_lock('a');

-- who writes excludes who reads
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a')$$);
SELECT zk_try_lock('a', shared => true), zk_try_lock('a', '20ms', shared => true);
SELECT zk_lock('a', '20ms', shared => true);
\echo :SQLSTATE
SELECT dblink_exec('other', 'ROLLBACK');
SELECT zk_try_lock('a', shared => true);

-- re-entrant, counted
BEGIN;
SELECT zk_lock('a', shared => true), zk_lock('a', shared => true);
SELECT held(), zk_unlock('a'), held(), zk_unlock('a'), held(), zk_unlock('a');
SELECT seen('a');
COMMIT;

-- a fencing token, as for any lock
BEGIN;
SELECT zk_lock('a', shared => true);
SELECT zk_fencing_token('a') > 0 AS token;
COMMIT;

-- exclusive covers shared, until the last hold is gone
BEGIN;
SELECT zk_lock('a');
SELECT zk_lock('a', shared => true), zk_try_lock('a', shared => true);
SELECT held(), seen('a');
SELECT mode, granted, count(*) FROM pg_locks WHERE locktype = 'userlock' GROUP BY 1, 2;
SELECT zk_unlock('a'), held(), seen('a');
SELECT zk_unlock('a'), held(), seen('a');
SELECT zk_unlock('a'), held(), seen('a');
-- then it may be shared again
SELECT zk_lock('a', shared => true);
SELECT held(), seen('a');
COMMIT;
-- the hold that made it exclusive may be undone first
BEGIN;
SELECT zk_lock('a');
SELECT zk_lock('a', shared => true, session => true);
COMMIT;
SELECT held(), seen('a');
SELECT zk_unlock('a'), held(), seen('a');

-- shared to exclusive is refused, and nothing changes
BEGIN;
SELECT zk_lock('a', shared => true);
SAVEPOINT s;
SELECT zk_lock('a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_try_lock('a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_lock('a', session => true);
ROLLBACK TO s;
SELECT held(), seen('a');
-- also while others read, and where a timeout would bound the wait
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a', shared => true)$$);
SELECT zk_lock('a', '1 hour');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT dblink_exec('other', 'COMMIT');
RELEASE s;
SELECT held(), zk_unlock('a'), seen('a');
-- given back, it may be exclusive
SELECT zk_lock('a');
SELECT held(), seen('a');
COMMIT;
-- undone, but not given back yet: it may be taken again as it was
BEGIN;
SELECT zk_lock('a', shared => true);
INSERT INTO note VALUES ('a');
SELECT zk_unlock('a'), held(), seen('a');
SAVEPOINT s;
SELECT zk_lock('a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_lock('a', shared => true);
SELECT zk_unlock('a'), zk_unlock('a'), held(), seen('a');
COMMIT;
SELECT held(), seen('a');

-- savepoints give back what was taken after them, its mode too
BEGIN;
SAVEPOINT s;
SELECT zk_lock('a', shared => true);
ROLLBACK TO s;
SELECT held(), seen('a');
SELECT zk_lock('a');
ROLLBACK TO s;
SELECT zk_lock('a', shared => true);
SAVEPOINT s2;
SELECT zk_lock('a', shared => true);
ROLLBACK TO s2;
SELECT held(), seen('a');
COMMIT;
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock('a', shared => true);
ROLLBACK TO s;
SELECT held(), seen('a');
COMMIT;

-- from mode to mode, again and again
DO $$
BEGIN
  FOR i IN 1..20 LOOP
    PERFORM zk_lock('a', shared => i % 3 > 0);
    ASSERT held() = CASE WHEN i % 3 > 0 THEN 'a shared' ELSE 'a exclusive' END || ' transaction', held();
    IF i % 2 = 0 THEN
      ASSERT zk_unlock('a');
    END IF;
    COMMIT;
  END LOOP;
END$$;

SELECT dblink_disconnect('other');
DROP FUNCTION held, seen, other;
DROP EXTENSION dblink;
DROP TABLE note;
SELECT count(*) AS held FROM zk_locks;
