-- The warehouse: it holds the stock and knows nothing of orders.
--
-- Every change of the stock is a row: +5000 came in, -1 went out.  The stock
-- of an item is the sum of its rows.  (demo/run --counter keeps it as one row
-- that every sale updates.)

CREATE TABLE stock (
	item	text NOT NULL,
	units	integer NOT NULL,
	booked	timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON stock (item) INCLUDE (units);

-- The shops log in as this role, over TCP, with a password of this run.
CREATE ROLE shop LOGIN PASSWORD :'password';
GRANT SELECT, INSERT, UPDATE ON stock TO shop;
