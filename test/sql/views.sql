-- What the views show.

-- a lock that is held; state_change is when it was granted
BEGIN;
SELECT zk_lock('views/a');
SELECT zk_lock('b');
SELECT name, pid = pg_backend_pid() AS ours, mode, scope, granted, lost,
       state_change BETWEEN now() AND clock_timestamp() AS state_change, path
  FROM zk_locks ORDER BY name;

-- its token, once the worker knows it
SELECT zk_fencing_token('b') > 0 AS token;
SELECT zk_fencing_token('b') = token AS same FROM zk_locks WHERE name = 'b';

-- in pg_locks it is a user lock of no database
SELECT z.name, l.locktype, l.database, l.mode, l.granted,
       l.pid = z.pid AS same_pid
  FROM zk_locks z LEFT JOIN pg_locks l USING (classid, objid, objsubid)
 ORDER BY z.name;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';

-- advisory locks are others
SELECT pg_advisory_lock(1);
SELECT pg_advisory_unlock_all();
SELECT count(*) FROM zk_locks;
COMMIT;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
BEGIN;
SELECT zk_lock('a');
ROLLBACK;
DISCARD ALL;
SELECT count(*) FROM zk_locks;

-- the session, with a lock just granted
DO $$
DECLARE
  s zk_session;
BEGIN
  PERFORM zk_lock('a');
  SELECT * INTO STRICT s FROM zk_session;
  RAISE NOTICE 'state: %', s.state;
  RAISE NOTICE 'state_change: %', s.state_change <= clock_timestamp();
  RAISE NOTICE 'session_id: %', s.session_id ~ '^0x[0-9a-f]{1,16}$';
  RAISE NOTICE 'server is one of servers: %',
    split_part(s.server, ':', 2) = ANY (regexp_split_to_array(s.servers, '[:,/]'));
  RAISE NOTICE 'servers: %', s.servers = current_setting('zklock.servers');
  RAISE NOTICE 'timeout: %', s.timeout > '0';
  RAISE NOTICE 'sessions: %, reconnects: %', s.sessions > 0, s.reconnects >= 0;
  RAISE NOTICE 'last_error: %', s.last_error IS NULL;
  RAISE NOTICE 'worker: %', ARRAY(SELECT backend_type FROM pg_stat_activity
                                   WHERE pid = s.worker_pid);
END$$;

SELECT count(*) AS held FROM zk_locks;
