-- Counters of the server.

-- how many locks were taken and released, by the histograms
CREATE VIEW counted AS
SELECT taken, handed_off, waited, timed_out, failed, lost, deadlocks,
       (SELECT sum(n) FROM unnest(wait_histogram) n) AS waits,
       (SELECT sum(n) FROM unnest(hold_histogram) n) AS holds
  FROM zk_stat;

-- released is not yet gone from ZooKeeper
DO $$
BEGIN
  WHILE (SELECT slots > 0 FROM zk_stat) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END$$;
SELECT zk_stat_reset();
SELECT * FROM counted;
SELECT total_wait_time, total_hold_time, stats_reset BETWEEN now() - interval '1 hour' AND clock_timestamp() AS since,
       wait_histogram = array_fill(0::bigint, ARRAY[32]) AS wait_histogram,
       hold_histogram = array_fill(0::bigint, ARRAY[32]) AS hold_histogram
  FROM zk_stat;

-- a lock counts once, however often it is taken
BEGIN;
SELECT zk_lock('a');
SELECT zk_lock('a'), zk_try_lock('a');
SELECT * FROM counted;
SELECT slots, slot_users FROM zk_stat;
COMMIT;
SELECT * FROM counted;
SELECT total_wait_time > 0 AS total_wait_time, total_hold_time > 0 AS total_hold_time FROM zk_stat;

-- and again when it was given back
BEGIN;
SELECT zk_try_lock('a');
SELECT zk_unlock('a');
SAVEPOINT s;
SELECT zk_lock('a'), zk_lock('b');
ROLLBACK TO s;
SELECT * FROM counted;
ROLLBACK;

-- what the caller did wrong, and what is not held, is not counted
SELECT zk_lock('');
SELECT zk_unlock('a');
SELECT * FROM counted;

-- a hold is as long as it is
BEGIN;
SELECT zk_lock('a');
SELECT zk_stat_reset();
SELECT pg_sleep(0.01);
COMMIT;
SELECT total_hold_time >= 5 AS total_hold_time, total_wait_time FROM zk_stat;
SELECT n >= 13 AS "at least 2^12 us", c
  FROM zk_stat, unnest(hold_histogram) WITH ORDINALITY AS h (c, n) WHERE c > 0;
SELECT * FROM counted;

-- nothing remains in shared memory
DO $$
BEGIN
  WHILE (SELECT slots > 0 FROM zk_stat) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END$$;
SELECT slots, slot_users FROM zk_stat;

-- who may read, who may reset
CREATE ROLE regress_zk_nobody;
CREATE ROLE regress_zk_monitor IN ROLE pg_monitor;
SET ROLE regress_zk_nobody;
SELECT count(*) FROM zk_stat;
SELECT zk_stat_status() IS NULL;
SELECT zk_stat_reset();
SET ROLE regress_zk_monitor;
SELECT count(*) FROM zk_stat;
SELECT zk_stat_reset();
RESET ROLE;
DROP ROLE regress_zk_nobody, regress_zk_monitor;
DROP VIEW counted;
