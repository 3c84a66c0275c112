-- How session-scoped locks end: zk_unlock and zk_unlock_all, which never show
-- uncommitted work, DISCARD ALL, and the end of the session.
CREATE EXTENSION dblink;
SELECT format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user) AS conninfo
\gset
SELECT dblink_connect('other', :'conninfo');
CREATE FUNCTION is_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT * FROM dblink('other', format('SELECT zk_try_lock(%L)', name))
      AS r (free boolean)$$;
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid() AND granted$$;
CREATE TABLE note (t text);

-- a transaction that has written: undone, but held until it ends, however
SELECT zk_lock('a', session => true), zk_lock('b', session => true);
BEGIN;
INSERT INTO note VALUES ('b');
SELECT zk_unlock('a'), zk_unlock('a'), is_free('a');
COMMIT;
SELECT held(), is_free('a');
BEGIN;
INSERT INTO note VALUES ('c');
SELECT zk_unlock('b'), is_free('b');
ROLLBACK;
SELECT held(), is_free('b');
-- zk_unlock_all too
SELECT zk_lock('a', session => true), zk_lock('b', session => true);
BEGIN;
INSERT INTO note VALUES ('d');
SELECT zk_lock('x');
SELECT zk_unlock_all();
SELECT zk_unlock('a'), zk_unlock('x'), is_free('a'), is_free('b'), is_free('x');
ROLLBACK;
SELECT held(), is_free('a'), is_free('b'), is_free('x');
-- taken again: there is a hold that stays
SELECT zk_lock('a', session => true), zk_lock('b', session => true);
BEGIN;
INSERT INTO note VALUES ('e');
SELECT zk_unlock('a'), zk_unlock('b');
SELECT zk_lock('a', session => true), zk_lock('b');
COMMIT;
SELECT held(), is_free('a'), is_free('b');
SELECT zk_unlock('a'), zk_unlock('a');
-- in a savepoint: the mark stays where ROLLBACK TO takes back that of a hold of
-- the transaction
SELECT zk_lock('a', session => true), zk_lock('b', session => true);
BEGIN;
SELECT zk_lock('b');
SAVEPOINT s;
SELECT zk_unlock('a'), is_free('a');
SELECT zk_unlock('b'), zk_unlock('b'), zk_unlock('b');
ROLLBACK TO s;
SELECT zk_unlock('a'), is_free('a');
SELECT zk_unlock('b'), zk_unlock('b');
COMMIT;
SELECT held(), is_free('a'), is_free('b');
SELECT zk_lock('a', session => true);
BEGIN;
SAVEPOINT s;
SELECT zk_unlock_all();
SELECT is_free('a');
ROLLBACK TO s;
ROLLBACK;
SELECT held(), is_free('a');

-- what else a session may do
SELECT zk_lock('a', session => true), zk_lock('a', session => true), zk_lock('b', shared => true, session => true);
SELECT pg_advisory_unlock_all();
DISCARD PLANS;
DISCARD TEMP;
DISCARD SEQUENCES;
RESET ALL;
SELECT held(), is_free('a'), is_free('b');
BEGIN;
DISCARD ALL;
ROLLBACK;
SELECT held(), zk_unlock('a'), held();
DISCARD ALL;
SELECT held(), is_free('a'), is_free('b');
SELECT zk_unlock('a');

-- the lock manager warns once that the session's lock has gone, not for each hold
BEGIN;
SELECT zk_lock('a'), zk_lock('a', session => true), zk_lock('a', session => true), zk_lock('a', session => true);
SELECT pg_advisory_unlock_all();
SELECT zk_unlock_all(), held();
COMMIT;
SELECT held(), is_free('a');

-- its end
SELECT dblink_connect('third', :'conninfo');
SELECT * FROM dblink('third', $$SELECT zk_lock('a', session => true), zk_lock('b', shared => true, session => true)$$)
  AS r (a text, b text);
SELECT zk_try_lock('a'), zk_try_lock('b'), zk_try_lock('b', shared => true);
SELECT dblink_disconnect('third');
SELECT zk_lock('a'), zk_lock('b');

SELECT dblink_disconnect('other');
DROP FUNCTION held, is_free;
DROP EXTENSION dblink;
DROP TABLE note;
SELECT count(*) AS held FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
