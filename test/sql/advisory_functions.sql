-- zklock.advisory_locks: PostgreSQL's advisory lock functions take locks in
-- ZooKeeper.

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

-- off: PostgreSQL's
SHOW zklock.advisory_locks;
SELECT pg_advisory_lock(1);
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);

SET zklock.advisory_locks = on;

-- each function, in both forms
SELECT pg_advisory_lock(1), pg_advisory_lock(1, 1),
       pg_try_advisory_lock(2), pg_try_advisory_lock(2, 2),
       pg_advisory_lock_shared(3), pg_advisory_lock_shared(3, 3),
       pg_try_advisory_lock_shared(4), pg_try_advisory_lock_shared(4, 4);
SELECT * FROM regress_held;
BEGIN;
SELECT pg_advisory_xact_lock(5), pg_advisory_xact_lock(5, 5),
       pg_try_advisory_xact_lock(6), pg_try_advisory_xact_lock(6, 6),
       pg_advisory_xact_lock_shared(7), pg_advisory_xact_lock_shared(7, 7),
       pg_try_advisory_xact_lock_shared(8), pg_try_advisory_xact_lock_shared(8, 8);
SELECT * FROM regress_held WHERE scope = 'transaction';
COMMIT;
SELECT locktype, count(*) FROM regress_locks GROUP BY locktype ORDER BY locktype;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1, 1),
       pg_advisory_unlock(2), pg_advisory_unlock(2, 2),
       pg_advisory_unlock_shared(3), pg_advisory_unlock_shared(3, 3),
       pg_advisory_unlock_shared(4), pg_advisory_unlock_shared(4, 4);
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;

-- the ends of the range of keys, and strict as PostgreSQL's
SELECT pg_advisory_lock(-1), pg_advisory_lock(9223372036854775807),
       pg_advisory_lock(-9223372036854775808), pg_advisory_lock(4294967296),
       pg_advisory_lock(-2147483648, 2147483647), pg_advisory_lock(NULL),
       pg_advisory_lock(1, NULL), pg_try_advisory_lock(NULL) IS NULL AS strict;
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(-1), pg_advisory_unlock(9223372036854775807),
       pg_advisory_unlock(-9223372036854775808), pg_advisory_unlock(4294967296),
       pg_advisory_unlock(-2147483648, 2147483647), pg_advisory_unlock(NULL) IS NULL AS strict;

-- only what the session holds in this very mode can be unlocked
SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(1);
SELECT * FROM regress_held;
SELECT pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
-- what is left is still exclusive
SELECT * FROM regress_held;
SELECT pg_advisory_unlock_shared(1);
BEGIN;
SELECT pg_advisory_xact_lock(1), pg_advisory_lock(1), pg_advisory_xact_lock(1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT * FROM regress_held;
SAVEPOINT s;
SELECT pg_advisory_lock(1), pg_advisory_xact_lock(2), pg_advisory_lock(3);
ROLLBACK TO s;
SELECT * FROM regress_held;
ROLLBACK;
SELECT * FROM regress_held;
SELECT pg_advisory_unlock_all();
SELECT * FROM regress_held;

-- what differs by zklock's rules: a shared lock is not made exclusive, ...
SELECT pg_advisory_lock_shared(1);
\set VERBOSITY sqlstate
SELECT pg_advisory_lock(1);
SELECT pg_try_advisory_lock(1);
\set VERBOSITY default
SELECT pg_advisory_unlock_shared(1);
-- ... and what is unlocked after a change ends with the transaction
CREATE TABLE regress_t (i int);
SELECT pg_advisory_lock(1), pg_advisory_lock(2);
BEGIN;
INSERT INTO regress_t VALUES (1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT pg_advisory_unlock_all();
SELECT * FROM regress_held;
ROLLBACK;
SELECT * FROM regress_held;

-- pg_advisory_unlock_all() leaves what zk_lock() has taken, and its rows in
-- pg_locks, and the other way round it does not
SELECT zk_lock('x', session => true), zk_lock('x', session => true), pg_advisory_lock(1);
SELECT pg_advisory_unlock_all();
SELECT locktype, mode, name, scope FROM regress_held;
SELECT zk_unlock('x'), zk_unlock('x');
SELECT pg_advisory_lock(1);
SELECT zk_unlock_all();
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;
SELECT pg_advisory_lock(1);
DISCARD ALL;
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;

-- the name is the lock, whoever takes it; other names are other locks
SET zklock.advisory_locks = on;
SELECT zk_lock('advisory/' || current_database() || '/1', session => true), pg_advisory_lock(1);
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(1), zk_unlock('advisory/' || current_database() || '/1');
BEGIN;
SELECT zk_lock('advisory/' || current_database() || '/' || key)
  FROM unnest('{01,"1 ",+1,-0,"1,",",1","1,2,3",1e1,9223372036854775808,"1,2147483648",a,""}'::text[]) key;
SELECT zk_lock('advisory/1'), zk_lock('advisory//1'), zk_lock('advisory/no such database/1');
SELECT DISTINCT locktype, count(*) OVER () FROM regress_held;
ROLLBACK;
-- that of another database, too, and a semaphore
BEGIN;
SELECT zk_lock('advisory/template1/7,-7'), zk_acquire('advisory/' || current_database() || '/18', 1);
SELECT locktype, replace(name, current_database(), 'DB') AS name FROM regress_held ORDER BY name;
ROLLBACK;
-- the heavyweight locks of both kinds come and go together
BEGIN;
SELECT zk_lock('advisory/' || current_database() || '/1', shared => true);
SAVEPOINT s;
SELECT pg_advisory_xact_lock_shared(1), pg_advisory_xact_lock(2), pg_advisory_lock(3),
       zk_lock_all(ARRAY['advisory/' || current_database() || '/4', 'x']),
       zk_lock_any(ARRAY['advisory/' || current_database() || '/5', 'x']) IS NULL AS none;
SELECT locktype, mode, count(*) FROM regress_locks GROUP BY 1, 2 ORDER BY 1, 2;
ROLLBACK TO s;
SELECT locktype, mode, count(*) FROM regress_locks GROUP BY 1, 2 ORDER BY 1, 2;
COMMIT;
SELECT locktype, mode, count(*) FROM regress_locks GROUP BY 1, 2 ORDER BY 1, 2;
SELECT pg_advisory_unlock(3);
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;

--
-- Wherever the call is
--

-- Takes the lock in the way that is to be tested, and tells its name.
CREATE FUNCTION regress_took(query text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	taken text;
BEGIN
	PERFORM pg_advisory_unlock_all();
	EXECUTE query;
	SELECT string_agg(coalesce(h.name, 'none'), ' ') INTO taken FROM regress_held h;
	PERFORM pg_advisory_unlock_all();
	RETURN coalesce(taken, '');
END $$;
CREATE VIEW regress_v AS SELECT pg_try_advisory_lock(10) AS got;
CREATE FUNCTION regress_inlined(k bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT pg_try_advisory_lock(k)';
CREATE FUNCTION regress_inlined_twice(k bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT NOT regress_inlined(k + 1)';
CREATE FUNCTION regress_rows(k bigint) RETURNS TABLE (got boolean)
LANGUAGE sql STABLE AS 'SELECT regress_inlined(k) FROM regress_v';
CREATE FUNCTION regress_body(k bigint) RETURNS boolean
LANGUAGE sql BEGIN ATOMIC SELECT pg_try_advisory_lock(k); END;
CREATE FUNCTION regress_two(k bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT pg_advisory_lock(k); SELECT pg_advisory_unlock(k); SELECT pg_try_advisory_lock(k)';
CREATE FUNCTION regress_default(got boolean DEFAULT pg_try_advisory_lock(11)) RETURNS boolean
LANGUAGE plpgsql AS 'BEGIN RETURN got; END';
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
CREATE FUNCTION regress_trigger() RETURNS trigger
LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(NEW.i); RETURN NEW; END';
CREATE TRIGGER regress_lock BEFORE INSERT ON regress_t FOR EACH ROW EXECUTE FUNCTION regress_trigger();
CREATE FUNCTION regress_definer() RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = '' AS 'SELECT pg_try_advisory_lock(12)';
CREATE TABLE regress_d (i int, got boolean DEFAULT pg_try_advisory_lock(13));
CREATE SCHEMA regress_shadow;
CREATE FUNCTION regress_shadow.pg_try_advisory_lock(bigint) RETURNS text LANGUAGE sql AS $$SELECT 'not this'$$;

\pset tuples_only on
\pset format unaligned
SELECT format('SELECT %L, regress_took(%L)', what, query) FROM (VALUES
	('plain', 'SELECT pg_try_advisory_lock(1)'),
	('qualified', 'SELECT pg_catalog.pg_try_advisory_lock(1)'),
	('by another search_path', 'SET LOCAL search_path = regress_shadow, pg_catalog; SELECT pg_catalog.pg_try_advisory_lock(1); RESET search_path'),
	('argument', 'SELECT coalesce(pg_try_advisory_lock(1), false)'),
	('subquery', 'SELECT (SELECT pg_try_advisory_lock(1))'),
	('correlated', 'SELECT (SELECT pg_try_advisory_lock(i)) FROM generate_series(1, 2) i'),
	('FROM', 'SELECT 1 FROM (SELECT pg_try_advisory_lock(1)) q'),
	('function in FROM', 'SELECT 1 FROM pg_try_advisory_lock(1)'),
	('WITH', 'WITH q AS MATERIALIZED (SELECT pg_try_advisory_lock(1)) SELECT * FROM q'),
	('WHERE', 'SELECT 1 FROM generate_series(1, 2) i WHERE pg_try_advisory_lock(i)'),
	('JOIN', 'SELECT 1 FROM generate_series(1, 2) i JOIN generate_series(1, 2) j ON i = j AND pg_try_advisory_lock(i * j)'),
	('HAVING', 'SELECT count(*) FROM regress_t HAVING pg_try_advisory_lock(1)'),
	('ORDER BY', 'SELECT i FROM generate_series(1, 2) i ORDER BY pg_try_advisory_lock(i)'),
	('aggregate', 'SELECT count(pg_try_advisory_lock(i)) FROM generate_series(1, 2) i'),
	('window', 'SELECT count(*) OVER (ROWS (SELECT 1 WHERE pg_try_advisory_lock(1)) PRECEDING) FROM generate_series(1, 2)'),
	('LIMIT', 'SELECT 1 LIMIT pg_try_advisory_lock(1)::int'),
	('VALUES', 'VALUES (pg_try_advisory_lock(1)), (pg_try_advisory_lock(2))'),
	('UNION', 'SELECT pg_try_advisory_lock(1) UNION SELECT pg_try_advisory_lock(2)'),
	('INSERT', 'INSERT INTO regress_d VALUES (1, pg_try_advisory_lock(1))'),
	('DEFAULT', 'INSERT INTO regress_d VALUES (1)'),
	('RETURNING', 'INSERT INTO regress_d VALUES (1, true) RETURNING pg_try_advisory_lock(1)'),
	('UPDATE', 'UPDATE regress_d SET got = pg_try_advisory_lock(1)'),
	('MERGE', 'MERGE INTO regress_d USING (VALUES (2)) v (i) ON false WHEN NOT MATCHED THEN INSERT VALUES (2, pg_try_advisory_lock(1))'),
	('CREATE TABLE AS', 'CREATE TEMP TABLE regress_as AS SELECT pg_try_advisory_lock(1)'),
	('trigger', 'INSERT INTO regress_t VALUES (1)'),
	('view', 'SELECT * FROM regress_v'),
	('inlined', 'SELECT regress_inlined(1)'),
	('inlined in WHERE', 'SELECT 1 FROM generate_series(1, 2) i WHERE regress_inlined(i)'),
	('inlined in JOIN', 'SELECT 1 FROM generate_series(1, 2) i LEFT JOIN generate_series(1, 2) j ON i <= j AND regress_inlined(i * j)'),
	('inlined in FROM', 'SELECT * FROM regress_inlined(1)'),
	('inlined in VALUES', 'VALUES (regress_inlined(1)), (regress_inlined(2))'),
	('inlined in LIMIT', 'SELECT 1 LIMIT regress_inlined(1)::int'),
	('inlined in RETURNING', 'INSERT INTO regress_d VALUES (1, true) RETURNING regress_inlined(1)'),
	('inlined in a subquery', 'SELECT 1 FROM generate_series(1, 2) i WHERE i < 2 OR (SELECT regress_inlined(i))'),
	('inlined twice', 'SELECT regress_inlined_twice(1)'),
	('rows of a function', 'SELECT * FROM regress_rows(1)'),
	('body', 'SELECT regress_body(1)'),
	('two statements', 'SELECT regress_two(1)'),
	('default argument', 'SELECT regress_default()'),
	('PERFORM', 'SELECT regress_perform(1)'),
	('expression', 'SELECT regress_expression(1)'),
	('SECURITY DEFINER', 'SELECT regress_definer()'),
	('DO', 'DO $do$ BEGIN PERFORM pg_advisory_lock(1); END $do$')) t (what, query) \gexec
\pset tuples_only off
\pset format aligned

-- what is seen of it
EXPLAIN (VERBOSE, COSTS OFF) SELECT pg_try_advisory_lock(1), regress_inlined(2);
-- what is stored stays as it was written
CREATE MATERIALIZED VIEW regress_m AS SELECT pg_try_advisory_lock(20) AS got;
SELECT pg_get_viewdef('regress_m');
SELECT name FROM regress_held;
SELECT pg_advisory_unlock(20);
REFRESH MATERIALIZED VIEW regress_m;
SELECT name FROM regress_held;
SELECT pg_advisory_unlock(20);
DROP MATERIALIZED VIEW regress_m;
-- a cursor, COPY, EXPLAIN, and in parallel queries
BEGIN;
DECLARE c CURSOR FOR SELECT pg_try_advisory_xact_lock(i) FROM generate_series(21, 23) i;
FETCH 2 FROM c;
COPY (SELECT pg_try_advisory_xact_lock(24)) TO STDOUT;
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE SELECT pg_try_advisory_xact_lock(25)'; END $$;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT count(pg_try_advisory_xact_lock(26)) > 0 AS some FROM pg_class;
SELECT name FROM regress_held;
COMMIT;
-- the other functions of that name are left alone
SET search_path = regress_shadow, public, pg_catalog;
SELECT pg_try_advisory_lock(1);
RESET search_path;

-- what is not planned: PostgreSQL's lock, which is unlocked all the same
CREATE PROCEDURE regress_call(boolean) LANGUAGE plpgsql AS 'BEGIN END';
PREPARE regress_execute(boolean) AS SELECT $1;
CALL regress_call(pg_try_advisory_lock(1));
EXECUTE regress_execute(pg_try_advisory_lock(2));
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT pg_advisory_lock(2), pg_advisory_unlock(2), pg_advisory_unlock(2), pg_advisory_unlock(2);
CALL regress_call(pg_try_advisory_lock(1));
SELECT pg_advisory_unlock_all();
SELECT * FROM regress_held;
-- beside a hold that has been undone, but not ended: as many times as it is
-- PostgreSQL's own, and not the hold's
SELECT pg_advisory_lock(1), pg_advisory_lock(1);
BEGIN;
INSERT INTO regress_t VALUES (1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
CALL regress_call(pg_try_advisory_lock(1));
CALL regress_call(pg_try_advisory_lock(1));
SELECT pg_advisory_unlock_shared(1);
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT * FROM regress_held;
CALL regress_call(pg_try_advisory_lock(1));
COMMIT;
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
SELECT count(*) AS in_pg_locks, (SELECT count(*) FROM zk_locks) AS held FROM regress_locks;
-- a default that COPY fills in, its condition, a constraint, a domain, ALTER TABLE, a
-- condition of a trigger; a function in language internal, an operator
CREATE TABLE regress_c (i int, got boolean DEFAULT pg_try_advisory_lock(1),
                        CHECK (pg_try_advisory_lock(2)));
COPY regress_c (i) FROM STDIN WHERE pg_try_advisory_lock(8);
1
\.
CREATE DOMAIN regress_domain AS bigint CHECK (pg_try_advisory_lock(VALUE));
SELECT 3::regress_domain;
ALTER TABLE regress_c ALTER got TYPE text USING pg_try_advisory_lock(4)::text;
ALTER TABLE regress_c ADD added boolean DEFAULT pg_try_advisory_lock(9);
ALTER TABLE regress_c DROP added;
CREATE FUNCTION regress_when() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER regress_when BEFORE INSERT ON regress_c FOR EACH ROW
    WHEN (pg_try_advisory_lock(7)) EXECUTE FUNCTION regress_when();
INSERT INTO regress_c VALUES (1, 't');
CREATE FUNCTION regress_alias(bigint) RETURNS boolean
LANGUAGE internal VOLATILE STRICT AS 'pg_try_advisory_lock_int8';
SELECT regress_alias(5);
CREATE OPERATOR ?! (FUNCTION = pg_try_advisory_lock, RIGHTARG = bigint);
SELECT ?! 6::bigint;
SELECT objid, name FROM regress_held;
SELECT pg_advisory_unlock_all();
DROP TABLE regress_c;
DROP FUNCTION regress_when;
DROP DOMAIN regress_domain;
DROP OPERATOR ?! (NONE, bigint);
DROP FUNCTION regress_alias;

DROP SCHEMA regress_shadow CASCADE;
DROP PROCEDURE regress_call;
DROP FUNCTION regress_took, regress_inlined, regress_inlined_twice, regress_rows, regress_body,
              regress_two, regress_default, regress_perform, regress_expression, regress_definer;
DROP TABLE regress_t, regress_d;
DROP FUNCTION regress_trigger;
DROP VIEW regress_v, regress_held, regress_locks;
SELECT count(*) AS held FROM zk_locks;
