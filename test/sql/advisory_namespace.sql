-- zklock.advisory_namespace: databases that share the locks of
-- zklock.advisory_locks.

-- the locks of this session: what they are in ZooKeeper, and of which locktypes
-- it has heavyweight locks
CREATE VIEW regress_held AS
    SELECT replace(z.name, current_database(), 'DB') AS name, z.mode, z.scope,
           (SELECT count(*) FROM pg_locks l
             WHERE l.pid = z.pid AND l.locktype = 'advisory'
               AND (l.classid, l.objid, l.objsubid) = (z.classid, z.objid, z.objsubid)) AS advisory
      FROM zk_locks z WHERE pid = pg_backend_pid() ORDER BY 1;

SET zklock.advisory_locks = on;
-- the default: the database's name
SHOW zklock.advisory_namespace;
SELECT pg_advisory_lock(1), pg_advisory_lock(1, 2);
SELECT * FROM regress_held;
SELECT pg_advisory_unlock_all();

-- another one
SET zklock.advisory_namespace = 'shards';
BEGIN;
SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(1, 2);
SELECT * FROM regress_held;
-- the name is the same lock, that of the database's name is another one, and
-- stands for none
SELECT zk_lock('advisory/shards/1'), zk_lock('advisory/' || current_database() || '/1'),
       zk_lock('advisory/shards'), zk_lock('advisory/shards/01'), zk_lock('advisory/shards/x/1');
SELECT * FROM regress_held;
COMMIT;
-- any name will do
SET zklock.advisory_namespace = 'a/b ''%';
SELECT pg_advisory_lock(-1), zk_lock('advisory/a/b ''%/-1', session => true);
SELECT * FROM regress_held;
SELECT path FROM zk_locks;
SELECT pg_advisory_unlock(-1), pg_advisory_unlock(-1), pg_advisory_unlock(-1);

-- what was taken in one namespace is unlocked in another one
SET zklock.advisory_namespace = 'shards';
SELECT pg_advisory_lock(1);
RESET zklock.advisory_namespace;
SELECT pg_advisory_lock(1);
SELECT * FROM regress_held;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock(1);
-- with the setting off, too
SET zklock.advisory_namespace = 'shards';
SELECT pg_advisory_lock(1);
RESET zklock.advisory_namespace;
SET zklock.advisory_locks = off;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
SET zklock.advisory_locks = on;
-- what was taken as another lock does not become an advisory lock
BEGIN;
SELECT zk_lock('advisory/shards/1');
SET LOCAL zklock.advisory_namespace = 'shards';
SAVEPOINT s;
SELECT pg_advisory_lock(1);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_try_lock('advisory/shards/1');
ROLLBACK TO s;
RELEASE s;
SELECT zk_unlock('advisory/shards/1');
SELECT pg_advisory_xact_lock(1);
SELECT * FROM regress_held;
COMMIT;

-- values
SELECT set_config('zklock.advisory_namespace', repeat('x', 218), false) = repeat('x', 218) AS longest;
BEGIN;
SELECT pg_advisory_xact_lock(-2147483648, -2147483648);
SELECT length(name) - length('advisory//-2147483648,-2147483648') AS longest FROM zk_locks;
COMMIT;
SELECT set_config('zklock.advisory_namespace', repeat('x', 219), false);
\echo :SQLSTATE
SELECT set_config('zklock.advisory_namespace', repeat(' ', 73), false);
RESET zklock.advisory_namespace;

-- of a role or database; its user cannot change it
SELECT current_database() AS db, current_user AS me \gset
CREATE ROLE regress_zk_shard LOGIN;
ALTER ROLE regress_zk_shard SET zklock.advisory_locks = on;
ALTER ROLE regress_zk_shard SET zklock.advisory_namespace = 'of the role';
ALTER DATABASE :"db" SET zklock.advisory_namespace = 'of the database';
GRANT pg_monitor TO regress_zk_shard;
GRANT SELECT ON regress_held TO regress_zk_shard;
\connect - regress_zk_shard
SHOW zklock.advisory_namespace;
BEGIN;
SELECT pg_advisory_xact_lock(1);
SELECT * FROM regress_held;
COMMIT;
SET zklock.advisory_namespace = '';
\echo :SQLSTATE
\connect - :me
SHOW zklock.advisory_namespace;
ALTER DATABASE :"db" RESET zklock.advisory_namespace;
DROP VIEW regress_held;
DROP ROLE regress_zk_shard;
SELECT count(*) AS held FROM zk_locks;
