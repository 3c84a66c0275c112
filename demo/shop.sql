-- A shop: it holds its own orders and reaches the stock by postgres_fdw.

CREATE EXTENSION zklock;
CREATE EXTENSION postgres_fdw;

CREATE TABLE orders (
	id		bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	item	text NOT NULL,
	placed	timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE SERVER warehouse FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '127.0.0.1', port :'warehouse_port', dbname 'warehouse');
CREATE SCHEMA warehouse;
CREATE FOREIGN TABLE warehouse.stock (item text, units integer)
	SERVER warehouse OPTIONS (schema_name 'public', table_name 'stock');

-- The role that sells: not a superuser, with only the privileges it needs.
CREATE ROLE shop LOGIN;
CREATE USER MAPPING FOR shop SERVER warehouse
	OPTIONS (user 'shop', password :'password');
GRANT USAGE ON SCHEMA warehouse TO shop;
GRANT SELECT, INSERT, UPDATE ON warehouse.stock TO shop;
GRANT INSERT ON orders TO shop;

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
