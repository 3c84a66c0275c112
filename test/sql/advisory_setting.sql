-- zklock.advisory_locks: when it changes, who may use it, and where.

-- what this session has in pg_locks, and what that is in ZooKeeper; without the
-- user lock that each lock has that stands for an advisory lock
CREATE VIEW regress_held AS
    SELECT l.locktype, l.classid, l.objid, l.objsubid, l.mode,
           replace(z.name, current_database(), 'DB') AS name, z.scope
      FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
     WHERE (l.locktype = 'advisory' OR l.locktype = 'userlock' AND z.name IS NOT NULL)
       AND pid = pg_backend_pid()
     ORDER BY 4, 2, 3, 5;
CREATE VIEW regress_locks AS
    SELECT locktype, mode FROM pg_locks
     WHERE locktype IN ('advisory', 'userlock') AND pid = pg_backend_pid();

CREATE FUNCTION regress_inlined(k bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT pg_try_advisory_lock(k)';
CREATE FUNCTION regress_two(k bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT pg_advisory_lock(k); SELECT pg_advisory_unlock(k); SELECT pg_try_advisory_lock(k)';
CREATE FUNCTION regress_perform(k bigint) RETURNS void
LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock(k); END';
CREATE FUNCTION regress_expression(k bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	got boolean := false;
BEGIN
	IF NOT got THEN
		got := pg_try_advisory_lock(k);
	END IF;
	RETURN got;
END $$;

--
-- When the setting changes
--

-- plans of before
PREPARE regress_p AS SELECT pg_try_advisory_lock(1);
EXECUTE regress_p;
SELECT regress_perform(2), regress_expression(3), regress_two(4), regress_inlined(5);
SELECT objid, name FROM regress_held;
SELECT pg_advisory_unlock_all();
-- a cursor has its plan: PostgreSQL's lock
BEGIN;
DECLARE c CURSOR FOR SELECT pg_try_advisory_xact_lock(i) FROM generate_series(1, 2) i;
SET LOCAL zklock.advisory_locks = on;
FETCH ALL FROM c;
SELECT objid, name FROM regress_held;
COMMIT;
SET zklock.advisory_locks = on;
EXECUTE regress_p;
SELECT regress_perform(2), regress_expression(3), regress_two(4), regress_inlined(5);
SELECT objid, name FROM regress_held;
-- what is held is unlocked as it was taken
SET zklock.advisory_locks = off;
EXECUTE regress_p;
SELECT regress_perform(2), regress_expression(3), regress_two(6);
SELECT objid, name FROM regress_held;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT objid, name FROM regress_held;
SELECT pg_advisory_unlock_all();
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;

-- for a transaction, a function, and by a rollback
BEGIN;
SET LOCAL zklock.advisory_locks = on;
SELECT pg_advisory_xact_lock(1);
SELECT name FROM regress_held;
COMMIT;
BEGIN;
SELECT pg_advisory_xact_lock(1);
SELECT name FROM regress_held;
COMMIT;
ALTER FUNCTION regress_perform SET zklock.advisory_locks = on;
SELECT regress_perform(1), regress_expression(2);
SELECT objid, name FROM regress_held;
SELECT pg_advisory_unlock_all();
BEGIN;
SET zklock.advisory_locks = on;
ROLLBACK;
SELECT pg_advisory_lock(1);
SELECT name FROM regress_held;
SELECT pg_advisory_unlock(1);

-- another root: another lock in ZooKeeper, but the same one in the instance, and
-- to unlock
SET zklock.advisory_locks = on;
SELECT pg_advisory_lock(1);
SET zklock.root = '/zklock-advisory';
SELECT pg_advisory_lock(1);
SELECT count(*), count(DISTINCT path) AS paths FROM zk_locks;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1);
RESET zklock.root;
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;

--
-- Who may, and where
--

-- who may not call PostgreSQL's function does not call ours
CREATE ROLE regress_advisory;
BEGIN;
REVOKE EXECUTE ON FUNCTION pg_advisory_lock(bigint) FROM PUBLIC;
SET LOCAL ROLE regress_advisory;
SELECT pg_try_advisory_xact_lock(1);
SELECT pg_advisory_lock(1);
\echo :SQLSTATE
ROLLBACK;
-- who may call PostgreSQL's may call ours, whatever is revoked elsewhere
BEGIN;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
SET LOCAL ROLE regress_advisory;
SELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(1, 1);
SELECT pg_advisory_unlock_all();
SAVEPOINT s;
SELECT zk_lock('x');
\echo :SQLSTATE
ROLLBACK TO s;
RESET ROLE;
SELECT name FROM regress_held;
ROLLBACK;
BEGIN;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
DROP EXTENSION zklock CASCADE;
CREATE EXTENSION zklock;
SET LOCAL ROLE regress_advisory;
SELECT pg_advisory_xact_lock(1);
RESET ROLE;
SELECT count(*) FROM zk_locks;
ROLLBACK;
DROP ROLE regress_advisory;

-- without the extension: not in silence
PREPARE regress_p2 AS SELECT regress_inlined(1);
EXECUTE regress_p2;
SELECT pg_advisory_unlock(1);
BEGIN;
DROP EXTENSION zklock CASCADE;
SELECT 1;
SAVEPOINT s;
\set VERBOSITY terse
EXECUTE regress_p2;
ROLLBACK TO s;
SELECT pg_advisory_lock(1);
\echo :SQLSTATE
ROLLBACK;
BEGIN;
DROP EXTENSION zklock CASCADE;
SET LOCAL zklock.advisory_locks = off;
SELECT pg_advisory_xact_lock(1);
ROLLBACK;
-- a plan that was made without, while it was off, is not used when it is on
BEGIN;
DROP EXTENSION zklock CASCADE;
SET LOCAL zklock.advisory_locks = off;
PREPARE regress_p3 AS SELECT pg_try_advisory_xact_lock(1), regress_expression(2);
EXECUTE regress_p3;
CREATE EXTENSION zklock;
SET LOCAL zklock.advisory_locks = on;
EXECUTE regress_p3;
SELECT replace(name, current_database(), 'DB') AS name FROM zk_locks ORDER BY name;
SELECT pg_advisory_unlock(2), pg_advisory_unlock(2);
ROLLBACK;
DEALLOCATE regress_p3;
-- or with something that only has the name
BEGIN;
ALTER EXTENSION zklock DROP FUNCTION zk_advisory_lock(bigint);
SELECT pg_advisory_lock(1);
ROLLBACK;
\set VERBOSITY default
-- in any schema
BEGIN;
DROP EXTENSION zklock CASCADE;
CREATE SCHEMA regress_zk;
CREATE EXTENSION zklock SCHEMA regress_zk;
SELECT pg_advisory_xact_lock(1);
SELECT replace(name, current_database(), 'DB') AS name FROM regress_zk.zk_locks;
ROLLBACK;
SELECT pg_advisory_lock(1);
SELECT name FROM regress_held;
SELECT pg_advisory_unlock(1);

-- wrong values
SET zklock.advisory_locks = maybe;
\echo :SQLSTATE
SET zklock.advisory_locks = true;
SHOW zklock.advisory_locks;
RESET zklock.advisory_locks;
SHOW zklock.advisory_locks;

DROP FUNCTION regress_inlined, regress_two, regress_perform, regress_expression;
DROP VIEW regress_held, regress_locks;
SELECT count(*) AS held FROM zk_locks;
