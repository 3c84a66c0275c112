-- What the session's nodes take of what a session may have: for each the length
-- of its path and 4, from before it exists until it is gone.
CREATE FUNCTION wait_for_path_bytes(wanted bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. 18000 LOOP
    IF (SELECT path_bytes = wanted FROM zk_session) THEN
      RETURN true;
    END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RAISE WARNING 'path_bytes: %, not %', (SELECT path_bytes FROM zk_session), wanted;
  RETURN false;
END$$;
SELECT wait_for_path_bytes(0);
SELECT max_path_bytes FROM zk_session;

-- zk_queue shows paths without the chroot
SELECT coalesce(length(substring(current_setting('zklock.servers') FROM '/.+$')), 0) + 4 AS more \gset

-- a lock, of either mode
BEGIN;
SELECT zk_lock('path_bytes');
SELECT zk_lock('path_bytes shared', shared => true);
SELECT wait_for_path_bytes(sum(length(path) + :more))
  FROM (SELECT path FROM zk_queue('path_bytes')
        UNION ALL SELECT path FROM zk_queue('path_bytes shared')) q;
ROLLBACK;
SELECT wait_for_path_bytes(0);

-- several
BEGIN;
SELECT zk_lock_all(array_agg('path_bytes ' || i)) FROM generate_series(10, 19) i;
SELECT wait_for_path_bytes(10 * (length(path) + :more)) FROM zk_queue('path_bytes 10');
COMMIT;
SELECT wait_for_path_bytes(0);

-- a permit; the place in the queue for it goes when it is had
BEGIN;
SELECT zk_acquire('path_bytes permit', 1);
SELECT wait_for_path_bytes(length(path) + :more) FROM zk_queue('path_bytes permit');
ROLLBACK;
SELECT wait_for_path_bytes(0);

DROP FUNCTION wait_for_path_bytes;
