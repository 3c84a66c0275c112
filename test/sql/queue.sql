-- zk_queue and zk_cancel_holders: what they refuse, and what they tell of a
-- lock that nobody wants, or this session only.

-- names, as those of zk_lock
SELECT * FROM zk_queue(NULL);
\echo :SQLSTATE
SELECT * FROM zk_queue('');
\echo :SQLSTATE
SELECT * FROM zk_queue(repeat('x', 256));
\echo :SQLSTATE
SELECT zk_cancel_holders(NULL);
\echo :SQLSTATE
SELECT zk_cancel_holders('');
\echo :SQLSTATE

-- nobody there
SELECT * FROM zk_queue('queue/nobody');
SELECT zk_cancel_holders('queue/nobody');

-- our own contender
BEGIN;
SELECT zk_lock('queue/own');
SELECT position,
       path ~ '^/zklock/queue%2Fown/_c_[-0-9a-f]{36}-lock-[0-9]{10}$' AS path,
       mode, owner ~ '^postgresql host=\S+ port=\d+ cluster=' AS owner,
       cluster_name = current_setting('cluster_name') AS cluster_name,
       host = substring(owner from ' host=(\S+)') AS host,
       port = current_setting('port')::int AS port, q.pid = pg_backend_pid() AS pid,
       q.session_id = s.session_id AS session,
       q.queued_at BETWEEN now() - '1 hour'::interval AND now() + '1 hour' AS queued_at
  FROM zk_queue('queue/own') q, zk_session s;
SELECT count(*) FROM zk_queue('queue/ow');

-- one question after the other in one statement
SELECT count(*) FROM generate_series(1, 40) i, zk_queue(left('queue/own', 10 + i));

-- what was given up before it is asked is not shown
SELECT zk_unlock('queue/own');
SELECT count(*) FROM zk_queue('queue/own');
COMMIT;

-- the holder is this session: its statement is canceled
BEGIN;
SELECT zk_lock('queue/own');
SELECT zk_cancel_holders('queue/own');
\echo :SQLSTATE
ROLLBACK;
SELECT zk_cancel_holders('queue/own');

-- a namespace
SET zklock.root = '/zklock/queue_root';
BEGIN;
SELECT zk_lock('a');
SELECT path ~ '^/zklock/queue_root/a/_c_' AS path FROM zk_queue('a');
COMMIT;
RESET zklock.root;

-- in SQL and PL/pgSQL, and with an error that is caught
DO $$
DECLARE
  n integer;
BEGIN
  PERFORM zk_lock('queue/caught');
  BEGIN
    PERFORM 1 / 0 FROM zk_queue('queue/caught');
  EXCEPTION WHEN division_by_zero THEN
    SELECT count(*) INTO n FROM zk_queue('queue/caught');
    RAISE NOTICE '% in the queue', n;
  END;
END$$;

-- who may ask, and who may cancel
CREATE ROLE regress_zk_user;
CREATE ROLE regress_zk_monitor IN ROLE pg_monitor;
CREATE ROLE regress_zk_signal IN ROLE pg_signal_backend;
SET ROLE regress_zk_user;
SELECT * FROM zk_queue('queue/own');
\echo :SQLSTATE
SELECT zk_cancel_holders('queue/own');
\echo :SQLSTATE
SET ROLE regress_zk_monitor;
SELECT count(*) FROM zk_queue('queue/own');
SELECT zk_cancel_holders('queue/own');
SET ROLE regress_zk_signal;
SELECT count(*) FROM zk_queue('queue/own');
SELECT zk_cancel_holders('queue/own');
RESET ROLE;
DROP ROLE regress_zk_user, regress_zk_monitor, regress_zk_signal;
SELECT count(*) AS held FROM zk_locks;
