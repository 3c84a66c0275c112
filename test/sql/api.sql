-- The interface: what CREATE EXTENSION makes, and who may use it.
SELECT extversion FROM pg_extension WHERE extname = 'zklock';

-- functions: u is parallel unsafe, v volatile; none but those behind the
-- views is strict
SELECT proname, pg_get_function_arguments(oid) AS arguments,
       pg_get_function_result(oid) AS result,
       provolatile AS v, proparallel AS p, proisstrict AS strict
  FROM pg_proc
 WHERE proname LIKE 'zk\_%' AND proname NOT LIKE '%\_status'
   AND proname NOT LIKE '%\_advisory\_%'
 ORDER BY 1;
SELECT proname, provolatile AS v, proparallel AS p
  FROM pg_proc WHERE proname LIKE 'zk\_%\_status' ORDER BY 1;
-- those that stand in for PostgreSQL's are as these are, but parallel unsafe
SELECT p.oid::regprocedure AS function, z.proparallel AS p,
       (z.pronamespace, z.prorettype, z.proisstrict, z.provolatile, z.proretset,
        coalesce(z.proacl, acldefault('f', z.proowner))) IS NOT DISTINCT FROM
       (p.pronamespace, p.prorettype, p.proisstrict, p.provolatile, p.proretset,
        coalesce(p.proacl, acldefault('f', p.proowner))) AS same
  FROM pg_proc p LEFT JOIN pg_proc z
       ON z.proname = regexp_replace(p.proname, '^pg', 'zk') AND z.proargtypes = p.proargtypes
 WHERE p.proname LIKE 'pg\_%advisory%' ORDER BY p.oid;

-- views
\d zk_locks
\d zk_session
\d zk_stat_locks
\d zk_deadlocks

-- every object of the extension has a comment, and every column
SELECT pg_describe_object(classid, objid, 0) AS "has no comment"
  FROM pg_depend
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
   AND classid <> 'pg_type'::regclass
   AND obj_description(objid, classid::regclass::name) IS NULL;
SELECT objid::regclass || '.' || attname AS "has no comment"
  FROM pg_depend JOIN pg_attribute ON attrelid = objid AND attnum > 0 AND NOT attisdropped
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
   AND classid = 'pg_class'::regclass
   AND col_description(objid, attnum) IS NULL;
-- ... in which a view of all tells what it reads, and a function what it asks
SELECT pg_describe_object(classid, objid, 0) AS object,
       obj_description(objid, classid::regclass::name) ~ 'as its memory has' AS memory,
       obj_description(objid, classid::regclass::name) ~ '^ask ZooKeeper' AS zookeeper
  FROM pg_depend LEFT JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
                 LEFT JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
   AND (relkind = 'v' OR proretset AND proname !~ '_status$')
 ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C";

-- locks are for everybody, what tells of other sessions is for pg_monitor
CREATE ROLE regress_zk_user;
CREATE ROLE regress_zk_monitor IN ROLE pg_monitor;
SELECT p.oid::regprocedure AS function,
       has_function_privilege('regress_zk_user', p.oid, 'EXECUTE') AS "user",
       has_function_privilege('regress_zk_monitor', p.oid, 'EXECUTE') AS monitor
  FROM pg_proc p WHERE proname LIKE 'zk\_%' AND proname NOT LIKE '%\_advisory\_%' ORDER BY proname;

SET ROLE regress_zk_user;
BEGIN;
SELECT zk_lock('api');
SELECT zk_try_lock('api');
SELECT zk_fencing_token('api') > 0 AS token;
SELECT zk_unlock('api');
COMMIT;
SELECT * FROM zk_locks;
\echo :SQLSTATE
SELECT * FROM zk_session;
SELECT * FROM zk_stat_locks;
SELECT * FROM zk_deadlocks;
SELECT * FROM zk_fleet_locks();
SELECT * FROM zk_fleet();
SELECT * FROM zk_lock_status();
SELECT * FROM zk_session_status();

SET ROLE regress_zk_monitor;
SELECT count(*) FROM zk_locks;
SELECT count(*) FROM zk_session;
SELECT count(*) > 0 AS locks FROM zk_stat_locks;
SELECT count(*) FROM zk_deadlocks;
SELECT count(*) >= 0 AS queues FROM zk_fleet_locks();
SELECT count(*) FROM zk_fleet() WHERE local;
RESET ROLE;

-- an administrator may narrow it, as for any function
REVOKE EXECUTE ON FUNCTION zk_lock FROM PUBLIC;
SET ROLE regress_zk_user;
SELECT zk_lock('api');
\echo :SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_lock TO PUBLIC;

-- the extension goes without a trace, and may live in any schema
BEGIN;
DROP EXTENSION zklock;
SELECT count(*) FROM pg_proc WHERE proname LIKE 'zk\_%';
CREATE SCHEMA regress_zk;
CREATE EXTENSION zklock SCHEMA regress_zk;
SELECT regress_zk.zk_lock('api');
SELECT name, granted FROM regress_zk.zk_locks;
ROLLBACK;

DROP ROLE regress_zk_user, regress_zk_monitor;
SELECT count(*) AS held FROM zk_locks;
