-- Taking locks: for how long, how often, and for how long to wait.
-- PostgreSQL 19 adds a line with the hash of the name; t/075 has the contexts of waits
\set SHOW_CONTEXT never

-- another session of this server
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION other(statement text) RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink('other', statement) AS r (result text)$$;
CREATE FUNCTION is_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT other(format('SELECT zk_try_lock(%L)', name))::boolean$$;

-- outside a transaction block the lock is held for the statement
SELECT zk_lock('a');
SELECT count(*) AS held FROM zk_locks;
WITH l AS MATERIALIZED (SELECT zk_try_lock('a') AS locked)
  SELECT locked, is_free('a') FROM l;
SELECT is_free('a');

-- in a transaction block, until its end
BEGIN;
SELECT zk_lock('a');
SELECT name, mode, scope, granted, lost FROM zk_locks;
SELECT is_free('a'), is_free('b');
COMMIT;
SELECT is_free('a');
BEGIN;
SELECT zk_lock('a');
SELECT is_free('a');
ROLLBACK;
SELECT is_free('a');
BEGIN;
SELECT zk_lock('a');
SELECT 1/0;
COMMIT;
SELECT is_free('a');

-- several locks; one row for each, however often it is held
BEGIN;
SELECT zk_lock('b'), zk_lock('a'), zk_lock('b'), zk_try_lock('a');
SELECT name FROM zk_locks ORDER BY name;
COMMIT AND CHAIN;
SELECT name FROM zk_locks;
ROLLBACK;

-- held twice: it takes two to give it back
BEGIN;
SELECT zk_lock('a');
SELECT zk_lock('a');
SELECT zk_unlock('a'), is_free('a');
SELECT zk_unlock('a'), is_free('a');
SELECT zk_unlock('a'), is_free('a');
COMMIT;

-- a lock that another session holds
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a')$$);
SELECT zk_try_lock('a');
SELECT zk_try_lock('a', '20ms');
SELECT zk_try_lock('b');
SELECT zk_unlock('a');
SELECT zk_lock('a', '20ms');
\echo :SQLSTATE
SELECT zk_lock('a', timeout => '1 microsecond');
\echo :SQLSTATE
SELECT zk_lock('a', '0');
\echo :SQLSTATE
-- which leaves lock_timeout as it was
SHOW lock_timeout;
-- lock_timeout bounds the wait too; for zk_try_lock that is an answer
SET lock_timeout = '20ms';
SELECT zk_lock('a');
\echo :SQLSTATE
SELECT zk_lock('a', '1 hour');
\echo :SQLSTATE
SELECT zk_try_lock('a', NULL), zk_try_lock('a', '1 hour');
SHOW lock_timeout;
RESET lock_timeout;
-- so does statement_timeout, but that is an error
SET statement_timeout = '1s';
SELECT zk_try_lock('a', '1 hour');
\echo :SQLSTATE
RESET statement_timeout;
-- a try that fails leaves the transaction and its locks as they were
BEGIN;
SELECT zk_lock('b');
SELECT zk_try_lock('a'), zk_try_lock('a', '20ms'), zk_try_lock('c', '1 hour');
SELECT name, pid = pg_backend_pid() AS ours, granted FROM zk_locks ORDER BY name;
COMMIT;
-- only the wait is over
SELECT name, pid = pg_backend_pid() AS ours, granted FROM zk_locks;
SELECT dblink_exec('other', 'COMMIT');
SELECT zk_try_lock('a');

-- a session that ends gives its locks back
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a')$$);
SELECT dblink_disconnect('other');
SELECT zk_lock('a');

-- timeouts that make no sense, or a lot of it
SELECT zk_lock('a', '-1ms');
\echo :SQLSTATE
SELECT zk_try_lock('a', '1 month -31 days');
SELECT zk_try_lock('a', '-1 microsecond');
SELECT zk_lock('a', '1 month');
SELECT zk_lock('a', '178000000 years');
SELECT zk_try_lock('a', NULL);
SELECT zk_lock('a', timeout => NULL);

DROP FUNCTION is_free, other;
DROP EXTENSION dblink;
SELECT count(*) AS held FROM zk_locks;
