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
