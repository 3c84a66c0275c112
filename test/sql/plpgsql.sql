-- Locks in functions, procedures and DO blocks.
CREATE TABLE item (id text PRIMARY KEY, stock integer NOT NULL);
INSERT INTO item VALUES ('bolt', 3);
CREATE FUNCTION held() RETURNS text[] LANGUAGE sql AS
  $$SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM zk_locks$$;

-- a function: the lock outlives the call
CREATE FUNCTION take_one(what text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  remaining integer;
BEGIN
  PERFORM zk_lock('item/' || what);
  UPDATE item SET stock = stock - 1 WHERE id = what AND stock > 0
    RETURNING stock INTO remaining;
  RETURN remaining;
END$$;
SELECT take_one('bolt');
SELECT held();
BEGIN;
SELECT take_one('bolt');
SELECT held();
ROLLBACK;
SELECT stock, held() FROM item;

-- a procedure: each COMMIT and each ROLLBACK ends the locks before it
CREATE PROCEDURE sell(what text) LANGUAGE plpgsql AS $$
DECLARE
  remaining integer;
BEGIN
  LOOP
    PERFORM zk_lock('item/' || what);
    SELECT stock INTO remaining FROM item WHERE id = what;
    IF remaining = 0 THEN
      PERFORM zk_lock('audit');
      RAISE NOTICE 'sold out, held: %', held();
      ROLLBACK;
      RAISE NOTICE 'after ROLLBACK: %', held();
      EXIT;
    END IF;
    UPDATE item SET stock = stock - 1 WHERE id = what;
    RAISE NOTICE 'sold one of %, held: %', remaining, held();
    COMMIT;
    RAISE NOTICE 'after COMMIT: %', held();
  END LOOP;
  PERFORM zk_lock('report');
END$$;
CALL sell('bolt');
SELECT stock, held() FROM item;

-- DO with COMMIT, and a lock over both of its transactions is none
DO $$
BEGIN
  PERFORM zk_lock('a');
  COMMIT;
  RAISE NOTICE 'zk_unlock: %', zk_unlock('a');
  PERFORM zk_lock('b');
END$$;
SELECT held();

-- an error in a procedure ends the locks of its last transaction, too
CREATE PROCEDURE fail() LANGUAGE plpgsql AS $$
BEGIN
  PERFORM zk_lock('a');
  UPDATE item SET stock = 7;
  COMMIT;
  PERFORM zk_lock('b');
  UPDATE item SET stock = 8;
  RAISE EXCEPTION 'out of paper';
END$$;
CALL fail();
SELECT stock, held() FROM item;

-- a procedure called in a transaction block cannot end it
BEGIN;
SELECT zk_lock('a');
CALL fail();
SELECT held();
ROLLBACK;
SELECT held();

-- a loop that waits its turn for each item, giving the last one back
BEGIN;
DO $$
BEGIN
  FOR i IN 1..3 LOOP
    PERFORM zk_lock('item/' || i);
    RAISE NOTICE '%', held();
    PERFORM zk_unlock('item/' || i);
  END LOOP;
END$$;
SELECT held();
COMMIT;

-- a lock that is taken by a trigger, at COMMIT
CREATE FUNCTION lock_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM zk_lock('item/' || NEW.id);
  RAISE NOTICE 'held: %', held();
  RETURN NULL;
END$$;
CREATE CONSTRAINT TRIGGER lock_item AFTER INSERT ON item
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lock_item();
BEGIN;
INSERT INTO item VALUES ('nut', 1);
SELECT held();
COMMIT;
SELECT held();

-- a cursor that is held over COMMIT holds rows, not locks
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT zk_try_lock('item/' || id) FROM item;
SELECT held();
COMMIT;
SELECT held();
FETCH ALL FROM c;
CLOSE c;

DROP PROCEDURE fail, sell;
DROP FUNCTION take_one;
DROP TABLE item;
DROP FUNCTION lock_item, held;
SELECT count(*) AS held FROM zk_locks;
