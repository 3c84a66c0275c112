-- Session-scoped locks: they last until they are undone, whatever becomes of
-- the transaction that took them.
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION is_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT * FROM dblink('other', format('SELECT zk_try_lock(%L)', name))
      AS r (free boolean)$$;
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid() AND granted$$;
CREATE TABLE note (t text);

-- taken outside a transaction block, given back there
SELECT zk_lock('a', session => true);
SELECT held(), is_free('a');
SELECT zk_unlock('a'), held(), is_free('a');
SELECT zk_unlock('a');
SELECT zk_try_lock('a', session => true), zk_try_lock('a', session => true);
SELECT zk_unlock('a'), held(), zk_unlock('a'), held();
SELECT zk_lock('a', session => NULL);
\echo :SQLSTATE

-- COMMIT, ROLLBACK, ROLLBACK TO and errors do not matter; other locks go
BEGIN;
SELECT zk_lock('a', session => true), zk_lock('x');
INSERT INTO note VALUES ('a');
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT zk_lock('b', shared => true, session => true), zk_lock('x');
ROLLBACK TO s;
SELECT held();
SELECT zk_lock('c', session => true), zk_lock('x');
ROLLBACK;
SELECT held();
BEGIN;
SELECT zk_lock('d', session => true), zk_lock('x');
SELECT 1/0;
COMMIT;
DO $$
BEGIN
  BEGIN
    PERFORM zk_lock('e', session => true), zk_lock('x');
    RAISE EXCEPTION 'no';
  EXCEPTION WHEN raise_exception THEN
    RAISE NOTICE '%', held();
  END;
  PERFORM zk_lock('f', session => true), zk_lock('x');
  RAISE EXCEPTION 'no more';
END$$;
SELECT held();
SELECT is_free('a'), is_free('b'), is_free('c'), is_free('d'), is_free('e'), is_free('f'), is_free('x');
-- nothing is taken or undone in a transaction that has failed
BEGIN;
SELECT 1/0;
SELECT zk_lock('g', session => true);
SELECT zk_unlock('a');
SELECT zk_unlock_all();
ROLLBACK;
SELECT held();
-- the token stays with the owner
SELECT zk_fencing_token('a') AS token \gset
SELECT zk_fencing_token('a') = :token AS same;
-- zk_unlock_all: all of them, and no other
BEGIN;
SELECT zk_lock('x'), zk_lock('a', session => true);
SELECT zk_unlock_all();
SELECT held(), is_free('a'), is_free('b');
COMMIT;
SELECT zk_unlock_all();
SELECT held();

-- both scopes: the latest hold is the first to be undone
-- the session's first
SELECT zk_lock('a', session => true);
BEGIN;
SELECT zk_lock('a');
SELECT zk_unlock('a'), held(), is_free('a');
ROLLBACK;
SELECT held(), is_free('a');
BEGIN;
SELECT zk_lock('a');
COMMIT;
SELECT held(), zk_unlock('a'), is_free('a'), zk_unlock('a');
SELECT zk_lock('a', session => true);
BEGIN;
SELECT zk_lock('a');
SELECT zk_unlock('a'), zk_unlock('a'), held(), zk_unlock('a');
COMMIT;
-- the transaction's first
BEGIN;
SELECT zk_lock('a');
SELECT zk_lock('a', session => true);
SELECT zk_unlock('a'), held(), is_free('a');
COMMIT;
SELECT held(), is_free('a');
BEGIN;
SELECT zk_lock('a'), zk_lock('a', session => true), zk_lock('a');
ROLLBACK;
SELECT held(), zk_unlock('a'), is_free('a'), zk_unlock('a');
-- in savepoints
BEGIN;
SAVEPOINT s;
SELECT zk_lock('a'), zk_lock('a', session => true), zk_lock('a'), zk_lock('b');
ROLLBACK TO s;
SELECT held();
COMMIT;
SELECT held(), zk_unlock('a'), zk_unlock('a'), held();
-- zk_unlock_all leaves the transaction's hold of the same lock
BEGIN;
SELECT zk_lock('a'), zk_lock('a', session => true), zk_lock('a', session => true);
SELECT zk_unlock_all();
SELECT held(), is_free('a');
COMMIT;
SELECT held(), is_free('a');

-- PREPARE TRANSACTION is refused, and leaves them
BEGIN;
SELECT zk_lock('a', session => true);
PREPARE TRANSACTION 'regress_zk';
\echo :SQLSTATE
SELECT held();
BEGIN;
INSERT INTO note VALUES ('p');
SELECT zk_unlock('a');
PREPARE TRANSACTION 'regress_zk';
\echo :SQLSTATE
SELECT held(), is_free('a');
BEGIN;
PREPARE TRANSACTION 'regress_zk';
ROLLBACK PREPARED 'regress_zk';

-- one lock over the transactions of a procedure
DO $$
BEGIN
  PERFORM zk_lock('a', session => true);
  FOR i IN 1..3 LOOP
    INSERT INTO note VALUES (i);
    PERFORM zk_lock('x');
    RAISE NOTICE '%, a is free: %', held(), is_free('a');
    IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
  RAISE NOTICE '%: %, a is free: %', held(), zk_unlock('a'), is_free('a');
END$$;

-- the name is that of the namespace at the time
SELECT zk_lock('a', session => true);
SET zklock.root = '/zklock_regress';
SELECT zk_unlock('a');
SELECT zk_unlock_all(), held();
RESET zklock.root;

SELECT dblink_disconnect('other');
DROP FUNCTION held, is_free;
DROP EXTENSION dblink;
DROP TABLE note;
SELECT count(*) AS held FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
