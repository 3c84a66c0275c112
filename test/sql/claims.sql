-- Claims: locks that belong to whoever has a token.

-- another session of this server
CREATE EXTENSION dblink;
SELECT dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
         split_part(current_setting('unix_socket_directories'), ',', 1),
         current_setting('port'), current_database(), current_user));
CREATE FUNCTION other(statement text) RETURNS text LANGUAGE sql AS
  $$SELECT * FROM dblink('other', statement) AS r (result text)$$;
CREATE FUNCTION is_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT other(format('SELECT zk_try_lock(%L)', name))::boolean$$;
CREATE FUNCTION becomes_free(name text) RETURNS boolean LANGUAGE sql AS
  $$SELECT other(format('SELECT zk_try_lock(%L, ''30 s'')', name))::boolean$$;
CREATE TABLE done (what text);

-- a claim outlives its transaction
SELECT zk_claim('a', '1 h') AS a \gset
SELECT :'a' ~ '^[0-9a-f]{16}/[0-9a-f]{32}$' AS form;
SELECT is_free('a');
SELECT name, mode, scope, granted, lost, pid, datname FROM zk_locks;
SELECT name, ttl, users, expires_at - last_renewal AS lasts,
       last_renewal = claim_start AS fresh, path
  FROM zk_claims;
SELECT zk_try_lock('a'), zk_try_claim('a', '1 h'), zk_try_lock('a', shared => true);
SELECT zk_unlock('a');

-- renewed, by any session, and in a transaction that is rolled back
SELECT other(format('SELECT zk_renew_claim(%L)', :'a'));
SELECT last_renewal > claim_start AS renewed, ttl FROM zk_claims;
BEGIN;
SELECT zk_renew_claim(:'a', '2 h');
ROLLBACK;
SELECT ttl, expires_at - last_renewal AS lasts FROM zk_claims;

-- ended, by any session
SELECT other(format('SELECT zk_end_claim(%L)', :'a'));
SELECT becomes_free('a');
SELECT zk_end_claim(:'a'), zk_renew_claim(:'a');
SELECT zk_use_claim(:'a');
SELECT count(*) FROM zk_claims;

-- used: one more holder, of the transaction
SELECT zk_claim('a', '1 h') AS a \gset
BEGIN;
SELECT zk_use_claim(:'a');
SELECT zk_use_claim(:'a');
SELECT scope, mode, granted, pid = pg_backend_pid() AS mine FROM zk_locks ORDER BY scope;
SELECT users FROM zk_claims;
SELECT zk_fencing_token('a') AS fencing_token \gset
SELECT fencing_token = :fencing_token AS same FROM zk_claims;
-- ... by several at a time
SELECT dblink_exec('other', 'BEGIN');
SELECT other(format('SELECT zk_use_claim(%L)', :'a'));
SELECT users FROM zk_claims;
SELECT dblink_exec('other', 'COMMIT');
SELECT users FROM zk_claims;
-- in which the lock is held, again and again, but not for the session
SELECT zk_lock('a'), zk_lock('a', shared => true), zk_try_lock('a');
SAVEPOINT s;
SELECT zk_lock('a', session => true);
ROLLBACK TO s;
SELECT zk_claim('a', '1 h');
ROLLBACK TO s;
-- what zk_unlock undoes is not the use
SELECT zk_unlock('a'), zk_unlock('a'), zk_unlock('a');
SELECT zk_unlock('a');
SELECT users FROM zk_claims;
COMMIT;
SELECT users, is_free('a') FROM zk_claims;

-- a use is given back with its savepoint
BEGIN;
SAVEPOINT s;
SELECT zk_use_claim(:'a');
SELECT users FROM zk_claims;
ROLLBACK TO s;
SELECT users FROM zk_claims;
SAVEPOINT s;
SELECT zk_use_claim(:'a');
RELEASE s;
SELECT users FROM zk_claims;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_unlock('a');
ROLLBACK TO s;
SELECT zk_unlock('a');
SELECT zk_unlock('a');
ROLLBACK;
SELECT users FROM zk_claims;

-- no PREPARE
BEGIN;
SELECT zk_use_claim(:'a');
PREPARE TRANSACTION 'p';
BEGIN;
SELECT zk_claim('b', '1 h') IS NOT NULL AS claimed;
PREPARE TRANSACTION 'p';
SELECT is_free('b');

-- ended while it is in use: nobody else before the users have ended
BEGIN;
SELECT zk_use_claim(:'a');
SELECT zk_end_claim(:'a');
SELECT count(*) FROM zk_claims;
SELECT scope FROM zk_locks;
SELECT is_free('a'), zk_renew_claim(:'a');
INSERT INTO done VALUES ('under an ended claim, but nobody else had the lock');
COMMIT;
SELECT becomes_free('a');

-- ended at COMMIT by a transaction that has changed something
SELECT zk_claim('a', '1 h') AS a \gset
BEGIN;
INSERT INTO done VALUES ('x');
SELECT zk_end_claim(:'a');
SELECT zk_end_claim(:'a');
SELECT users FROM zk_claims;
ROLLBACK;
SELECT users, zk_renew_claim(:'a') FROM zk_claims;
BEGIN;
SELECT zk_use_claim(:'a');
INSERT INTO done VALUES ('y');
SAVEPOINT s;
SELECT zk_end_claim(:'a');
ROLLBACK TO s;
COMMIT;
SELECT users, zk_renew_claim(:'a') FROM zk_claims;
BEGIN;
SAVEPOINT s;
SELECT zk_end_claim(:'a');
RELEASE s;
SELECT users, is_free('a') FROM zk_claims;
SELECT zk_lock('a');
SAVEPOINT s;
SELECT zk_unlock('a');
ROLLBACK TO s;
SELECT zk_unlock('a');
COMMIT;
SELECT count(*) FROM zk_claims;
SELECT becomes_free('a');

-- until COMMIT a claim is a hold, and its token is nobody else's
BEGIN;
SELECT zk_claim('a', '1 h') AS a \gset
SELECT scope, pid = pg_backend_pid() AS mine FROM zk_locks;
SELECT count(*) FROM zk_claims;
SELECT other(format('SELECT zk_renew_claim(%L)', :'a')),
       other(format('SELECT zk_end_claim(%L)', :'a'));
SELECT zk_use_claim(:'a'), zk_renew_claim(:'a', '3 h');
SELECT zk_lock('a');
SELECT zk_unlock('a');
SELECT zk_unlock('a');
COMMIT;
SELECT ttl, users FROM zk_claims;
SELECT zk_end_claim(:'a');
SELECT becomes_free('a');
-- rolled back, whole and in part
BEGIN;
SELECT zk_claim('a', '1 h') AS a \gset
ROLLBACK;
SELECT is_free('a'), zk_renew_claim(:'a');
BEGIN;
SAVEPOINT s;
SELECT zk_claim('a', '1 h') AS a \gset
ROLLBACK TO s;
SELECT becomes_free('a'), zk_renew_claim(:'a');
SAVEPOINT s;
SELECT zk_claim('a', '1 h') AS a \gset
RELEASE s;
SELECT zk_end_claim(:'a');
COMMIT;
SELECT becomes_free('a'), zk_renew_claim(:'a');

-- the name of an advisory lock of another database, in whose slot a session of
-- that one has had it
SET zklock.advisory_namespace = 'regress_zk';
SELECT zk_lock('advisory/regress_zk/42', session => true);
SELECT dblink_send_query('other', $$SELECT zk_claim('advisory/regress_zk/42', '1 h')$$);
DO $$BEGIN
  WHILE NOT EXISTS (SELECT FROM zk_locks WHERE NOT granted) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END$$;
SELECT zk_unlock('advisory/regress_zk/42');
SELECT token AS a FROM dblink_get_result('other') AS r (token text) \gset
SELECT count(*) FROM dblink_get_result('other') AS r (token text);
BEGIN;
SELECT zk_use_claim(:'a');
SAVEPOINT s;
SELECT zk_lock('advisory/regress_zk/42');
ROLLBACK TO s;
COMMIT;
RESET zklock.advisory_namespace;
BEGIN;
SELECT zk_use_claim(:'a'), zk_lock('advisory/regress_zk/42');
SELECT count(*) AS advisory FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;
SELECT zk_end_claim(:'a');
SELECT becomes_free('advisory/regress_zk/42');

-- the ttl: over, with nobody there
SELECT zk_stat_reset();
SELECT zk_claim('a', '1 h') AS a \gset
SELECT zk_renew_claim(:'a', '1 s');
SELECT becomes_free('a');
SELECT zk_renew_claim(:'a'), (SELECT count(*) FROM zk_claims);
-- ... and while the claim is in use
SELECT zk_claim('a', '1 h') AS a \gset
BEGIN;
SELECT zk_use_claim(:'a');
SELECT zk_renew_claim(:'a', '1 s');
SELECT pg_sleep(extract(epoch FROM expires_at - clock_timestamp()) + 0.01) FROM zk_claims;
SELECT zk_renew_claim(:'a'), is_free('a');
SELECT users, expires_at < clock_timestamp() AS over FROM zk_claims;
SAVEPOINT s;
SELECT other(format('SELECT zk_use_claim(%L)', :'a'));
ROLLBACK TO s;
INSERT INTO done VALUES ('under a claim that was over, but nobody else had the lock');
COMMIT;
SELECT count(*) FROM zk_claims;
SELECT becomes_free('a');

SELECT claims, claims_expired FROM zk_stat;

-- zk_terminate_holders does not end a claim
SELECT zk_claim('a', '1 h') AS a \gset
SELECT zk_terminate_holders('a');
SELECT zk_terminate_holders('b');
-- zk_cancel_holders does
SELECT claims, claims_expired FROM zk_stat;
SELECT zk_cancel_holders('a');
SELECT becomes_free('a'), zk_renew_claim(:'a');

-- what cannot be claimed
BEGIN;
SELECT zk_lock('a');
SELECT zk_claim('a', '1 h');
ROLLBACK;
BEGIN;
SELECT zk_acquire('claims/semaphore', 2);
SELECT zk_claim('claims/semaphore', '1 h');
ROLLBACK;
BEGIN;
SET LOCAL zklock.advisory_namespace = 'here';
SELECT zk_claim('advisory/here/17', '1 h');
ROLLBACK;
SELECT zk_claim(NULL, '1 h');
SELECT zk_claim('a', NULL);
SELECT zk_claim('a', '0.999999 s');
SELECT zk_claim('a', '1 day 0.000001 s');
SELECT zk_claim('a', '1 mon');
SELECT zk_claim('a', '-1 s');
SELECT zk_claim('', '1 s');
SELECT zk_claim('a', '1 s', '-1 s');

-- what is no token; none is in a message
SELECT zk_renew_claim(NULL);
SELECT zk_use_claim('');
SELECT zk_end_claim('0123456789abcdef/0123456789abcdef0123456789abcde');
SELECT zk_use_claim('0123456789abcdef/0123456789abcdef0123456789abcdef');
SELECT zk_renew_claim(regexp_replace(:'a', '.$', 'g'));
SELECT zk_renew_claim(:'a', '1 ms');

SELECT what FROM done ORDER BY 1;
SELECT count(*) FROM zk_claims;
SELECT count(*) FROM zk_locks;
SELECT dblink_disconnect('other');
DROP TABLE done;
DROP FUNCTION other, is_free, becomes_free;
DROP EXTENSION dblink CASCADE;
