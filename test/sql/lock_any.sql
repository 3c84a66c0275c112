-- zk_lock_any and zk_try_lock_any: the first of several locks that is free.
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION other(statement text) RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink('other', statement) AS r (result text)$$;
-- which of the locks another session could have
CREATE FUNCTION free(VARIADIC names text[]) RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(n, ' ' ORDER BY n), 'none') FROM unnest(names) n
     WHERE other(format('SELECT zk_try_lock(%L)', n))::boolean$$;
CREATE FUNCTION held() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(concat_ws(' ', name, mode, scope), ', ' ORDER BY name), 'nothing')
      FROM zk_locks WHERE pid = pg_backend_pid()$$;
-- heavyweight locks of this session: no more than locks that it holds
CREATE FUNCTION heavyweight() RETURNS bigint LANGUAGE sql AS
  $$SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid()$$;

-- the same by number: which one is had of several that are free is not said
CREATE FUNCTION nfree(VARIADIC names text[]) RETURNS bigint LANGUAGE sql AS
  $$SELECT count(*) FROM unnest(names) n
     WHERE other(format('SELECT zk_try_lock(%L)', n))::boolean$$;
CREATE FUNCTION nheld() RETURNS text LANGUAGE sql AS
  $$SELECT coalesce(string_agg(n || ' ' || kind, ', ' ORDER BY kind), 'nothing')
      FROM (SELECT count(*) AS n, concat_ws(' ', mode, scope) AS kind FROM zk_locks
             WHERE pid = pg_backend_pid() GROUP BY kind) h$$;

-- one of them, for the statement, or longer
SELECT zk_lock_any('{b,a}') = ANY ('{a,b}') AS one;
SELECT held(), free('a', 'b');
BEGIN;
SELECT zk_lock_any('{c,a,b}') = ANY ('{a,b,c}') AS one;
SELECT nheld(), heavyweight(), nfree('a', 'b', 'c');
SELECT bool_and(zk_fencing_token(name) > 0) AS token FROM zk_locks;
SELECT zk_try_lock_any('{c,a,b}') = ANY ('{a,b,c}') AS one, nheld(), nfree('a', 'b', 'c');
COMMIT;
SELECT held(), free('a', 'b', 'c');
BEGIN;
SELECT zk_lock_any('{a,b}', shared => true) = ANY ('{a,b}') AS one,
       zk_try_lock_any('{c,d}', shared => true) = ANY ('{c,d}') AS one;
SELECT nheld(), heavyweight(), nfree('a', 'b', 'c', 'd');
SELECT other(format($$SELECT zk_try_lock(%L, shared => true)$$, name)) AS shared FROM zk_locks;
ROLLBACK;
SELECT zk_lock_any('{a,b}', session => true) = ANY ('{a,b}') AS one, nheld(), nfree('a', 'b');
BEGIN;
SELECT zk_try_lock_any('{a,b}', session => true) = ANY ('{a,b}') AS one, nheld(), heavyweight();
ROLLBACK;
SELECT held(), heavyweight(), free('a', 'b');
SELECT zk_unlock_all(), held(), heavyweight();

-- a savepoint gives it back
BEGIN;
SAVEPOINT s;
SELECT zk_lock_any('{a,b}') = ANY ('{a,b}') AS one, nheld();
ROLLBACK TO s;
SELECT held(), heavyweight(), free('a', 'b');
COMMIT;

-- names that come twice, and other characters than the path has
BEGIN;
SELECT zk_lock_any('{a,a,a}'), zk_lock_any('{a,a,"b c/%",a,"b c/%"}');
SELECT held();
COMMIT;

-- locks that this session holds are not free
BEGIN;
SELECT zk_lock('a'), zk_lock('b', shared => true);
SELECT zk_lock_any('{a,b,c}'), zk_try_lock_any('{a,b,d}', shared => true), zk_try_lock_any('{a,b,c,d}') AS no;
SAVEPOINT s;
SELECT zk_lock_any('{a,b,c,d}');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT zk_lock_any('{d}');
ROLLBACK TO s;
SELECT held();
COMMIT;

-- others hold some, or all
SELECT dblink_exec('other', 'BEGIN');
SELECT other($$SELECT zk_lock('a')$$), other($$SELECT zk_lock('b', shared => true)$$);
BEGIN;
SELECT zk_lock_any('{a,b,c}'), held(), heavyweight();
ROLLBACK;
SELECT zk_try_lock_any('{a,b,c}') AS c, zk_try_lock_any('{a,b}') AS no,
       zk_try_lock_any('{a,b}', '20ms') AS no, zk_try_lock_any('{a,b}', shared => true) AS b,
       zk_try_lock_any('{a}') AS no;
SELECT held(), heavyweight();
SELECT zk_lock_any('{a,b}', '20ms');
\echo :SQLSTATE
SELECT zk_lock_any('{a,b}', '0');
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT zk_lock_any('{a}', '20ms');
SET lock_timeout = '20ms';
SELECT zk_lock_any('{a,b}', '1 hour');
\set VERBOSITY default
SELECT zk_try_lock_any('{a,b}', NULL) AS no;
SHOW lock_timeout;
RESET lock_timeout;
-- the wait must have begun, even where the statement is compiled first
SET statement_timeout = '1s';
SELECT zk_lock_any('{a,b}', session => true);
\echo :SQLSTATE
RESET statement_timeout;
DO $$
BEGIN
  PERFORM zk_lock('c');
  BEGIN
    PERFORM zk_lock_any('{a,b,c}', '20ms');
  EXCEPTION WHEN lock_not_available THEN
    RAISE NOTICE '%', SQLERRM;
  END;
  RAISE NOTICE '%, %', held(), heavyweight();
END$$;
SELECT held(), heavyweight();
SELECT dblink_exec('other', 'COMMIT');
SELECT zk_lock_any('{a,b}', '1 min') = ANY ('{a,b}') AS one;

-- arguments
SELECT zk_lock_any(NULL);
\echo :SQLSTATE
SELECT zk_lock_any('{}');
\echo :SQLSTATE
SELECT zk_try_lock_any('{}') AS no;
SELECT zk_lock_any('{a,NULL,b}');
\echo :SQLSTATE
SELECT zk_lock_any('{a,"",b}');
\echo :SQLSTATE
SELECT zk_lock_any('{a,b}', '-1ms');
\echo :SQLSTATE
SELECT zk_lock_any('{a,b}', shared => NULL);
\echo :SQLSTATE
SELECT zk_acquire('permits', 1, session => true);
BEGIN;
SELECT zk_lock('a');
SELECT zk_try_lock_any('{a,permits}');
\echo :SQLSTATE
ROLLBACK;
SELECT zk_unlock('permits');
-- at most 500 names
BEGIN;
SELECT zk_lock_any(array_agg('lock_any/' || i % 500)) ~ '^lock_any/' AS one FROM generate_series(1, 1200) i;
SELECT zk_try_lock_any(array_agg('lock_any/' || i % 500)) ~ '^lock_any/' AS one FROM generate_series(1, 1200) i;
SELECT nheld(), heavyweight();
COMMIT;
SELECT zk_lock_any(array_agg('lock_any/' || i)) FROM generate_series(1, 501) i;
\echo :SQLSTATE
SELECT zk_lock_any(array_agg('lock_any/' || i) || ''::text) FROM generate_series(1, 501) i;
CREATE TEMP TABLE long AS SELECT array_fill('lock_any/1'::text, '{1000000}') || ''::text AS names;
SET statement_timeout = '20ms';
SELECT zk_lock_any(names) FROM long;
RESET statement_timeout;

SELECT dblink_disconnect('other');
DROP FUNCTION held, nheld, heavyweight, free, nfree, other;
DROP EXTENSION dblink;
SELECT count(*) AS held FROM zk_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
