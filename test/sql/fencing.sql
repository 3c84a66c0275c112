-- Fencing tokens: a number that grows from owner to owner.

-- not held
SELECT zk_fencing_token('fencing/a');
\echo :SQLSTATE
BEGIN;
SELECT zk_lock('b');
SELECT zk_fencing_token('fencing/a');
ROLLBACK;

-- one token for as long as the lock is held, however often
BEGIN;
SELECT zk_lock('fencing/a');
SELECT zk_fencing_token('fencing/a') AS first \gset
SELECT :first > 0 AS positive;
SELECT zk_lock('fencing/a');
SELECT zk_fencing_token('fencing/a') = :first AS same;
SAVEPOINT s;
SELECT zk_lock('fencing/a');
ROLLBACK TO s;
SELECT zk_fencing_token('fencing/a') = :first AS same;
COMMIT;
SELECT zk_fencing_token('fencing/a');
\echo :SQLSTATE

-- it grows with the next owner
BEGIN;
SELECT zk_lock('fencing/a');
SELECT zk_fencing_token('fencing/a') AS second \gset
SELECT :second > :first AS grown;
-- given back and taken again in one transaction
SELECT zk_unlock('fencing/a');
SELECT zk_fencing_token('fencing/a');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT zk_lock('fencing/c');
SELECT zk_fencing_token('fencing/c') AS third \gset
ROLLBACK TO s;
SELECT zk_lock('fencing/c');
SELECT zk_fencing_token('fencing/c') AS fourth \gset
SELECT :third > :second AS grown, :fourth > :third AS grown_again;
COMMIT;

-- from lock to lock too, in whatever order they were created
DO $$
DECLARE
  last bigint := 0;
  token bigint;
BEGIN
  FOR i IN 1..10 LOOP
    PERFORM zk_lock(format('fencing/%s', i % 5));
    token := zk_fencing_token(format('fencing/%s', i % 5));
    ASSERT token > last, format('%s after %s', token, last);
    last := token;
    COMMIT;
  END LOOP;
END$$;

SELECT count(*) AS held FROM zk_locks;
