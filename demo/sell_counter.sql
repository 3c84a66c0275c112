CREATE OR REPLACE PROCEDURE sell(item text, INOUT sold boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM zk_lock('stock:' || item);      -- ours until COMMIT or ROLLBACK

    -- Check the stock: in the warehouse, through postgres_fdw.
    SELECT coalesce(sum(s.units), 0) > 0 INTO sold
      FROM warehouse.stock s WHERE s.item = sell.item;

    IF sold THEN
        -- Write the order: here, in the shop.
        INSERT INTO orders (item) VALUES (sell.item);
        -- Take one unit out: in the warehouse, whose stock is one row.
        UPDATE warehouse.stock s SET units = s.units - 1
         WHERE s.item = sell.item;
    END IF;
END $$;
