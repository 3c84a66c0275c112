-- Locks and subtransactions: ROLLBACK TO gives back what was taken after the
-- savepoint, RELEASE keeps it, and so do PL/pgSQL's EXCEPTION blocks.

-- ROLLBACK TO
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock('b');
SELECT name FROM zk_locks ORDER BY name;
ROLLBACK TO s;
SELECT name FROM zk_locks ORDER BY name;
-- it can be had again
SELECT zk_lock('b');
ROLLBACK TO s;
SELECT name FROM zk_locks ORDER BY name;
COMMIT;

-- RELEASE
BEGIN;
SAVEPOINT s;
SELECT zk_lock('a');
RELEASE s;
SELECT name FROM zk_locks ORDER BY name;
COMMIT;
SELECT name FROM zk_locks ORDER BY name;

-- nested
BEGIN;
SAVEPOINT s1;
SELECT zk_lock('a');
SAVEPOINT s2;
SELECT zk_lock('b');
SAVEPOINT s3;
SELECT zk_lock('c');
RELEASE s3;
SELECT name FROM zk_locks ORDER BY name;
ROLLBACK TO s2;
SELECT name FROM zk_locks ORDER BY name;
RELEASE s2;
ROLLBACK TO s1;
SELECT name FROM zk_locks ORDER BY name;
COMMIT;

-- one lock, taken at several levels: each level gives its own hold back
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock('a'), zk_lock('a');
ROLLBACK TO s;
SELECT name FROM zk_locks;
SELECT zk_unlock('a');
RELEASE s;
SELECT zk_unlock('a');
COMMIT;
BEGIN;
SAVEPOINT s1;
SELECT zk_lock('a');
SAVEPOINT s2;
SELECT zk_lock('a');
RELEASE s2;
ROLLBACK TO s1;
SELECT name FROM zk_locks;
COMMIT;

-- an error in a savepoint
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock('b');
SELECT 1/0;
ROLLBACK TO s;
SELECT name FROM zk_locks;
COMMIT;

-- zk_unlock in a savepoint that is rolled back is undone
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_unlock('a');
SELECT zk_unlock('a');
ROLLBACK TO s;
SELECT name FROM zk_locks;
SELECT zk_unlock('a');
COMMIT;
-- also if it was released into one that is
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s1;
SAVEPOINT s2;
SELECT zk_unlock('a');
RELEASE s2;
ROLLBACK TO s1;
RELEASE s1;
SELECT zk_unlock('a');
SELECT name FROM zk_locks;
COMMIT;
-- taken again after it
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s1;
SELECT zk_unlock('a');
SAVEPOINT s2;
SELECT zk_lock('a');
ROLLBACK TO s2;
SELECT zk_unlock('a');
RELEASE s1;
SELECT name FROM zk_locks;
COMMIT;

-- once the savepoint is released, the lock goes at once as far as that is
-- allowed, with the holds that were undone in it
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_lock('a'), zk_lock('b');
SELECT zk_unlock('a');
RELEASE s;
SELECT name FROM zk_locks ORDER BY name;
SELECT zk_unlock('a'), zk_unlock('b');
SELECT name FROM zk_locks ORDER BY name;
COMMIT;

-- EXCEPTION blocks
BEGIN;
DO $$
BEGIN
  PERFORM zk_lock('a');
  BEGIN
    PERFORM zk_lock('b');
    RAISE EXCEPTION 'sold out';
  EXCEPTION WHEN raise_exception THEN
    RAISE NOTICE 'caught: %, held: %', SQLERRM, (SELECT array_agg(name) FROM zk_locks);
  END;
  BEGIN
    PERFORM zk_lock('c');
  EXCEPTION WHEN raise_exception THEN
    NULL;
  END;
END$$;
SELECT name FROM zk_locks ORDER BY name;
COMMIT;

-- an error of ours is caught like any other
BEGIN;
SELECT zk_lock('a');
DO $$
BEGIN
  PERFORM zk_lock('');
EXCEPTION WHEN invalid_parameter_value THEN
  RAISE NOTICE '%', SQLERRM;
END$$;
SELECT name FROM zk_locks;
COMMIT;

SELECT count(*) AS held FROM zk_locks;
