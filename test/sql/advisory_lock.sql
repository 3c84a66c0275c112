--
-- ADVISORY LOCKS
--
-- PostgreSQL's own test of advisory locks (src/test/regress/sql/advisory_lock.sql
-- of PostgreSQL 15), transcribed: the same questions in the same order, and the
-- same answers line by line.  What differs, and why:
--
-- * Locks have names, not keys: 1 becomes '1', (1, 1) becomes '1/1'.
-- * One function takes all kinds of locks: pg_advisory_xact_lock(k) becomes
--   zk_lock(k), "_shared" becomes shared => true, and without "xact" it is
--   session => true.  zk_unlock() needs no "_shared", as a lock that is held
--   has one mode.  So column headings differ.
-- * In pg_locks our locktype is userlock, a lock is of no database (that column
--   has the number of the root), classid and objid are a hash of the name, and
--   objsubid is 23115 for every lock.  The queries show the name instead of the
--   hash, which zk_locks tells.
-- * zk_unlock() undoes holds of the transaction too, if it has changed nothing:
--   four times t, where PostgreSQL says f with a WARNING.  The locks are taken
--   again, for the next question to have a point.
-- * The WARNING about a lock that is not held names the lock, not the mode.
--

BEGIN;

SELECT
	zk_lock('1'), zk_lock('2', shared => true),
	zk_lock('1/1'), zk_lock('2/2', shared => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";


-- zk_unlock_all() shouldn't release xact locks
SELECT zk_unlock_all();

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';


-- xact locks can be unlocked, other than in PostgreSQL
SELECT
	zk_unlock('1'), zk_unlock('2'),
	zk_unlock('1/1'), zk_unlock('2/2');

SELECT
	zk_lock('1'), zk_lock('2', shared => true),
	zk_lock('1/1'), zk_lock('2/2', shared => true);


-- automatically release xact locks at commit
COMMIT;

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';


BEGIN;

-- holding both session and xact locks on the same objects, xact first
SELECT
	zk_lock('1'), zk_lock('2', shared => true),
	zk_lock('1/1'), zk_lock('2/2', shared => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";

SELECT
	zk_lock('1', session => true), zk_lock('2', shared => true, session => true),
	zk_lock('1/1', session => true), zk_lock('2/2', shared => true, session => true);

ROLLBACK;

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";


-- unlocking session locks
SELECT
	zk_unlock('1'), zk_unlock('1'),
	zk_unlock('2'), zk_unlock('2'),
	zk_unlock('1/1'), zk_unlock('1/1'),
	zk_unlock('2/2'), zk_unlock('2/2');

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';


BEGIN;

-- holding both session and xact locks on the same objects, session first
SELECT
	zk_lock('1', session => true), zk_lock('2', shared => true, session => true),
	zk_lock('1/1', session => true), zk_lock('2/2', shared => true, session => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";

SELECT
	zk_lock('1'), zk_lock('2', shared => true),
	zk_lock('1/1'), zk_lock('2/2', shared => true);

ROLLBACK;

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";


-- releasing all session locks
SELECT zk_unlock_all();

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';


BEGIN;

-- grabbing txn locks multiple times

SELECT
	zk_lock('1'), zk_lock('1'),
	zk_lock('2', shared => true), zk_lock('2', shared => true),
	zk_lock('1/1'), zk_lock('1/1'),
	zk_lock('2/2', shared => true), zk_lock('2/2', shared => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";

COMMIT;

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';

-- grabbing session locks multiple times

SELECT
	zk_lock('1', session => true), zk_lock('1', session => true),
	zk_lock('2', shared => true, session => true), zk_lock('2', shared => true, session => true),
	zk_lock('1/1', session => true), zk_lock('1/1', session => true),
	zk_lock('2/2', shared => true, session => true), zk_lock('2/2', shared => true, session => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";

SELECT
	zk_unlock('1'), zk_unlock('1'),
	zk_unlock('2'), zk_unlock('2'),
	zk_unlock('1/1'), zk_unlock('1/1'),
	zk_unlock('2/2'), zk_unlock('2/2');

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';

-- .. and releasing them all at once

SELECT
	zk_lock('1', session => true), zk_lock('1', session => true),
	zk_lock('2', shared => true, session => true), zk_lock('2', shared => true, session => true),
	zk_lock('1/1', session => true), zk_lock('1/1', session => true),
	zk_lock('2/2', shared => true, session => true), zk_lock('2/2', shared => true, session => true);

SELECT locktype, z.name, objsubid, l.mode, l.granted
	FROM pg_locks l LEFT JOIN zk_locks z USING (pid, classid, objid, objsubid)
	WHERE locktype = 'userlock' AND objsubid = 23115
	ORDER BY z.name COLLATE "C";

SELECT zk_unlock_all();

SELECT count(*) FROM pg_locks WHERE locktype = 'userlock';
