-- Settings: what they are, which values they take, and who may set them.
SELECT name, vartype AS type, unit, context, boot_val, min_val, max_val, enumvals
  FROM pg_settings WHERE name LIKE 'zklock.%' ORDER BY name COLLATE "C";
SELECT name AS "has no description" FROM pg_settings
 WHERE name LIKE 'zklock.%' AND coalesce(short_desc, '') = '';

-- misspelt ones are refused
SET zklock.unknown = 1;
\echo :SQLSTATE

-- values, checked as a configuration file would be; none of them is applied
-- zklock.servers
ALTER SYSTEM SET zklock.servers = 'localhost:2181';
ALTER SYSTEM SET zklock.servers = 'a:1,b:65535, [::1]:2181/a/b';
ALTER SYSTEM SET zklock.servers = '[fe80::1%eth0]:1,[2001:db8::1]:2181,::1:2181';
ALTER SYSTEM SET zklock.servers = 'a:1/';
ALTER SYSTEM SET zklock.servers = '';
ALTER SYSTEM SET zklock.servers = 'localhost';
ALTER SYSTEM SET zklock.servers = ':2181';
ALTER SYSTEM SET zklock.servers = 'a:';
ALTER SYSTEM SET zklock.servers = 'a:x';
ALTER SYSTEM SET zklock.servers = 'a:0';
ALTER SYSTEM SET zklock.servers = 'a:+1';
ALTER SYSTEM SET zklock.servers = 'a:65536';
ALTER SYSTEM SET zklock.servers = 'a:1,';
ALTER SYSTEM SET zklock.servers = 'a:1,,b:2';
ALTER SYSTEM SET zklock.servers = 'a:1 b:2';
ALTER SYSTEM SET zklock.servers = '[::1:2181';
ALTER SYSTEM SET zklock.servers = '[::1]2181';
ALTER SYSTEM SET zklock.servers = '[a]:2181';
ALTER SYSTEM SET zklock.servers = 'a]:2181';
ALTER SYSTEM SET zklock.servers = 'a:1/b/';
ALTER SYSTEM SET zklock.servers = 'a:1//b';
ALTER SYSTEM SET zklock.servers = 'a:1/..';
\echo :SQLSTATE
ALTER SYSTEM RESET zklock.servers;
-- zklock.auth
ALTER SYSTEM SET zklock.auth = 'me:secret:with:colons';
ALTER SYSTEM SET zklock.auth = 'me';
ALTER SYSTEM RESET zklock.auth;
-- numbers and words; PostgreSQL 17 shows units in ranges, 15 and 16 do not
ALTER SYSTEM SET zklock.session_timeout = '1min';
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.session_timeout = '1999ms';
\set VERBOSITY default
ALTER SYSTEM RESET zklock.session_timeout;
ALTER SYSTEM SET zklock.handoff_quantum = 0;
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.handoff_quantum = -1;
\set VERBOSITY default
ALTER SYSTEM RESET zklock.handoff_quantum;
ALTER SYSTEM SET zklock.retain_time = '1min';
ALTER SYSTEM SET zklock.retain_time = -1;
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.retain_time = -2;
ALTER SYSTEM SET zklock.max_retain_time = 0;
\set VERBOSITY default
ALTER SYSTEM RESET zklock.retain_time;
ALTER SYSTEM SET zklock.max_locks = 0;
ALTER SYSTEM RESET zklock.max_locks;
ALTER SYSTEM SET zklock.acl = 'creator';
ALTER SYSTEM SET zklock.acl = 'closed';
ALTER SYSTEM RESET zklock.acl;

-- of the server, not of a session
SET zklock.servers = 'localhost:2181';
\echo :SQLSTATE
SET zklock.session_timeout = '5s';
SET zklock.handoff_quantum = 0;
SET zklock.max_locks = 1;
SET zklock.auth = 'me:secret';
SET zklock.acl = 'creator';

-- zklock.root is of a session
SHOW zklock.root;
SET zklock.root = '/a';
SET zklock.root = '/a/b.c/-_~:@=+,%20';
SELECT set_config('zklock.root', '/' || repeat('x', 118), false) = current_setting('zklock.root');
SELECT set_config('zklock.root', '/' || repeat('x', 119), false);
SET zklock.root = '';
SET zklock.root = 'a';
SET zklock.root = '/';
SET zklock.root = '/a/';
SET zklock.root = '//a';
SET zklock.root = '/a/./b';
SET zklock.root = '/a/..';
SET zklock.root = '/zookeeper';
SET zklock.root = '/zookeeper/a';
SET zklock.root = '/zookeepers';
SET zklock.root = '/a b';
\echo :SQLSTATE
RESET zklock.root;

-- in another root a name is another lock
BEGIN;
SELECT zk_lock('a');
SET LOCAL zklock.root = '/zklock/regress';
SELECT zk_unlock('a');
SELECT zk_lock('a');
SELECT name, path FROM zk_locks ORDER BY path;
SELECT zk_unlock('a');
RESET zklock.root;
SELECT name, path FROM zk_locks ORDER BY path;
SELECT zk_unlock('a');
COMMIT;

-- a role or a database has its namespace, which its user cannot leave
SELECT current_database() AS db, current_user AS me \gset
CREATE ROLE regress_zk_user LOGIN;
GRANT EXECUTE ON FUNCTION zk_lock_status TO regress_zk_user;
GRANT SELECT ON zk_locks TO regress_zk_user;
ALTER ROLE regress_zk_user SET zklock.root = 'shop';
ALTER ROLE regress_zk_user SET zklock.root = '/shops/1';
\connect - regress_zk_user
SHOW zklock.root;
BEGIN;
SELECT zk_lock('a');
SELECT name, path FROM zk_locks;
COMMIT;
SET zklock.root = '/zklock';
\echo :SQLSTATE
ALTER ROLE regress_zk_user SET zklock.root = '/zklock';
\echo :SQLSTATE
RESET zklock.root;
\echo :SQLSTATE
SHOW zklock.root;
\set VERBOSITY sqlstate
SHOW zklock.auth;
\set VERBOSITY default
\connect - :me
ALTER ROLE regress_zk_user RESET zklock.root;
ALTER DATABASE :"db" SET zklock.root = '/databases/1';
\connect - regress_zk_user
SHOW zklock.root;
\connect - :me
SHOW zklock.root;
ALTER DATABASE :"db" RESET zklock.root;
-- unless the right to do so is granted
GRANT SET ON PARAMETER zklock.root TO regress_zk_user;
\connect - regress_zk_user
SET zklock.root = '/zklock/regress';
SHOW zklock.root;
\connect - :me
REVOKE SET ON PARAMETER zklock.root FROM regress_zk_user;
REVOKE EXECUTE ON FUNCTION zk_lock_status FROM regress_zk_user;
REVOKE SELECT ON zk_locks FROM regress_zk_user;
DROP ROLE regress_zk_user;

-- the credentials are in pg_file_settings for superusers, and shown nowhere else
CREATE ROLE regress_zk_user;
CREATE ROLE regress_zk_reader IN ROLE pg_read_all_settings, pg_monitor;
CREATE EXTENSION dblink;
CREATE FUNCTION wait_for_auth(expected text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  shown text;
BEGIN
  -- new sessions, since the server learns of new settings when it likes
  LOOP
    SELECT * INTO shown FROM dblink(
      format('host=%s port=%s dbname=%s user=%s',
             split_part(current_setting('unix_socket_directories'), ',', 1),
             current_setting('port'), current_database(), current_user),
      'SHOW zklock.auth') AS s (auth text);
    EXIT WHEN shown = expected;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN shown;
END$$;
SHOW zklock.auth;
ALTER SYSTEM SET zklock.auth = 'me:secret';
SELECT pg_reload_conf();
SELECT wait_for_auth('********');
\connect -
SHOW zklock.auth;
SELECT current_setting('zklock.auth');
SELECT name, setting, boot_val, reset_val FROM pg_settings WHERE name = 'zklock.auth';
SELECT setting, applied FROM pg_file_settings WHERE name = 'zklock.auth';
SET ROLE regress_zk_reader;
SHOW zklock.auth;
SELECT current_setting('zklock.auth');
SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth' OR setting LIKE '%secret%';
SELECT setting FROM pg_file_settings WHERE name = 'zklock.auth';
SET ROLE regress_zk_user;
\set VERBOSITY sqlstate
SHOW zklock.auth;
\set VERBOSITY default
SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth' OR setting LIKE '%secret%';
SELECT setting FROM pg_file_settings WHERE name = 'zklock.auth';
RESET ROLE;
ALTER SYSTEM RESET zklock.auth;
SELECT pg_reload_conf();
SELECT wait_for_auth('');
-- and locks go on
SELECT zk_lock('a');

DROP ROLE regress_zk_user, regress_zk_reader;
DROP FUNCTION wait_for_auth;
DROP EXTENSION dblink;
SELECT count(*) AS held FROM zk_locks;
