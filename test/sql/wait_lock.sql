-- zk_wait_lock, zk_wait_lock_all and zk_wait_lock_any: where they can wait
-- without a snapshot, and where not.  That they do is shown by wait_lock.spec.
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid()$$;
CREATE TABLE stock (n int);
INSERT INTO stock VALUES (1), (2);

-- a statement of its own: for the session, or in a block
CALL zk_wait_lock('a');
\echo :LAST_ERROR_SQLSTATE
CALL zk_wait_lock_all('{a,b}');
\echo :LAST_ERROR_SQLSTATE
CALL zk_wait_lock_any('{a,b}');
\echo :LAST_ERROR_SQLSTATE
CALL zk_wait_lock('a', session => true);
CALL zk_wait_lock_all('{b,c,b}', session => true, shared => true);
SELECT held();
CALL zk_wait_lock_any('{b,d,c}', session => true);
SELECT held(), zk_unlock_all();
SELECT held();
BEGIN;
CALL zk_wait_lock('a', '1min');
CALL zk_wait_lock('a');
INSERT INTO stock VALUES (3);
CALL zk_wait_lock_all('{b,c}', NULL, true);
CALL zk_wait_lock_all('{}');
CALL zk_wait_lock_any(ARRAY['d']);
SELECT held(), count(*) FROM stock;
SAVEPOINT s;
CALL zk_wait_lock('e');
SELECT held();
ROLLBACK TO s;
SELECT held();
ROLLBACK;
SELECT held();
-- several statements in one message
BEGIN\; CALL zk_wait_lock('a')\; SELECT held()\; COMMIT;
SELECT 1 AS one\; CALL zk_wait_lock_any('{a}')\; SELECT held();
SELECT held();

-- in DO and procedures outside of a block, ahead of and behind their COMMITs
DO $$
DECLARE
  got text;
BEGIN
  CALL zk_wait_lock('a');
  RAISE NOTICE '%, % rows', held(), (SELECT count(*) FROM stock);
  INSERT INTO stock VALUES (3);
  CALL zk_wait_lock_any('{b}', name => got);
  RAISE NOTICE '% of %', got, held();
  COMMIT;
  RAISE NOTICE '%', held();
  CALL zk_wait_lock_all('{a,c}');
  CALL zk_wait_lock('d', session => true);
  RAISE NOTICE '%', held();
  ROLLBACK;
  CALL zk_wait_lock_any('{b}', name => got);
  RAISE NOTICE '% of %', got, held();
END $$;
SELECT held(), zk_unlock('d'), count(*) FROM stock;
CREATE PROCEDURE inner_one(name text, INOUT had text) LANGUAGE plpgsql AS $$
DECLARE
  big text := (SELECT string_agg(n::text, ' ') FROM stock);
BEGIN
  CALL zk_wait_lock(name);
  had := held() || ': ' || big;
END $$;
CREATE PROCEDURE outer_one(INOUT had text) LANGUAGE plpgsql AS $$
BEGIN
  CALL inner_one('a', had);
  had := had || ', ' || (SELECT count(*) FROM stock);
  COMMIT;
  CALL inner_one('b', had);
END $$;
CALL outer_one('');
CALL inner_one('a', '');
SELECT held();

-- nothing but the call's own snapshot may be there
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL zk_wait_lock('a');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL zk_wait_lock_all('{a,b}');
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM stock;
CALL zk_wait_lock('a');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM stock;
CLOSE c;
CALL zk_wait_lock('a');
COMMIT;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT * FROM stock;
COMMIT;
CALL zk_wait_lock('a', session => true);
SELECT zk_unlock('a');
FETCH ALL FROM c;
CLOSE c;
BEGIN;
SELECT pg_export_snapshot() IS NOT NULL AS exported;
CALL zk_wait_lock('a');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
DO $$ BEGIN CALL zk_wait_lock('a'); END $$;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
CALL inner_one('a', '');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN CALL zk_wait_lock('refused', session => true); END $$;
SELECT in_function();
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION in_sql() RETURNS void LANGUAGE sql AS
  $$ CALL zk_wait_lock('refused', session => true) $$;
SELECT in_sql();
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION as_argument() RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN CALL zk_wait_lock('refused', session => true); RETURN 'b'; END $$;
CALL zk_wait_lock(as_argument(), session => true);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL zk_wait_lock(as_argument());
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
DO $$
DECLARE
  row record;
BEGIN
  FOR row IN SELECT n FROM stock LOOP
    CALL zk_wait_lock('refused');
  END LOOP;
END $$;
\echo :LAST_ERROR_SQLSTATE
DO $$
DECLARE
  got text;
BEGIN
  FOR got IN EXECUTE 'CALL zk_wait_lock_any(''{refused,b}'')' LOOP
    RAISE NOTICE '%', got;
  END LOOP;
END $$;
\echo :LAST_ERROR_SQLSTATE
DO $$
BEGIN
  CALL zk_wait_lock('refused', session => true);
EXCEPTION WHEN division_by_zero THEN
END $$;
\echo :LAST_ERROR_SQLSTATE
ALTER PROCEDURE inner_one SECURITY DEFINER;
CALL inner_one('refused', '');
\echo :LAST_ERROR_SQLSTATE
ALTER PROCEDURE inner_one SECURITY INVOKER SET work_mem = '1MB';
CALL inner_one('refused', '');
\echo :LAST_ERROR_SQLSTATE
SELECT lo_create(42);
BEGIN;
SELECT lo_open(42, 262144);
CALL zk_wait_lock('refused');
ROLLBACK;
SELECT lo_unlink(42);

-- who catches the error goes on with the snapshot
DO $$
BEGIN
  BEGIN
    CALL zk_wait_lock('refused');
  EXCEPTION WHEN object_not_in_prerequisite_state THEN
    RAISE NOTICE '%: %', SQLERRM, (SELECT count(*) FROM stock);
  END;
  INSERT INTO stock VALUES (4);
  CALL zk_wait_lock('refused');
  RAISE NOTICE '%: %', held(), (SELECT count(*) FROM stock);
END $$;

-- nobody was made to queue
SELECT held(), (SELECT count(*) FROM zk_queue('refused')) AS queued;

-- arguments
CALL zk_wait_lock(NULL, session => true);
\echo :LAST_ERROR_SQLSTATE
CALL zk_wait_lock('', session => true);
CALL zk_wait_lock('a', '-1s', session => true);
CALL zk_wait_lock('a', session => NULL);
CALL zk_wait_lock_all(NULL, session => true);
CALL zk_wait_lock_any('{}', session => true);
\echo :LAST_ERROR_SQLSTATE

DROP PROCEDURE inner_one, outer_one;
DROP FUNCTION held, in_function, in_sql, as_argument;
DROP TABLE stock;
