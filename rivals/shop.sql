-- A shop, which reaches the warehouse by postgres_fdw.

CREATE EXTENSION zklock;
CREATE EXTENSION postgres_fdw;
CREATE SERVER warehouse FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '127.0.0.1', port ':warehouse_port', dbname ':stock');
CREATE FOREIGN TABLE sale (number integer, client text) SERVER warehouse;
CREATE FOREIGN TABLE fence (token bigint) SERVER warehouse;

CREATE ROLE sale LOGIN PASSWORD :password;
CREATE USER MAPPING FOR sale SERVER warehouse OPTIONS (user 'sale', password :password);
GRANT SELECT, INSERT ON sale TO sale;
GRANT SELECT, UPDATE ON fence TO sale;
