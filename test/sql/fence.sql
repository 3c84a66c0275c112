-- zk_fence: tokens in the table zk_fences.

-- not held
SELECT zk_fence('a');
\echo :SQLSTATE
SELECT zk_fence(NULL);
\echo :SQLSTATE
SELECT zk_fence('');
\echo :SQLSTATE
SELECT * FROM zk_fences;

-- the token, as often as one likes
BEGIN;
SELECT zk_lock('fence/a');
SELECT zk_fence('fence/a') AS first \gset
SELECT :first = zk_fencing_token('fence/a') AS same;
SELECT zk_fence('fence/a') = :first AS same, zk_fence('fence/a') = :first AS again;
SELECT name, root, token = :first AS token, fenced_at BETWEEN now() AND clock_timestamp() AS fenced_at
  FROM zk_fences;
COMMIT;
SELECT count(*) FROM zk_fences WHERE token = :first;

-- it is part of the transaction, and of the savepoint
BEGIN;
SELECT zk_lock('fence/a'), zk_lock('b');
SELECT zk_fence('fence/a') > :first AS grown;
SAVEPOINT s;
SELECT zk_fence('b') > :first AS fenced;
SELECT count(*) FROM zk_fences;
ROLLBACK TO s;
SELECT count(*) FROM zk_fences;
ROLLBACK;
SELECT count(*) FROM zk_fences WHERE token = :first;

-- it is a change like any other: the lock is not to be had before its end
BEGIN;
SELECT zk_lock('fence/a');
SELECT zk_fence('fence/a') > :first AS grown;
SELECT zk_unlock('fence/a');
SELECT granted FROM zk_locks;
COMMIT;

-- a later holder has been there, or tokens have started over
UPDATE zk_fences SET token = 9223372036854775807, fenced_at = '2020-02-20 12:00:00';
BEGIN;
SELECT zk_lock('fence/a');
\set VERBOSITY terse
SELECT zk_fence('fence/a');
\set VERBOSITY default
\echo :SQLSTATE
ROLLBACK;
DO $$
DECLARE
  detail text;
  hint text;
  token bigint;
BEGIN
  PERFORM zk_lock('fence/a');
  token := zk_fencing_token('fence/a');
  PERFORM zk_fence('fence/a');
EXCEPTION WHEN serialization_failure THEN
  GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
  RAISE NOTICE '%', replace(detail, format('is %s,', token), 'is N,');
  RAISE NOTICE '%', hint;
END$$;
SELECT token FROM zk_fences;
DELETE FROM zk_fences;
BEGIN;
SELECT zk_lock('fence/a');
SELECT zk_fence('fence/a') > :first AS fenced;
COMMIT;

-- each root has locks of its own
BEGIN;
SET LOCAL zklock.root = '/zklock/other';
SELECT zk_lock('fence/a');
SELECT zk_fence('fence/a') > :first AS fenced;
COMMIT;
SELECT name, root FROM zk_fences ORDER BY root;

-- read-only transactions
BEGIN READ ONLY;
SELECT zk_lock('fence/a');
SELECT zk_fence('fence/a');
\echo :SQLSTATE
ROLLBACK;

-- who is granted the function may fence, but write nothing else; what else there
-- is of that name does not matter
CREATE ROLE regress_zk_user;
SET ROLE regress_zk_user;
BEGIN;
SELECT zk_lock('a');
SELECT zk_fence('a');
ROLLBACK;
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_fence TO regress_zk_user;
CREATE SCHEMA regress_zk AUTHORIZATION regress_zk_user;
SET ROLE regress_zk_user;
SET search_path = regress_zk, public;
CREATE TABLE zk_fences (name text, root text, token bigint, fenced_at timestamptz, PRIMARY KEY (name, root));
CREATE FUNCTION leq(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR <= (FUNCTION = leq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
SET search_path = regress_zk, pg_catalog, public;
BEGIN;
SELECT zk_lock('user''s');
SELECT zk_fence('user''s') > :first AS fenced, current_user;
COMMIT;
SELECT count(*) FROM zk_fences;
SELECT count(*) FROM public.zk_fences;
INSERT INTO public.zk_fences VALUES ('user''s', '/zklock', 0, now());
DELETE FROM public.zk_fences;
-- with the table's owner for as long as the statement runs only
BEGIN;
SELECT zk_lock('user''s');
SAVEPOINT s;
SELECT zk_fence('nothing');
ROLLBACK TO s;
SELECT current_user;
COMMIT;
RESET ROLE;
RESET search_path;
SELECT name, root, token > :first AS token FROM zk_fences ORDER BY name, root;
GRANT pg_monitor TO regress_zk_user;
SET ROLE regress_zk_user;
SELECT count(*) FROM zk_fences;
RESET ROLE;

-- row security has no say in it
ALTER TABLE zk_fences ENABLE ROW LEVEL SECURITY;
ALTER TABLE zk_fences FORCE ROW LEVEL SECURITY;
SET ROLE regress_zk_user;
BEGIN;
SELECT zk_lock('user''s');
SELECT zk_fence('user''s') > :first AS fenced;
COMMIT;
RESET ROLE;
ALTER TABLE zk_fences NO FORCE ROW LEVEL SECURITY;
ALTER TABLE zk_fences DISABLE ROW LEVEL SECURITY;

-- in another owner's hands, of no rights but these
CREATE ROLE regress_zk_owner;
GRANT USAGE ON SCHEMA public TO regress_zk_owner;
ALTER TABLE zk_fences OWNER TO regress_zk_owner;
BEGIN;
SELECT zk_lock('b');
SELECT zk_fence('b') > :first AS fenced;
COMMIT;
ALTER TABLE zk_fences OWNER TO CURRENT_USER;

-- nor can a trigger make it believe that the token is written
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER nothing BEFORE INSERT ON zk_fences FOR EACH ROW EXECUTE FUNCTION nothing();
BEGIN;
SELECT zk_lock('b');
SELECT zk_fence('b');
ROLLBACK;
DROP FUNCTION nothing CASCADE;

-- the extension made anew, in another schema, with the same session
CREATE SCHEMA "regress zk";
CREATE FUNCTION fence(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM zk_lock(name);
  RETURN zk_fence(name) > 0;
END$$;
SELECT fence('c');
DROP EXTENSION zklock;
CREATE EXTENSION zklock SCHEMA "regress zk";
SET search_path = "regress zk", public;
SELECT fence('c');
SELECT name, root FROM "regress zk".zk_fences;
-- and renamed
ALTER SCHEMA "regress zk" RENAME TO "Regress";
SELECT "Regress".zk_lock('d');
SET search_path = "Regress", public;
SELECT fence('d');
SELECT name FROM "Regress".zk_fences ORDER BY name;
RESET search_path;
DROP EXTENSION zklock;
CREATE EXTENSION zklock;
SELECT fence('e');
SELECT name FROM zk_fences;

-- it is not dumped
SELECT extconfig FROM pg_extension WHERE extname = 'zklock';

DROP FUNCTION fence;
DROP SCHEMA regress_zk CASCADE;
DROP SCHEMA "Regress";
REVOKE USAGE ON SCHEMA public FROM regress_zk_owner;
DROP OWNED BY regress_zk_user;
DROP ROLE regress_zk_user, regress_zk_owner;
DELETE FROM zk_fences;
SELECT count(*) AS held FROM zk_locks;
