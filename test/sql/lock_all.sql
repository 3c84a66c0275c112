-- zk_lock_all: all or none.
-- PostgreSQL 19 adds a line with the hash of the name; t/075 has the contexts of waits
\set SHOW_CONTEXT never
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION other(statement text) RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink('other', statement) AS r (result text)$$;
-- which of the locks another session could have
CREATE FUNCTION free(VARIADIC names text[]) RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(n, ' ' ORDER BY n), 'none') FROM unnest(names) n
     WHERE other(format('SELECT zk_try_lock(%L)', n))::boolean$$;
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid() AND granted$$;
-- undo the holds of a lock, and count them
CREATE FUNCTION undo(name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  n integer := 0;
BEGIN
  SET LOCAL client_min_messages = error;
  WHILE zk_unlock(name) LOOP
    n := n + 1;
  END LOOP;
  SET LOCAL client_min_messages = notice;
  RETURN n;
END$$;

-- held for the statement, or for the transaction; the order does not matter
SELECT zk_lock_all('{b,a}');
SELECT held(), free('a', 'b');
BEGIN;
SELECT zk_lock_all(ARRAY['c', 'a', 'b']);
SELECT held(), free('a', 'b', 'c', 'd');
SELECT zk_fencing_token('a') > 0 AS a, zk_fencing_token('c') > 0 AS c;
SELECT zk_unlock('b'), held(), free('a', 'b', 'c');
COMMIT;
SELECT held(), free('a', 'b', 'c');
BEGIN;
SELECT zk_lock_all('{a,b}', shared => true);
SELECT held(), free('a', 'b'), other($$SELECT zk_lock_all('{b,a}', shared => true)$$) AS shared;
ROLLBACK;
SELECT zk_lock_all('{a,b}', session => true);
BEGIN;
SELECT zk_lock_all('{b,c}');
SELECT held(), free('a', 'b', 'c');
ROLLBACK;
SELECT held(), free('a', 'b', 'c');
SELECT zk_unlock_all(), held();

-- one hold for each name, however often it is named
BEGIN;
SELECT zk_lock_all('{b,a,b,a,b}');
SELECT held(), undo('a'), undo('b');
COMMIT;

-- nothing to lock
BEGIN;
SELECT zk_lock_all('{}'), held();
SELECT zk_lock_all('{}', session => true), held();
COMMIT;

-- locks that are held already get one more hold
BEGIN;
SELECT zk_lock('b'), zk_lock('c', shared => true);
SELECT zk_lock_all('{a,b,c}', shared => true);
SELECT held(), undo('a'), undo('b'), undo('c');
COMMIT;
-- unless one of them cannot be had in that mode: then none
BEGIN;
SELECT zk_lock('b', shared => true);
SAVEPOINT s;
SELECT zk_lock_all('{a,b,c}');
\echo :SQLSTATE
ROLLBACK TO s;
RELEASE s;
SELECT held(), free('a', 'b', 'c'), undo('b');
COMMIT;

-- of locks that others hold: all or none, in time
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a')$$);
SELECT zk_lock_all('{a,b,c}', '20ms');
\echo :SQLSTATE
SELECT zk_lock_all('{c,b,a}', '0');
\echo :SQLSTATE
SET lock_timeout = '20ms';
SELECT zk_lock_all('{a,b,c}', '1 hour');
\echo :SQLSTATE
SHOW lock_timeout;
RESET lock_timeout;
SELECT zk_lock_all('{a,b,c}', '20ms', session => true);
SELECT zk_lock_all('{a,b}', '20ms', shared => true);
SELECT name, pid = pg_backend_pid() AS ours FROM zk_locks;
BEGIN;
SELECT zk_lock('b'), zk_lock('c', session => true);
SAVEPOINT s;
SELECT zk_lock_all('{a,b,c,d}', '20ms');
ROLLBACK TO s;
RELEASE s;
SELECT held(), undo('b'), undo('c');
COMMIT;
DO $$
BEGIN
  PERFORM zk_lock('b');
  BEGIN
    PERFORM zk_lock_all('{a,b,c,d}', '20ms');
  EXCEPTION WHEN lock_not_available THEN
    RAISE NOTICE '%', SQLERRM;
  END;
  RAISE NOTICE '%, b: %', held(), undo('b');
END$$;
SELECT dblink_exec('other', 'COMMIT');
SELECT zk_lock_all('{a,b,c}', '1 min');
SELECT held(), free('a', 'b', 'c', 'd');

-- savepoints give all of it back
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock_all('{a,b,c}');
ROLLBACK TO s;
SELECT held(), free('b', 'c'), undo('a');
COMMIT;

-- arguments
SELECT zk_lock_all(NULL);
\echo :SQLSTATE
SELECT zk_lock_all('{a,NULL,b}');
\echo :SQLSTATE
SELECT zk_lock_all('{a,"",b}');
\echo :SQLSTATE
SELECT zk_lock_all(ARRAY['a', repeat('x', 256)]);
\echo :SQLSTATE
SELECT zk_lock_all('{a}', '-1ms');
\echo :SQLSTATE
SELECT zk_lock_all('{a}', shared => NULL);
\echo :SQLSTATE
SELECT zk_lock_all('{a}', session => NULL);
SELECT held(), free('a', 'b');
-- at most 500 locks
BEGIN;
SELECT zk_lock_all(array_agg('lock_all/' || i % 500)) FROM generate_series(1, 1200) i;
SELECT count(*) FROM zk_locks WHERE granted AND mode = 'exclusive';
COMMIT;
SELECT zk_lock_all(array_agg('lock_all/' || i)) FROM generate_series(1, 501) i;
\echo :SQLSTATE
-- which is found without looking at the rest
SELECT zk_lock_all(array_agg('lock_all/' || i) || ''::text) FROM generate_series(1, 501) i;
-- a long array of few names can be canceled
CREATE TEMP TABLE long AS SELECT array_fill('lock_all/1'::text, '{1000000}') || ''::text AS names;
SET statement_timeout = '20ms';
SELECT zk_lock_all(names) FROM long;
RESET statement_timeout;

SELECT dblink_disconnect('other');
DROP FUNCTION undo, held, free, other;
DROP EXTENSION dblink;
SELECT count(*) AS held FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
