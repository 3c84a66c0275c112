/* sql/zklock--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

-- Tell now, and not only when a lock is wanted, if the library is not loaded.
CREATE FUNCTION zk_warn_not_preloaded()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_warn_not_preloaded'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
SELECT zk_warn_not_preloaded();
DROP FUNCTION zk_warn_not_preloaded();

-- zk_session has more columns, and a row for each session.  The view is
-- replaced, not dropped, so that privileges on it and views over it stay.
ALTER FUNCTION zk_session_status() RENAME TO zk_session_status_1_0;

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
                                  OUT last_error text,
                                  OUT path_bytes bigint,
                                  OUT max_path_bytes bigint,
                                  OUT directories bigint,
                                  OUT fleet uuid)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_session_status_1_1'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_session_status() IS
'state of the ZooKeeper sessions; use the view zk_session';

CREATE OR REPLACE VIEW zk_session AS
    SELECT * FROM zk_session_status();

COMMENT ON VIEW zk_session IS
'state of this server''s sessions with ZooKeeper: one, or several if it has more locks than fit in one';
COMMENT ON COLUMN zk_session.path_bytes IS
'bytes that the paths of the session''s znodes take: the length of each plus 4';
COMMENT ON COLUMN zk_session.max_path_bytes IS
'limit of path_bytes; a lock that does not fit goes into another session';
COMMENT ON COLUMN zk_session.fleet IS
'identity of the fleet: the same on all servers that share the ensemble and zklock.root';
COMMENT ON COLUMN zk_session.directories IS
'lock directories that this server has made since its start; NULL but in the first row';

REVOKE ALL ON FUNCTION zk_session_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_session_status() TO pg_monitor;

ALTER EXTENSION zklock DROP FUNCTION zk_session_status_1_0();
DROP FUNCTION zk_session_status_1_0();

-- zk_stats has one more column.
ALTER FUNCTION zk_stats_status() RENAME TO zk_stats_status_1_0;

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
                                OUT stats_reset timestamptz,
                                OUT deadlocks bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_stats_status_1_1'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_stats_status() IS
'counters of this server; use the view zk_stats';

CREATE OR REPLACE VIEW zk_stats AS
    SELECT * FROM zk_stats_status();

COMMENT ON COLUMN zk_stats.deadlocks IS
'calls that failed to end a deadlock, within this server or with others';

REVOKE ALL ON FUNCTION zk_stats_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_stats_status() TO pg_monitor;

ALTER EXTENSION zklock DROP FUNCTION zk_stats_status_1_0();
DROP FUNCTION zk_stats_status_1_0();

-- Counters of single locks
CREATE FUNCTION zk_stat_locks_status(OUT name text,
                                     OUT root text,
                                     OUT taken bigint,
                                     OUT handed_off bigint,
                                     OUT waited bigint,
                                     OUT timed_out bigint,
                                     OUT failed bigint,
                                     OUT deadlocks bigint,
                                     OUT lost bigint,
                                     OUT wait_time double precision,
                                     OUT max_wait double precision,
                                     OUT hold_time double precision,
                                     OUT max_hold double precision,
                                     OUT wait_histogram bigint[],
                                     OUT hold_histogram bigint[],
                                     OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_stat_locks_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_stat_locks_status() IS
'counters of single locks of this server; use the view zk_stat_locks';

CREATE VIEW zk_stat_locks AS
    SELECT * FROM zk_stat_locks_status();

COMMENT ON VIEW zk_stat_locks IS
'how often and how long sessions of this server wait for and hold each lock: a row for each of the zklock.track_locks locks that are used most';
COMMENT ON COLUMN zk_stat_locks.name IS
'name of the lock or semaphore';
COMMENT ON COLUMN zk_stat_locks.root IS
'the zklock.root it is below';
COMMENT ON COLUMN zk_stat_locks.taken IS
'times it was taken by a session that did not hold it';
COMMENT ON COLUMN zk_stat_locks.handed_off IS
'of these, when this server owned it already';
COMMENT ON COLUMN zk_stat_locks.waited IS
'of these, when somebody else had it';
COMMENT ON COLUMN zk_stat_locks.timed_out IS
'calls that ended without it because of a timeout, or because it was not free';
COMMENT ON COLUMN zk_stat_locks.failed IS
'calls that ended without it because of another error';
COMMENT ON COLUMN zk_stat_locks.deadlocks IS
'calls that failed to end a deadlock';
COMMENT ON COLUMN zk_stat_locks.lost IS
'times it was lost while it was held';
COMMENT ON COLUMN zk_stat_locks.wait_time IS
'total time from the call to the grant, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.max_wait IS
'the longest of these times';
COMMENT ON COLUMN zk_stat_locks.hold_time IS
'total time from the grant to the release, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.max_hold IS
'the longest of these times';
COMMENT ON COLUMN zk_stat_locks.wait_histogram IS
'times from the call to the grant, in the buckets of zk_stats';
COMMENT ON COLUMN zk_stat_locks.hold_histogram IS
'times from the grant to the release, in the same buckets';
COMMENT ON COLUMN zk_stat_locks.since IS
'when counting of this lock began';

REVOKE ALL ON FUNCTION zk_stat_locks_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_stat_locks_status() TO pg_monitor;
GRANT SELECT ON zk_stat_locks TO pg_monitor;

-- The latest deadlocks with other servers
CREATE FUNCTION zk_deadlock_status(OUT id bigint,
                                   OUT detected timestamptz,
                                   OUT member integer,
                                   OUT cluster text,
                                   OUT pid integer,
                                   OUT mode text,
                                   OUT name text,
                                   OUT path text,
                                   OUT holder_pid integer,
                                   OUT blocked_by integer[],
                                   OUT victim boolean,
                                   OUT local boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_deadlock_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_deadlock_status() IS
'latest deadlocks with other servers; use the view zk_deadlocks';

CREATE VIEW zk_deadlocks AS
    SELECT * FROM zk_deadlock_status();

COMMENT ON VIEW zk_deadlocks IS
'latest deadlocks that sessions of this server were part of, with sessions of other servers: a row for each member';
COMMENT ON COLUMN zk_deadlocks.id IS
'number of the deadlock on this server, since its start';
COMMENT ON COLUMN zk_deadlocks.detected IS
'when this server heard of the deadlock';
COMMENT ON COLUMN zk_deadlocks.member IS
'number of the member in the deadlock';
COMMENT ON COLUMN zk_deadlocks.cluster IS
'cluster_name of the member''s server';
COMMENT ON COLUMN zk_deadlocks.pid IS
'process that waits for the lock';
COMMENT ON COLUMN zk_deadlocks.mode IS
'mode of the lock waited for: exclusive, shared or permit';
COMMENT ON COLUMN zk_deadlocks.name IS
'lock or semaphore that is waited for';
COMMENT ON COLUMN zk_deadlocks.path IS
'its directory in ZooKeeper';
COMMENT ON COLUMN zk_deadlocks.holder_pid IS
'process that holds what others wait for: the same as pid, or one that waits for it in its server';
COMMENT ON COLUMN zk_deadlocks.blocked_by IS
'members that this one waits for';
COMMENT ON COLUMN zk_deadlocks.victim IS
'whether its wait was ended';
COMMENT ON COLUMN zk_deadlocks.local IS
'whether it is a session of this server';

REVOKE ALL ON FUNCTION zk_deadlock_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_deadlock_status() TO pg_monitor;
GRANT SELECT ON zk_deadlocks TO pg_monitor;

-- All locks in use, on all servers
CREATE FUNCTION zk_queues(OUT name text,
                          OUT mode text,
                          OUT holders integer,
                          OUT holder text,
                          OUT cluster text,
                          OUT pid integer,
                          OUT since timestamptz,
                          OUT waiters integer,
                          OUT longest_wait interval,
                          OUT waits_for text[],
                          OUT seen timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_queues'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_queues() IS
'all locks that are held or waited for below zklock.root, on all servers and of all clients, as ZooKeeper has them';

REVOKE ALL ON FUNCTION zk_queues() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_queues() TO pg_monitor;

-- The servers that share the ensemble and the root
CREATE FUNCTION zk_clusters(OUT cluster text,
                            OUT host text,
                            OUT port integer,
                            OUT standby boolean,
                            OUT version text,
                            OUT server_version text,
                            OUT system_identifier bigint,
                            OUT node_format text,
                            OUT session_timeout interval,
                            OUT since timestamptz,
                            OUT session_id text,
                            OUT local boolean,
                            OUT misfits text[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_clusters'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_clusters() IS
'servers that share this server''s ZooKeeper ensemble and zklock.root, and what does not fit together';

REVOKE ALL ON FUNCTION zk_clusters() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_clusters() TO pg_monitor;

CREATE FUNCTION zk_lock_any(names text[],
                            timeout interval DEFAULT NULL,
                            shared boolean DEFAULT false,
                            session boolean DEFAULT false)
RETURNS text
AS 'MODULE_PATHNAME', 'zk_lock_any'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_any(text[], interval, boolean, boolean) IS
'wait for the first of several locks in ZooKeeper that is free, and take it';

CREATE FUNCTION zk_try_lock_any(names text[],
                                timeout interval DEFAULT '0',
                                shared boolean DEFAULT false,
                                session boolean DEFAULT false)
RETURNS text
AS 'MODULE_PATHNAME', 'zk_try_lock_any'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_lock_any(text[], interval, boolean, boolean) IS
'take the first of several locks in ZooKeeper that can be had in time';

-- Each database keeps its own tokens: what arrives for zk_fences by logical
-- replication, as of a publication FOR ALL TABLES, changes nothing.
CREATE FUNCTION zk_fences_keep()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fences_keep'
LANGUAGE C;

COMMENT ON FUNCTION zk_fences_keep() IS
'discard changes of zk_fences that arrive by logical replication';

REVOKE ALL ON FUNCTION zk_fences_keep() FROM PUBLIC;

-- Each name that it is called with can add a row to a table of the extension.
REVOKE ALL ON FUNCTION zk_fence(text) FROM PUBLIC;

CREATE TRIGGER zk_keep_rows
    BEFORE INSERT OR UPDATE OR DELETE ON zk_fences
    FOR EACH ROW EXECUTE FUNCTION zk_fences_keep();
CREATE TRIGGER zk_keep_before_truncate
    BEFORE TRUNCATE ON zk_fences
    FOR EACH STATEMENT EXECUTE FUNCTION zk_fences_keep();
CREATE TRIGGER zk_keep_after_truncate
    AFTER TRUNCATE ON zk_fences
    FOR EACH STATEMENT EXECUTE FUNCTION zk_fences_keep();
ALTER TABLE zk_fences
    ENABLE REPLICA TRIGGER zk_keep_rows,
    ENABLE REPLICA TRIGGER zk_keep_before_truncate,
    ENABLE REPLICA TRIGGER zk_keep_after_truncate;

-- With zklock.advisory_locks on, calls of PostgreSQL's advisory lock functions
-- become calls of these.  They are in the schema of those, with their
-- privileges: what is revoked for the functions of another schema, or by default
-- privileges, must not make such calls fail.
CREATE FUNCTION pg_catalog.zk_advisory_lock(bigint) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_lock(bigint) IS
'stands in for pg_advisory_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_lock(integer, integer) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_lock(integer, integer) IS
'stands in for pg_advisory_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_lock_shared(bigint) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_lock_shared(bigint) IS
'stands in for pg_advisory_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_lock_shared(integer, integer) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_lock_shared(integer, integer) IS
'stands in for pg_advisory_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_xact_lock(bigint) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_xact_lock(bigint) IS
'stands in for pg_advisory_xact_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_xact_lock(integer, integer) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_xact_lock(integer, integer) IS
'stands in for pg_advisory_xact_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_xact_lock_shared(bigint) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_xact_lock_shared(bigint) IS
'stands in for pg_advisory_xact_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_xact_lock_shared(integer, integer) RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_xact_lock_shared(integer, integer) IS
'stands in for pg_advisory_xact_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_lock(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_lock(bigint) IS
'stands in for pg_try_advisory_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_lock(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_lock(integer, integer) IS
'stands in for pg_try_advisory_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_lock_shared(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_lock_shared(bigint) IS
'stands in for pg_try_advisory_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_lock_shared(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_lock_shared(integer, integer) IS
'stands in for pg_try_advisory_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_xact_lock(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_xact_lock(bigint) IS
'stands in for pg_try_advisory_xact_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_xact_lock(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_xact_lock(integer, integer) IS
'stands in for pg_try_advisory_xact_lock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_xact_lock_shared(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_xact_lock_shared(bigint) IS
'stands in for pg_try_advisory_xact_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_try_advisory_xact_lock_shared(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_try_advisory_xact_lock_shared(integer, integer) IS
'stands in for pg_try_advisory_xact_lock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_unlock(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_unlock(bigint) IS
'stands in for pg_advisory_unlock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_unlock(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_unlock(integer, integer) IS
'stands in for pg_advisory_unlock with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_unlock_shared(bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_unlock_shared(bigint) IS
'stands in for pg_advisory_unlock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_unlock_shared(integer, integer) RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_unlock_shared(integer, integer) IS
'stands in for pg_advisory_unlock_shared with zklock.advisory_locks; do not call it directly';
CREATE FUNCTION pg_catalog.zk_advisory_unlock_all() RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_call' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_catalog.zk_advisory_unlock_all() IS
'stands in for pg_advisory_unlock_all with zklock.advisory_locks; do not call it directly';
GRANT EXECUTE ON FUNCTION
    pg_catalog.zk_advisory_lock(bigint),
    pg_catalog.zk_advisory_lock(integer, integer),
    pg_catalog.zk_advisory_lock_shared(bigint),
    pg_catalog.zk_advisory_lock_shared(integer, integer),
    pg_catalog.zk_advisory_xact_lock(bigint),
    pg_catalog.zk_advisory_xact_lock(integer, integer),
    pg_catalog.zk_advisory_xact_lock_shared(bigint),
    pg_catalog.zk_advisory_xact_lock_shared(integer, integer),
    pg_catalog.zk_try_advisory_lock(bigint),
    pg_catalog.zk_try_advisory_lock(integer, integer),
    pg_catalog.zk_try_advisory_lock_shared(bigint),
    pg_catalog.zk_try_advisory_lock_shared(integer, integer),
    pg_catalog.zk_try_advisory_xact_lock(bigint),
    pg_catalog.zk_try_advisory_xact_lock(integer, integer),
    pg_catalog.zk_try_advisory_xact_lock_shared(bigint),
    pg_catalog.zk_try_advisory_xact_lock_shared(integer, integer),
    pg_catalog.zk_advisory_unlock(bigint),
    pg_catalog.zk_advisory_unlock(integer, integer),
    pg_catalog.zk_advisory_unlock_shared(bigint),
    pg_catalog.zk_advisory_unlock_shared(integer, integer),
    pg_catalog.zk_advisory_unlock_all()
    TO PUBLIC;

-- Comments on objects of 1.0, in plainer words
COMMENT ON FUNCTION zk_queue(text) IS
'holders of and waiters for a lock, on all servers and of all clients, as ZooKeeper has them';
COMMENT ON FUNCTION zk_cancel_holder(text) IS
'cancel the running statements of the holders of a lock, on all servers';
COMMENT ON FUNCTION zk_stats_reset() IS
'set the counters of zk_stats to zero, and empty zk_stat_locks and zk_deadlocks';
COMMENT ON COLUMN zk_stats.wait_time IS
'total time from the call to the grant, over all locks taken, in milliseconds';
COMMENT ON COLUMN zk_stats.hold_time IS
'total time from the grant to the release, over all locks released, in milliseconds';
COMMENT ON COLUMN zk_stats.stats_reset IS
'when counting began: the last reset or server start';
