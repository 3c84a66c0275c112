-- What the demo adds to a shop: what it draws its picture from, and the lock of
-- its comparison.

-- What "watch.pgbench" notes, for the picture.
CREATE UNLOGGED TABLE queue_seen (
	seen	timestamptz NOT NULL,
	waiting	integer NOT NULL
);

-- The lock of the comparison, taken beside the transaction that sells: by another
-- connection of the same customer, which knows nothing of that transaction.
CREATE EXTENSION dblink;
CREATE FUNCTION beside(command text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF dblink_get_connections() IS NULL THEN
		PERFORM dblink_connect_u('beside', current_setting('shop.beside'));
	END IF;
	PERFORM FROM dblink('beside', command) AS done (done text);
END $$;

CREATE FUNCTION lock_outside(name text) RETURNS void
LANGUAGE sql AS $$
	SELECT beside(format('SELECT zk_lock(%L, session => true)::text', name))
$$;

CREATE FUNCTION unlock_outside(name text) RETURNS void
LANGUAGE sql AS $$
	SELECT beside(format('SELECT zk_unlock(%L)::text', name))
$$;

GRANT EXECUTE ON FUNCTION dblink_connect_u(text, text) TO shop;
SELECT format('ALTER DATABASE %I SET shop.beside = %L', current_database(),
	format('host=%s port=%s dbname=%s user=shop',
		:'socket_directory', current_setting('port'), current_database())) \gexec
