/* sql/zklock--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

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
                                  OUT directories bigint)
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
COMMENT ON COLUMN zk_session.directories IS
'lock directories that this server has made since its start; NULL but in the first row';

REVOKE ALL ON FUNCTION zk_session_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_session_status() TO pg_monitor;

ALTER EXTENSION zklock DROP FUNCTION zk_session_status_1_0();
DROP FUNCTION zk_session_status_1_0();

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

-- Comments on objects of 1.0, in plainer words
COMMENT ON FUNCTION zk_queue(text) IS
'holders of and waiters for a lock, on all servers and of all clients, as ZooKeeper has them';
COMMENT ON FUNCTION zk_cancel_holder(text) IS
'cancel the running statements of the holders of a lock, on all servers';
COMMENT ON COLUMN zk_stats.wait_time IS
'total time from the call to the grant, over all locks taken, in milliseconds';
COMMENT ON COLUMN zk_stats.hold_time IS
'total time from the grant to the release, over all locks released, in milliseconds';
COMMENT ON COLUMN zk_stats.stats_reset IS
'when counting began: the last reset or server start';
