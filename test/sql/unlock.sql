-- zk_unlock gives a lock back at once only if that shows nobody uncommitted
-- work: in a transaction that has changed nothing, and outside a savepoint.
-- Else the lock goes with the transaction.
CREATE EXTENSION dblink;
SELECT format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user) AS conninfo
\gset
SELECT dblink_connect('other', :'conninfo');
CREATE FUNCTION is_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT * FROM dblink('other', format('SELECT zk_try_lock(%L)', name))
      AS r (free boolean)$$;
CREATE TABLE stock (item text PRIMARY KEY, quantity integer);
INSERT INTO stock VALUES ('bolt', 100);

-- not held
SELECT zk_unlock('a');
SELECT other.* FROM dblink('other', 'BEGIN; SELECT zk_try_lock(''a'')')
  AS other (answer text);
SELECT zk_unlock('a');
SELECT dblink_exec('other', 'ROLLBACK');

-- nothing changed
BEGIN;
SELECT zk_lock('a');
SELECT quantity FROM stock;
DO $$BEGIN EXECUTE 'EXPLAIN DELETE FROM stock'; END$$;
SELECT zk_unlock('a'), is_free('a');
-- what comes later is without the lock
INSERT INTO stock VALUES ('nut', 1);
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;

-- a row changed; a hold can be undone only once
BEGIN;
SELECT zk_lock('a');
UPDATE stock SET quantity = quantity - 1 WHERE item = 'bolt';
SELECT zk_unlock('a'), is_free('a');
SELECT zk_unlock('a'), is_free('a');
SELECT name, granted FROM zk_locks;
COMMIT;
SELECT is_free('a');

-- the change may come ahead of the lock, and end in ROLLBACK
BEGIN;
DELETE FROM stock;
SELECT zk_lock('a');
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
SELECT is_free('a');

-- taken again: there is a hold to undo again
BEGIN;
INSERT INTO stock VALUES ('nut', 1);
SELECT zk_lock('a');
SELECT zk_unlock('a');
SELECT zk_lock('a');
SELECT zk_unlock('a'), zk_unlock('a'), is_free('a');
ROLLBACK;

-- several holds, of which some are undone
BEGIN;
SELECT zk_lock('a'), zk_lock('a'), zk_lock('b');
SELECT zk_unlock('a');
INSERT INTO stock VALUES ('nut', 1);
SELECT zk_unlock('a');
SELECT name FROM zk_locks ORDER BY name;
COMMIT;
DELETE FROM stock WHERE item = 'nut';
SELECT name FROM zk_locks;

-- every way to change something
-- a statement that found nothing to change
BEGIN;
SELECT zk_lock('a');
UPDATE stock SET quantity = 0 WHERE item = 'screw';
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- a transaction id
BEGIN;
SELECT zk_lock('a');
SELECT pg_current_xact_id() IS NOT NULL AS xid;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- a row lock
BEGIN;
SELECT zk_lock('a');
SELECT item FROM stock WHERE item = 'bolt' FOR UPDATE;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- a common table expression
BEGIN;
SELECT zk_lock('a');
WITH gone AS (DELETE FROM stock WHERE item = 'screw' RETURNING item)
  SELECT count(*) FROM gone;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- COPY
BEGIN;
SELECT zk_lock('a');
COPY stock FROM stdin;
washer	3
\.
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
BEGIN;
SELECT zk_lock('a');
COPY stock FROM stdin;
\.
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- DDL
BEGIN;
SELECT zk_lock('a');
CREATE TABLE regress_zk (a integer);
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
BEGIN;
SELECT zk_lock('a');
TRUNCATE stock;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
-- EXPLAIN ANALYZE, EXECUTE, DO
PREPARE change AS UPDATE stock SET quantity = 0 WHERE item = 'screw';
BEGIN;
SELECT zk_lock('a');
DO $$BEGIN EXECUTE 'EXPLAIN ANALYZE EXECUTE change'; END$$;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
BEGIN;
SELECT zk_lock('a');
EXECUTE change;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
BEGIN;
SELECT zk_lock('a');
DO $$BEGIN UPDATE stock SET quantity = 0 WHERE item = 'screw'; END$$;
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
DEALLOCATE change;
-- a foreign table, which leaves no transaction id here
CREATE EXTENSION postgres_fdw;
CREATE SERVER regress_zk FOREIGN DATA WRAPPER postgres_fdw;
DO $$BEGIN
  EXECUTE format('ALTER SERVER regress_zk OPTIONS (host %L, port %L, dbname %L)',
    split_part(current_setting('unix_socket_directories'), ',', 1),
    current_setting('port'), current_database());
END$$;
CREATE USER MAPPING FOR CURRENT_USER SERVER regress_zk;
CREATE FOREIGN TABLE stock_elsewhere (item text, quantity integer)
  SERVER regress_zk OPTIONS (table_name 'stock');
BEGIN;
SELECT zk_lock('a');
SELECT quantity FROM stock_elsewhere WHERE item = 'bolt';
SELECT zk_unlock('a'), is_free('a');
ROLLBACK;
BEGIN;
SELECT zk_lock('a');
UPDATE stock_elsewhere SET quantity = 50 WHERE item = 'bolt';
SELECT pg_current_xact_id_if_assigned();
SELECT zk_unlock('a'), is_free('a');
COMMIT;
SELECT is_free('a'), quantity FROM stock WHERE item = 'bolt';

-- what was written in one transaction does not matter to the next
BEGIN;
INSERT INTO stock VALUES ('nut', 1);
ROLLBACK AND CHAIN;
SELECT zk_lock('a');
SELECT zk_unlock('a'), is_free('a');
COMMIT;

-- in a savepoint
BEGIN;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_unlock('a'), is_free('a');
RELEASE s;
SELECT zk_unlock('a'), is_free('a');
COMMIT;
SELECT is_free('a');

SELECT dblink_disconnect('other');
DROP FOREIGN TABLE stock_elsewhere;
DROP USER MAPPING FOR CURRENT_USER SERVER regress_zk;
DROP SERVER regress_zk;
DROP EXTENSION postgres_fdw;
DROP FUNCTION is_free;
DROP EXTENSION dblink;
DROP TABLE stock;
SELECT count(*) AS held FROM zk_locks;
