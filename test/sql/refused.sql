-- What is refused, clearly.

-- a mode or scope that is not known
SELECT zk_lock('a', shared => NULL);
\echo :SQLSTATE
SELECT zk_try_lock('a', session => NULL);

-- PREPARE TRANSACTION: the transaction is rolled back, and the lock free
CREATE TABLE refused (a integer);
BEGIN;
SELECT zk_lock('a');
INSERT INTO refused VALUES (1);
PREPARE TRANSACTION 'regress_zk';
\echo :SQLSTATE
SELECT count(*) FROM refused;
ROLLBACK PREPARED 'regress_zk';
SELECT name FROM zk_locks;
SELECT zk_try_lock('a');
-- a lock that is undone, but goes with the transaction only
BEGIN;
SELECT zk_lock('a');
INSERT INTO refused VALUES (1);
SELECT zk_unlock('a');
PREPARE TRANSACTION 'regress_zk';
\echo :SQLSTATE
ROLLBACK PREPARED 'regress_zk';
SELECT name FROM zk_locks;

-- locks in a parallel worker, where a function that is wrongly marked
-- PARALLEL SAFE may run
CREATE FUNCTION lock_in_worker(name text) RETURNS boolean
  LANGUAGE plpgsql PARALLEL SAFE AS
  $$BEGIN PERFORM zk_lock(name); RETURN true; END$$;
CREATE FUNCTION unlock_in_worker(name text) RETURNS boolean
  LANGUAGE plpgsql PARALLEL SAFE AS
  $$BEGIN RETURN zk_unlock(name); END$$;
INSERT INTO refused SELECT generate_series(1, 1000);
ANALYZE refused;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_leader_participation = off;
SAVEPOINT s;
SELECT count(*) FROM refused WHERE lock_in_worker('a');
\echo :SQLSTATE
ROLLBACK TO s;
-- the leader's lock is not the worker's
SELECT zk_lock('a');
SELECT count(*) FROM refused WHERE lock_in_worker('a');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_lock('a');
SAVEPOINT s2;
SELECT count(*) FROM refused WHERE unlock_in_worker('a');
ROLLBACK TO s2;
-- and is not lost by one that does something else
SELECT count(*) FROM refused;
SELECT name, granted FROM zk_locks;
COMMIT;

DROP FUNCTION lock_in_worker, unlock_in_worker;
DROP TABLE refused;
SELECT count(*) AS held FROM zk_locks;
