-- The warehouse: it holds the stock, and knows nothing of locks.

-- A sale has the number after the highest one that it has read: two with the same
-- number did not see each other.
CREATE TABLE sale (
	number	integer NOT NULL,
	client	text NOT NULL
);

-- The highest fencing token that has been seen.
CREATE TABLE fence (token bigint NOT NULL);

-- While somebody has the lock 1, COMMIT of client a does not come to its end.
CREATE FUNCTION hold_up() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(1);
	RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER hold_up AFTER INSERT ON sale
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	WHEN (NEW.client = 'a') EXECUTE FUNCTION hold_up();

GRANT SELECT, INSERT ON sale TO sale;
GRANT SELECT, UPDATE ON fence TO sale;
