/* sql/zklock--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

-- Each database keeps its own tokens: what arrives for zk_fences by logical
-- replication, as of a publication FOR ALL TABLES, changes nothing.
CREATE FUNCTION zk_fences_keep()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fences_keep'
LANGUAGE C;

COMMENT ON FUNCTION zk_fences_keep() IS
'keeps zk_fences as it is, whatever arrives for it by logical replication';

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
