/* sql/zklock--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

-- Tell now, and not only when a lock is wanted, if the library is not loaded.
CREATE FUNCTION zk_warn_not_preloaded()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_warn_not_preloaded'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
SELECT zk_warn_not_preloaded();
DROP FUNCTION zk_warn_not_preloaded();

-- Locks
CREATE FUNCTION zk_lock(name text,
                        timeout interval DEFAULT NULL,
                        shared boolean DEFAULT false,
                        session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock(text, interval, boolean, boolean) IS
'wait for a lock in ZooKeeper and hold it until the end of the transaction or session';

CREATE FUNCTION zk_try_lock(name text,
                            timeout interval DEFAULT '0',
                            shared boolean DEFAULT false,
                            session boolean DEFAULT false)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_lock(text, interval, boolean, boolean) IS
'take a lock in ZooKeeper if it is free in time';

CREATE FUNCTION zk_lock_all(names text[],
                            timeout interval DEFAULT NULL,
                            shared boolean DEFAULT false,
                            session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_lock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_lock_all(text[], interval, boolean, boolean) IS
'wait for several locks in ZooKeeper, one after the other, and take all of them, or none';

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
'take the first of several locks in ZooKeeper that is free in time';

CREATE PROCEDURE zk_wait_lock(name text,
                              timeout interval DEFAULT NULL,
                              shared boolean DEFAULT false,
                              session boolean DEFAULT false)
AS 'MODULE_PATHNAME', 'zk_wait_lock'
LANGUAGE C;

COMMENT ON PROCEDURE zk_wait_lock(text, interval, boolean, boolean) IS
'wait for a lock in ZooKeeper as zk_lock does, but without a snapshot';

CREATE PROCEDURE zk_wait_lock_all(names text[],
                                  timeout interval DEFAULT NULL,
                                  shared boolean DEFAULT false,
                                  session boolean DEFAULT false)
AS 'MODULE_PATHNAME', 'zk_wait_lock_all'
LANGUAGE C;

COMMENT ON PROCEDURE zk_wait_lock_all(text[], interval, boolean, boolean) IS
'wait for several locks in ZooKeeper as zk_lock_all does, but without a snapshot';

CREATE PROCEDURE zk_wait_lock_any(names text[],
                                  timeout interval DEFAULT NULL,
                                  shared boolean DEFAULT false,
                                  session boolean DEFAULT false,
                                  INOUT name text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'zk_wait_lock_any'
LANGUAGE C;

COMMENT ON PROCEDURE zk_wait_lock_any(text[], interval, boolean, boolean, text) IS
'wait for the first of several locks in ZooKeeper as zk_lock_any does, but without a snapshot; return its name';

CREATE FUNCTION zk_acquire(name text,
                           permits integer,
                           timeout interval DEFAULT NULL,
                           session boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_acquire(text, integer, interval, boolean) IS
'wait for one of the permits of a semaphore in ZooKeeper, and take it';

CREATE FUNCTION zk_try_acquire(name text,
                               permits integer,
                               timeout interval DEFAULT '0',
                               session boolean DEFAULT false)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_acquire(text, integer, interval, boolean) IS
'take one of the permits of a semaphore in ZooKeeper if one is free in time';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock(text) IS
'undo the latest hold of a lock or semaphore, at the end of the transaction if it has changed anything';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_unlock_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_unlock_all() IS
'undo all session-scoped holds of this session';

-- Claims: locks that belong to the holder of a token
CREATE FUNCTION zk_claim(name text,
                         ttl interval,
                         timeout interval DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'zk_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_claim(text, interval, interval) IS
'wait for a lock in ZooKeeper and keep it from COMMIT on for the holder of the token that it returns';

CREATE FUNCTION zk_try_claim(name text,
                             ttl interval,
                             timeout interval DEFAULT '0')
RETURNS text
AS 'MODULE_PATHNAME', 'zk_try_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_try_claim(text, interval, interval) IS
'claim a lock in ZooKeeper if it is free in time';

CREATE FUNCTION zk_renew_claim(token text, ttl interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_renew_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_renew_claim(text, interval) IS
'have the ttl of a claim count from now on; false if the claim has ended';

CREATE FUNCTION zk_use_claim(token text)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_use_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_use_claim(text) IS
'hold the lock of a claim for the transaction, which cannot commit if the lock is lost';

CREATE FUNCTION zk_end_claim(token text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_end_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_end_claim(text) IS
'end a claim, at the end of the transaction if it has changed anything; false if it has ended already';

-- Fencing
CREATE FUNCTION zk_fencing_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fencing_token'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fencing_token(text) IS
'fencing token of a lock that is held: a number that grows with each change of the instance that owns the lock';

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
'highest fencing token of each lock for which zk_fence was called in this database';
COMMENT ON COLUMN zk_fences.name IS
'name of the lock';
COMMENT ON COLUMN zk_fences.root IS
'the zklock.root of the holder';
COMMENT ON COLUMN zk_fences.token IS
'fencing token of the latest holder';
COMMENT ON COLUMN zk_fences.fenced_at IS
'when the latest holder called zk_fence';

REVOKE ALL ON zk_fences FROM PUBLIC;
GRANT SELECT ON zk_fences TO pg_monitor;

-- Each database keeps its own tokens: what arrives for zk_fences by logical
-- replication, as of a publication FOR ALL TABLES, changes nothing.
CREATE FUNCTION zk_fences_keep()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fences_keep'
LANGUAGE C;

COMMENT ON FUNCTION zk_fences_keep() IS
'discard changes of zk_fences that arrive by logical replication';

REVOKE ALL ON FUNCTION zk_fences_keep() FROM PUBLIC;

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

CREATE FUNCTION zk_fence(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence(text) IS
'write the fencing token of a lock that is held into zk_fences; fail if a later holder has done so';

-- Each name that it is called with can add a row to a table of the extension.
REVOKE ALL ON FUNCTION zk_fence(text) FROM PUBLIC;

-- Views: they read the memory of this instance
CREATE FUNCTION zk_lock_status(OUT name text,
                               OUT pid integer,
                               OUT mode text,
                               OUT scope text,
                               OUT granted boolean,
                               OUT lost boolean,
                               OUT state_change timestamptz,
                               OUT path text,
                               OUT token bigint,
                               OUT classid oid,
                               OUT objid oid,
                               OUT objsubid smallint,
                               OUT exclusion text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_lock_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_lock_status() IS
'rows of the view zk_locks; use the view';

CREATE VIEW zk_locks AS
    SELECT l.*, a.datname, a.usename, a.application_name, a.query_start
    FROM zk_lock_status() l
        LEFT JOIN pg_catalog.pg_stat_activity a USING (pid);

COMMENT ON VIEW zk_locks IS
'locks and permits that sessions of this instance hold or wait for, as its memory has them';
COMMENT ON COLUMN zk_locks.name IS
'name of the lock or semaphore';
COMMENT ON COLUMN zk_locks.pid IS
'process ID of the session; NULL of a claim';
COMMENT ON COLUMN zk_locks.mode IS
'exclusive, shared or permit';
COMMENT ON COLUMN zk_locks.scope IS
'transaction or session: scope of the hold that lasts longest; claim: held for the holder of its token';
COMMENT ON COLUMN zk_locks.granted IS
'true if the session holds the lock, false if it waits';
COMMENT ON COLUMN zk_locks.lost IS
'true if the lock is held, but lost in ZooKeeper, so that the session cannot commit';
COMMENT ON COLUMN zk_locks.state_change IS
'when the session got the lock, or began to wait for it';
COMMENT ON COLUMN zk_locks.path IS
'lock directory in ZooKeeper';
COMMENT ON COLUMN zk_locks.token IS
'fencing token; NULL while it is not known';
COMMENT ON COLUMN zk_locks.classid IS
'the same in pg_locks, with objid and objsubid: of locktype userlock, or advisory if the lock stands for an advisory lock';
COMMENT ON COLUMN zk_locks.objid IS
'the same in pg_locks';
COMMENT ON COLUMN zk_locks.objsubid IS
'the same in pg_locks';
COMMENT ON COLUMN zk_locks.exclusion IS
'fleet: the lock excludes sessions of all instances; instance: of this one only, since it was taken with zklock.exclusion = instance';
COMMENT ON COLUMN zk_locks.datname IS
'database of the session';
COMMENT ON COLUMN zk_locks.usename IS
'user of the session';
COMMENT ON COLUMN zk_locks.application_name IS
'application_name of the session';
COMMENT ON COLUMN zk_locks.query_start IS
'when the session''s current statement began, or its last one';

REVOKE ALL ON FUNCTION zk_lock_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_lock_status() TO pg_monitor;
GRANT SELECT ON zk_locks TO pg_monitor;

CREATE FUNCTION zk_claim_status(OUT name text,
                                OUT claim_start timestamptz,
                                OUT ttl interval,
                                OUT last_renewal timestamptz,
                                OUT expires_at timestamptz,
                                OUT users integer,
                                OUT path text,
                                OUT fencing_token bigint,
                                OUT role regrole)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_claim_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_claim_status() IS
'rows of the view zk_claims; use the view';

CREATE VIEW zk_claims AS
    SELECT * FROM zk_claim_status();

COMMENT ON VIEW zk_claims IS
'claims that this instance has given, as its memory has them';
COMMENT ON COLUMN zk_claims.name IS
'name of the lock';
COMMENT ON COLUMN zk_claims.claim_start IS
'when the transaction that took the lock was committed';
COMMENT ON COLUMN zk_claims.ttl IS
'for how long the claim lasts after it began or was renewed';
COMMENT ON COLUMN zk_claims.last_renewal IS
'when it was last renewed, or when it began';
COMMENT ON COLUMN zk_claims.expires_at IS
'when it ends unless it is renewed; one that is in use then is kept until the transactions end, but cannot be used or renewed any more';
COMMENT ON COLUMN zk_claims.users IS
'number of transactions that use it now';
COMMENT ON COLUMN zk_claims.path IS
'lock directory in ZooKeeper';
COMMENT ON COLUMN zk_claims.fencing_token IS
'fencing token of the lock, which is not the token of the claim; NULL while it is not known';
COMMENT ON COLUMN zk_claims.role IS
'role that the session that took the lock had logged in as';

REVOKE ALL ON FUNCTION zk_claim_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_claim_status() TO pg_monitor, pg_signal_backend;
GRANT SELECT ON zk_claims TO pg_monitor, pg_signal_backend;

CREATE FUNCTION zk_session_status(OUT state text,
                                  OUT state_change timestamptz,
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
                                  OUT fleet uuid,
                                  OUT exclusion text,
                                  OUT missing text[])
RETURNS record
AS 'MODULE_PATHNAME', 'zk_session_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_session_status() IS
'the row of the view zk_session; use the view';

CREATE VIEW zk_session AS
    SELECT * FROM zk_session_status();

COMMENT ON VIEW zk_session IS
'the session of this instance with ZooKeeper, as its memory has it';
COMMENT ON COLUMN zk_session.state IS
'connected; suspended: the connection is lost, the session may live; connecting: there is no session yet; down: there is no worker, or no address';
COMMENT ON COLUMN zk_session.state_change IS
'when the session entered this state';
COMMENT ON COLUMN zk_session.session_id IS
'number of the session in ZooKeeper; NULL if there is none';
COMMENT ON COLUMN zk_session.server IS
'address and port of the ZooKeeper server; NULL if not connected';
COMMENT ON COLUMN zk_session.servers IS
'zklock.servers as it is in force';
COMMENT ON COLUMN zk_session.timeout IS
'session timeout that ZooKeeper has granted, or, before that, the one to ask for';
COMMENT ON COLUMN zk_session.lease IS
'for how long the session cannot end in ZooKeeper; NULL if it has had no lock';
COMMENT ON COLUMN zk_session.sessions IS
'sessions that this instance has had, one after the other, since server start';
COMMENT ON COLUMN zk_session.reconnects IS
'connections regained within one of these sessions';
COMMENT ON COLUMN zk_session.worker_pid IS
'process ID of the worker; NULL if there is none';
COMMENT ON COLUMN zk_session.last_error IS
'why there is no connection; NULL after a server has answered';
COMMENT ON COLUMN zk_session.path_bytes IS
'bytes that the paths of the session''s znodes take: the length of each plus 4';
COMMENT ON COLUMN zk_session.max_path_bytes IS
'limit of path_bytes; a lock that does not fit is refused';
COMMENT ON COLUMN zk_session.directories IS
'lock directories that this instance has made since server start';
COMMENT ON COLUMN zk_session.fleet IS
'identity of the fleet, the same on all instances that share the ensemble and zklock.root; NULL while it is not known';

COMMENT ON COLUMN zk_session.exclusion IS
'zklock.exclusion as it is in force: fleet, or instance: locks that are taken now exclude sessions of this instance only, and ask nothing of ZooKeeper';
COMMENT ON COLUMN zk_session.missing IS
'what the servers were found to lack of what zklock uses, by ZooKeeper''s names; NULL if nothing';

REVOKE ALL ON FUNCTION zk_session_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_session_status() TO pg_monitor;
GRANT SELECT ON zk_session TO pg_monitor;

CREATE FUNCTION zk_stat_status(OUT taken bigint,
                               OUT handed_off bigint,
                               OUT waited bigint,
                               OUT timed_out bigint,
                               OUT failed bigint,
                               OUT deadlocks bigint,
                               OUT lost bigint,
                               OUT total_wait_time double precision,
                               OUT total_hold_time double precision,
                               OUT wait_histogram bigint[],
                               OUT hold_histogram bigint[],
                               OUT slots integer,
                               OUT slot_users integer,
                               OUT stats_reset timestamptz,
                               OUT claims integer,
                               OUT claims_expired bigint,
                               OUT retained bigint,
                               OUT retaken bigint,
                               OUT revoked bigint,
                               OUT waited_revoke bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_stat_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_stat_status() IS
'the row of the view zk_stat; use the view';

CREATE VIEW zk_stat AS
    SELECT * FROM zk_stat_status();

COMMENT ON VIEW zk_stat IS
'counters of this instance, as its memory has them: how often and how long its sessions have waited for and held locks';
COMMENT ON COLUMN zk_stat.taken IS
'locks taken, not counting those that the session already held';
COMMENT ON COLUMN zk_stat.handed_off IS
'of these, taken without ZooKeeper, because this instance already owned the lock';
COMMENT ON COLUMN zk_stat.waited IS
'of these, taken after waiting for another holder, here or elsewhere';
COMMENT ON COLUMN zk_stat.timed_out IS
'calls that did not get their lock in time';
COMMENT ON COLUMN zk_stat.failed IS
'calls that ended in another error, or were canceled';
COMMENT ON COLUMN zk_stat.deadlocks IS
'calls that failed to end a deadlock, within this instance or with others';
COMMENT ON COLUMN zk_stat.lost IS
'locks that were lost while they were held';
COMMENT ON COLUMN zk_stat.total_wait_time IS
'total time from the call to the grant, over all locks taken, in milliseconds';
COMMENT ON COLUMN zk_stat.total_hold_time IS
'total time from the grant to the release, over all locks released, in milliseconds';
COMMENT ON COLUMN zk_stat.wait_histogram IS
'waits of the locks taken: element n counts those from 2^(n-1) up to 2^n microseconds, the first also shorter ones, the last also longer ones';
COMMENT ON COLUMN zk_stat.hold_histogram IS
'hold times of the locks released, in the same buckets';
COMMENT ON COLUMN zk_stat.slots IS
'slots in use: locks that are held, waited for or being given up now; at most zklock.max_locks';
COMMENT ON COLUMN zk_stat.slot_users IS
'sessions'' holds and waits in these slots';
COMMENT ON COLUMN zk_stat.stats_reset IS
'when counting began: the last reset, or server start';
COMMENT ON COLUMN zk_stat.claims IS
'claims that there are, and holds that become some at COMMIT';
COMMENT ON COLUMN zk_stat.claims_expired IS
'claims that ended because they were not renewed in time';
COMMENT ON COLUMN zk_stat.retained IS
'locks that this instance retained for its next session when they were given back';
COMMENT ON COLUMN zk_stat.retaken IS
'of the locks taken, those that this instance had retained';
COMMENT ON COLUMN zk_stat.revoked IS
'retained locks that were given up because others waited for them';
COMMENT ON COLUMN zk_stat.waited_revoke IS
'locks that were granted when another instance, which this one had seen to retain them, had given them up';

REVOKE ALL ON FUNCTION zk_stat_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_stat_status() TO pg_monitor;
GRANT SELECT ON zk_stat TO pg_monitor;

CREATE FUNCTION zk_stat_locks_status(OUT name text,
                                     OUT root text,
                                     OUT taken bigint,
                                     OUT handed_off bigint,
                                     OUT waited bigint,
                                     OUT timed_out bigint,
                                     OUT failed bigint,
                                     OUT deadlocks bigint,
                                     OUT lost bigint,
                                     OUT total_wait_time double precision,
                                     OUT max_wait_time double precision,
                                     OUT total_hold_time double precision,
                                     OUT max_hold_time double precision,
                                     OUT wait_histogram bigint[],
                                     OUT hold_histogram bigint[],
                                     OUT stats_reset timestamptz,
                                     OUT retained bigint,
                                     OUT retaken bigint,
                                     OUT revoked bigint,
                                     OUT waited_revoke bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_stat_locks_status'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_stat_locks_status() IS
'rows of the view zk_stat_locks; use the view';

CREATE VIEW zk_stat_locks AS
    SELECT * FROM zk_stat_locks_status();

COMMENT ON VIEW zk_stat_locks IS
'counters of single locks in this instance, as its memory has them: a row for each of zklock.max_tracked_locks locks, and one for all others';
COMMENT ON COLUMN zk_stat_locks.name IS
'name of the lock or semaphore; others: all that have no row';
COMMENT ON COLUMN zk_stat_locks.root IS
'the zklock.root it is below; NULL: all that have no row';
COMMENT ON COLUMN zk_stat_locks.taken IS
'times it was taken by a session that did not hold it';
COMMENT ON COLUMN zk_stat_locks.handed_off IS
'of these, taken without ZooKeeper, because this instance already owned it';
COMMENT ON COLUMN zk_stat_locks.waited IS
'of these, taken after waiting for another holder, here or elsewhere';
COMMENT ON COLUMN zk_stat_locks.timed_out IS
'calls that did not get it in time';
COMMENT ON COLUMN zk_stat_locks.failed IS
'calls that ended in another error, or were canceled';
COMMENT ON COLUMN zk_stat_locks.deadlocks IS
'calls that failed to end a deadlock';
COMMENT ON COLUMN zk_stat_locks.lost IS
'times it was lost while it was held';
COMMENT ON COLUMN zk_stat_locks.total_wait_time IS
'total time from the call to the grant, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.max_wait_time IS
'longest time from the call to the grant, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.total_hold_time IS
'total time from the grant to the release, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.max_hold_time IS
'longest time from the grant to the release, in milliseconds';
COMMENT ON COLUMN zk_stat_locks.wait_histogram IS
'times from the call to the grant, in the buckets of zk_stat';
COMMENT ON COLUMN zk_stat_locks.hold_histogram IS
'times from the grant to the release, in the buckets of zk_stat';
COMMENT ON COLUMN zk_stat_locks.stats_reset IS
'when counting of this lock began';
COMMENT ON COLUMN zk_stat_locks.retained IS
'times it was retained for the next session when it was given back';
COMMENT ON COLUMN zk_stat_locks.retaken IS
'times it was taken while this instance retained it';
COMMENT ON COLUMN zk_stat_locks.revoked IS
'times it was retained, and given up because others waited for it';
COMMENT ON COLUMN zk_stat_locks.waited_revoke IS
'times it was granted when another instance, which this one had seen to retain it, had given it up';

REVOKE ALL ON FUNCTION zk_stat_locks_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_stat_locks_status() TO pg_monitor;
GRANT SELECT ON zk_stat_locks TO pg_monitor;

CREATE FUNCTION zk_deadlock_status(OUT id bigint,
                                   OUT detected timestamptz,
                                   OUT member integer,
                                   OUT cluster_name text,
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
'rows of the view zk_deadlocks; use the view';

CREATE VIEW zk_deadlocks AS
    SELECT * FROM zk_deadlock_status();

COMMENT ON VIEW zk_deadlocks IS
'latest deadlocks with other instances that sessions of this one were part of, as its memory has them: a row for each member';
COMMENT ON COLUMN zk_deadlocks.id IS
'number of the deadlock in this instance';
COMMENT ON COLUMN zk_deadlocks.detected IS
'when this instance learned of the deadlock';
COMMENT ON COLUMN zk_deadlocks.member IS
'number of the member in the deadlock, from 1';
COMMENT ON COLUMN zk_deadlocks.cluster_name IS
'cluster_name of the member''s instance; unnamed if that is empty';
COMMENT ON COLUMN zk_deadlocks.pid IS
'process ID of the session that waits';
COMMENT ON COLUMN zk_deadlocks.mode IS
'what it waits for: exclusive, shared or permit; NULL: a session';
COMMENT ON COLUMN zk_deadlocks.name IS
'name of the lock or semaphore that it waits for; NULL: a session';
COMMENT ON COLUMN zk_deadlocks.path IS
'lock directory of that in ZooKeeper; or the session that it waits for';
COMMENT ON COLUMN zk_deadlocks.holder_pid IS
'process ID of the session that holds what other members wait for: the same, or one that waits for it in its own instance';
COMMENT ON COLUMN zk_deadlocks.blocked_by IS
'numbers of the members that it waits for';
COMMENT ON COLUMN zk_deadlocks.victim IS
'true if its wait was ended, with an error';
COMMENT ON COLUMN zk_deadlocks.local IS
'true if it is a session of this instance';

REVOKE ALL ON FUNCTION zk_deadlock_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_deadlock_status() TO pg_monitor;
GRANT SELECT ON zk_deadlocks TO pg_monitor;

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_stat_reset'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_stat_reset() IS
'set the counters of zk_stat to zero, and empty zk_stat_locks and zk_deadlocks';

REVOKE ALL ON FUNCTION zk_stat_reset() FROM PUBLIC;

-- Functions: they ask ZooKeeper about all instances
CREATE FUNCTION zk_queue(name text,
                         OUT "position" integer,
                         OUT path text,
                         OUT mode text,
                         OUT owner text,
                         OUT cluster_name text,
                         OUT host text,
                         OUT port integer,
                         OUT pid integer,
                         OUT session_id text,
                         OUT queued_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_queue'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_queue(text) IS
'ask ZooKeeper for the contenders for a lock or semaphore, of all instances and other clients, in the order of the queue';

REVOKE ALL ON FUNCTION zk_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_queue(text) TO pg_monitor;

CREATE FUNCTION zk_fleet_locks(OUT name text,
                               OUT mode text,
                               OUT holders integer,
                               OUT holder text,
                               OUT cluster_name text,
                               OUT host text,
                               OUT port integer,
                               OUT pid integer,
                               OUT queued_at timestamptz,
                               OUT waiters integer,
                               OUT longest_wait interval,
                               OUT waits_for text[],
                               OUT seen timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_fleet_locks'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fleet_locks() IS
'ask ZooKeeper for all locks below zklock.root that are held or waited for, by all instances and other clients; a row may be of two moments some milliseconds apart';

REVOKE ALL ON FUNCTION zk_fleet_locks() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_fleet_locks() TO pg_monitor;

CREATE FUNCTION zk_fleet(OUT cluster_name text,
                         OUT host text,
                         OUT port integer,
                         OUT standby boolean,
                         OUT version text,
                         OUT server_version text,
                         OUT system_identifier bigint,
                         OUT node_format text,
                         OUT session_timeout interval,
                         OUT started_at timestamptz,
                         OUT session_id text,
                         OUT local boolean,
                         OUT conflicts text[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_fleet'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fleet() IS
'ask ZooKeeper for the instances that share its ensemble and zklock.root, and what conflicts';

REVOKE ALL ON FUNCTION zk_fleet() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_fleet() TO pg_monitor;

CREATE FUNCTION zk_cancel_holders(name text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_cancel_holders'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_cancel_holders(text) IS
'cancel the running statements of the holders of a lock: here at once, on other instances by way of ZooKeeper';

REVOKE ALL ON FUNCTION zk_cancel_holders(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_cancel_holders(text) TO pg_signal_backend;

CREATE FUNCTION zk_terminate_holders(name text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_terminate_holders'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_terminate_holders(text) IS
'terminate the sessions of this instance that hold a lock, as pg_terminate_backend does';

REVOKE ALL ON FUNCTION zk_terminate_holders(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_terminate_holders(text) TO pg_signal_backend;

CREATE FUNCTION zk_terminate_claims(role regrole)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_terminate_claims'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_terminate_claims(regrole) IS
'end the claims of this instance that a role has';

REVOKE ALL ON FUNCTION zk_terminate_claims(regrole) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_terminate_claims(regrole) TO pg_signal_backend;

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
