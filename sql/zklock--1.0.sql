/* sql/zklock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

CREATE FUNCTION zk_lock(name text,
                        timeout interval DEFAULT NULL,
                        shared boolean DEFAULT false,
                        session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock(text, interval, boolean, boolean) IS
'wait for a lock in ZooKeeper and hold it until the end of the transaction';

CREATE FUNCTION zk_try_lock(name text,
                            timeout interval DEFAULT '0',
                            shared boolean DEFAULT false,
                            session boolean DEFAULT false)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_lock(text, interval, boolean, boolean) IS
'take a lock in ZooKeeper if it can be had in time';

CREATE FUNCTION zk_lock_all(names text[],
                            timeout interval DEFAULT NULL,
                            shared boolean DEFAULT false,
                            session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_lock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_all(text[], interval, boolean, boolean) IS
'wait for several locks in ZooKeeper and take all of them at once';

CREATE FUNCTION zk_acquire(name text,
                           permits integer,
                           timeout interval DEFAULT NULL,
                           session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_acquire(text, integer, interval, boolean) IS
'wait for one of the permits of a semaphore in ZooKeeper';

CREATE FUNCTION zk_try_acquire(name text,
                               permits integer,
                               timeout interval DEFAULT '0',
                               session boolean DEFAULT false)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_acquire(text, integer, interval, boolean) IS
'take one of the permits of a semaphore in ZooKeeper if it can be had in time';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock(text) IS
'undo the latest hold of a lock, at the end of the transaction if it has changed anything';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_unlock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock_all() IS
'undo all session-scoped holds of this session';

CREATE FUNCTION zk_fencing_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fencing_token'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fencing_token(text) IS
'a number that grows with every change of the server that owns the lock';

-- One row for each lock that was ever fenced; delete those of locks that are
-- not used any more.  Collation C: a change of the operating system's sort
-- order must not let a second row in.
--
-- Not dumped (pg_extension_config_dump): a token belongs to the ZooKeeper
-- ensemble that gave it, and guards against transactions that are still open
-- in this database.  In a restored copy there are none, and its ensemble may
-- be another one, with lower tokens.  Backups of the server's files and
-- pg_upgrade keep the rows.
CREATE TABLE zk_fences (
    name text COLLATE pg_catalog."C" NOT NULL,
    root text COLLATE pg_catalog."C" NOT NULL,
    token bigint NOT NULL,
    fenced_at timestamptz NOT NULL,
    PRIMARY KEY (name, root)
);

COMMENT ON TABLE zk_fences IS
'the highest fencing token of each lock that zk_fence has seen in this database';
COMMENT ON COLUMN zk_fences.name IS 'the lock';
COMMENT ON COLUMN zk_fences.root IS 'setting zklock.root of the holder';
COMMENT ON COLUMN zk_fences.token IS 'fencing token of the latest holder';
COMMENT ON COLUMN zk_fences.fenced_at IS 'when the latest holder called zk_fence';

CREATE FUNCTION zk_fence(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence(text) IS
'write the fencing token of a lock that is held into zk_fences; fail if a later holder has done so';

CREATE FUNCTION zk_lock_status(OUT name text,
                               OUT pid integer,
                               OUT mode text,
                               OUT scope text,
                               OUT granted boolean,
                               OUT lost boolean,
                               OUT since timestamptz,
                               OUT path text,
                               OUT token bigint,
                               OUT classid oid,
                               OUT objid oid,
                               OUT objsubid smallint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_lock_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_lock_status() IS
'holds and waits of this server; use the view zk_locks';

CREATE VIEW zk_locks AS
    SELECT l.*, a.datname, a.usename, a.application_name, a.query_start
    FROM zk_lock_status() l
        LEFT JOIN pg_catalog.pg_stat_activity a USING (pid);

COMMENT ON VIEW zk_locks IS
'locks in ZooKeeper that backends of this server hold or wait for';

CREATE FUNCTION zk_session_status(OUT state text,
                                  OUT since timestamptz,
                                  OUT session_id text,
                                  OUT server text,
                                  OUT servers text,
                                  OUT timeout interval,
                                  OUT lease interval,
                                  OUT sessions bigint,
                                  OUT reconnects bigint,
                                  OUT worker_pid integer,
                                  OUT last_error text)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_session_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_session_status() IS
'state of the ZooKeeper session; use the view zk_session';

CREATE VIEW zk_session AS
    SELECT * FROM zk_session_status();

COMMENT ON VIEW zk_session IS
'state of this server''s session with ZooKeeper';

CREATE FUNCTION zk_queue(name text,
                         OUT "position" integer,
                         OUT path text,
                         OUT mode text,
                         OUT owner text,
                         OUT session_id text,
                         OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_queue'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_queue(text) IS
'who holds and who waits for a lock, on all servers and of all clients, as ZooKeeper tells';

CREATE FUNCTION zk_cancel_holder(name text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_cancel_holder'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_cancel_holder(text) IS
'cancel what the holders of a lock are running, on all servers';
CREATE FUNCTION zk_stats_status(OUT taken bigint,
                                OUT handed_off bigint,
                                OUT waited bigint,
                                OUT timed_out bigint,
                                OUT failed bigint,
                                OUT lost bigint,
                                OUT wait_time double precision,
                                OUT hold_time double precision,
                                OUT wait_histogram bigint[],
                                OUT hold_histogram bigint[],
                                OUT slots integer,
                                OUT slot_users integer,
                                OUT stats_reset timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_stats_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_stats_status() IS
'counters of this server; use the view zk_stats';

CREATE VIEW zk_stats AS
    SELECT * FROM zk_stats_status();

COMMENT ON VIEW zk_stats IS
'how often and how long this server has waited for and held locks in ZooKeeper';
COMMENT ON COLUMN zk_stats.taken IS
'locks taken, not counting those that the session held already';
COMMENT ON COLUMN zk_stats.handed_off IS
'those that this server owned already, so that they were taken without ZooKeeper';
COMMENT ON COLUMN zk_stats.waited IS
'those that somebody else held, here or elsewhere';
COMMENT ON COLUMN zk_stats.timed_out IS
'calls that did not get their lock in time';
COMMENT ON COLUMN zk_stats.failed IS
'calls that ended in another error, or were cancelled';
COMMENT ON COLUMN zk_stats.lost IS
'locks that were lost while they were held';
COMMENT ON COLUMN zk_stats.wait_time IS
'time from the call to the take of all locks taken, in milliseconds';
COMMENT ON COLUMN zk_stats.hold_time IS
'time from the take to the release of all locks released, in milliseconds';
COMMENT ON COLUMN zk_stats.wait_histogram IS
'of the locks taken; element n counts waits from 2^(n-1) up to 2^n microseconds, the first also shorter ones, the last also longer ones';
COMMENT ON COLUMN zk_stats.hold_histogram IS
'of the locks released; elements as in wait_histogram';
COMMENT ON COLUMN zk_stats.slots IS
'locks that are held, waited for or being given up now; at most zklock.max_locks';
COMMENT ON COLUMN zk_stats.slot_users IS
'sessions'' holds of and waits for these locks';
COMMENT ON COLUMN zk_stats.stats_reset IS
'since when is counted: the last reset or server start';

CREATE FUNCTION zk_stats_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_stats_reset'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stats_reset() IS
'set the counters of zk_stats to zero';

REVOKE ALL ON FUNCTION zk_lock_status() FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_session_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_lock_status() TO pg_monitor;
GRANT EXECUTE ON FUNCTION zk_session_status() TO pg_monitor;
GRANT SELECT ON zk_locks TO pg_monitor;
GRANT SELECT ON zk_session TO pg_monitor;

REVOKE ALL ON FUNCTION zk_queue(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_cancel_holder(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_queue(text) TO pg_monitor;
GRANT EXECUTE ON FUNCTION zk_cancel_holder(text) TO pg_signal_backend;
REVOKE ALL ON zk_fences FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_stats_status() FROM PUBLIC;
REVOKE ALL ON FUNCTION zk_stats_reset() FROM PUBLIC;
GRANT SELECT ON zk_fences TO pg_monitor;
GRANT EXECUTE ON FUNCTION zk_stats_status() TO pg_monitor;
GRANT SELECT ON zk_stats TO pg_monitor;
