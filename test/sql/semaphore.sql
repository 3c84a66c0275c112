-- Semaphores: at most so many holders at a time.
CREATE EXTENSION dblink;
SELECT dblink_connect(name, format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user))
  FROM unnest('{other,third}'::text[]) name;
CREATE FUNCTION other(statement text, who text DEFAULT 'other') RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink(who, statement) AS r (result text)$$;
-- how many of so many permits are left
CREATE FUNCTION permits_left(name text, permits integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  n integer := 0;
BEGIN
  FOR i IN 1..2 LOOP
    EXIT WHEN NOT other(format('SELECT zk_try_acquire(%L, %s, session => true)', name, permits),
      (ARRAY['other', 'third'])[i])::boolean;
    n := i;
  END LOOP;
  FOR i IN 1..n LOOP
    PERFORM other(format('SELECT zk_unlock(%L)', name), (ARRAY['other', 'third'])[i]);
  END LOOP;
  RETURN n;
END$$;
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid() AND granted$$;
CREATE TABLE note (t text);

-- for the statement, for the transaction, for the session
SELECT zk_acquire('s', 2);
SELECT held(), permits_left('s', 2);
BEGIN;
SELECT zk_acquire('s', 2);
SELECT held(), permits_left('s', 2);
COMMIT;
SELECT held(), permits_left('s', 2);
BEGIN;
SELECT zk_try_acquire('s', 2, session => true);
ROLLBACK;
SELECT held(), permits_left('s', 2);
SELECT zk_unlock('s'), held(), zk_unlock('s');
SELECT permits_left('s', 2);

-- when all are in use
SELECT other($$SELECT zk_acquire('s', 2, session => true)$$),
       other($$SELECT zk_acquire('s', 2, session => true)$$, 'third');
SELECT zk_try_acquire('s', 2), zk_try_acquire('s', 2, '20ms');
SELECT zk_acquire('s', 2, '20ms');
\echo :SQLSTATE
SELECT zk_acquire('s', 2, '0');
\echo :SQLSTATE
SET lock_timeout = '20ms';
SELECT zk_acquire('s', 2);
\echo :SQLSTATE
SELECT zk_try_acquire('s', 2, NULL);
RESET lock_timeout;
SELECT name, mode, scope, granted, pid = pg_backend_pid() AS ours FROM zk_locks;
-- one is given back
SELECT other($$SELECT zk_unlock('s')$$);
SELECT zk_try_acquire('s', 2, '1 min');
SELECT other($$SELECT zk_unlock('s')$$, 'third');
-- a single one is a lock that no session holds twice
BEGIN;
SELECT zk_acquire('one', 1);
SELECT held(), permits_left('one', 1);
COMMIT;
SELECT permits_left('one', 1);

-- re-entrant: a session takes one permit, and gives it back with the last hold
BEGIN;
SELECT zk_acquire('s', 2), zk_acquire('s', 2), zk_try_acquire('s', 2);
SELECT held(), permits_left('s', 2);
SELECT zk_unlock('s'), zk_unlock('s'), held(), permits_left('s', 2);
SELECT zk_unlock('s'), held(), permits_left('s', 2), zk_unlock('s');
COMMIT;
SELECT zk_acquire('s', 2, session => true);
BEGIN;
SELECT zk_acquire('s', 2);
COMMIT;
SELECT held(), permits_left('s', 2);
SELECT zk_unlock_all(), held(), permits_left('s', 2);

-- a permit has no fencing token
BEGIN;
SELECT zk_acquire('s', 2);
SELECT zk_fencing_token('s');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT zk_acquire('s', 2);
SELECT zk_fence('s');
ROLLBACK;
SELECT zk_fencing_token('s');

-- savepoints, errors, what has been written
BEGIN;
SAVEPOINT s;
SELECT zk_acquire('s', 2);
ROLLBACK TO s;
SELECT held(), permits_left('s', 2);
SELECT zk_acquire('s', 2), zk_acquire('t', 2, session => true);
SELECT 1/0;
ROLLBACK;
SELECT held(), permits_left('s', 2), permits_left('t', 2);
BEGIN;
SELECT zk_acquire('s', 2);
INSERT INTO note VALUES ('s');
SELECT zk_unlock('s'), zk_unlock('t'), permits_left('s', 2), permits_left('t', 2);
COMMIT;
SELECT held(), permits_left('s', 2), permits_left('t', 2);
BEGIN;
SELECT zk_acquire('s', 2);
PREPARE TRANSACTION 'regress_zk';
\echo :SQLSTATE
SELECT zk_acquire('s', 2, session => true);
DISCARD ALL;
SELECT held(), permits_left('s', 2);

-- all agree on the number while the semaphore is in use
SELECT other($$SELECT zk_acquire('s', 2, session => true)$$);
SELECT zk_acquire('s', 3);
\echo :SQLSTATE
SELECT zk_try_acquire('s', 1);
\echo :SQLSTATE
SELECT zk_acquire('s', 2, session => true);
SELECT zk_acquire('s', 3);
SELECT held(), zk_unlock('s'), held();
SELECT other($$SELECT zk_unlock('s')$$);
-- it is in use until ZooKeeper has removed the lease
DO $$
BEGIN
    WHILE EXISTS (SELECT FROM zk_queue('s')) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END$$;
SELECT zk_try_acquire('s', 3, '1 min');

-- a name is a lock or a semaphore
BEGIN;
SELECT zk_acquire('s', 2), zk_lock('l');
SAVEPOINT s;
SELECT zk_lock('s');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_try_lock('s', shared => true);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_lock_all('{r,s,t}');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_acquire('l', 2);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_try_acquire('l', 2);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT held();
COMMIT;
-- also if others use it
SELECT other($$SELECT zk_acquire('s', 2, session => true)$$),
       other($$SELECT zk_lock('l', session => true)$$);
SELECT zk_lock('s');
\echo :SQLSTATE
SELECT zk_try_lock('s');
\echo :SQLSTATE
SELECT zk_acquire('l', 2);
\echo :SQLSTATE
SELECT zk_try_acquire('l', 2, '1 min');
\echo :SQLSTATE
SELECT other('SELECT zk_unlock_all()');
SELECT zk_try_acquire('s', 2), zk_try_lock('l');

-- arguments
SELECT zk_acquire(NULL, 2);
\echo :SQLSTATE
SELECT zk_acquire('', 2);
\echo :SQLSTATE
SELECT zk_acquire('s', NULL);
\echo :SQLSTATE
SELECT zk_acquire('s', 0);
\echo :SQLSTATE
SELECT zk_try_acquire('s', -1);
\echo :SQLSTATE
SELECT zk_acquire('s', 2, '-1ms');
\echo :SQLSTATE
SELECT zk_acquire('s', 2, session => NULL);
\echo :SQLSTATE

SELECT dblink_disconnect('other'), dblink_disconnect('third');
DROP FUNCTION held, permits_left, other;
DROP EXTENSION dblink;
DROP TABLE note;
SELECT count(*) AS held FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
