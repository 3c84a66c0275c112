/*
 * shop.h: a customer of the demo's shops, for the rivals in C.
 */
#ifndef SHOP_H
#define SHOP_H

#include <libpq-fe.h>

#include "rival.h"

/*
 * Customers take turns with the shops that there are.  There, "sell" is
 * prepared.
 */
static inline PGconn *
connect_to_shop(int number)
{
	char		conninfo[256];
	const char *port = getenv("BENCH_SHOPS");	/* port,port */
	PGconn	   *shop;
	PGresult   *res;

	if (number % 2 == 1)
		port = strchr(port, ',') + 1;
	snprintf(conninfo, sizeof(conninfo), "host=127.0.0.1 port=%d user=shop dbname=shop",
			 atoi(port));
	shop = PQconnectdb(conninfo);
	if (PQstatus(shop) != CONNECTION_OK)
		die("could not connect", PQerrorMessage(shop));
	res = PQprepare(shop, "sell", "CALL sell('lamp')", 0, NULL);
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		die("could not prepare", PQerrorMessage(shop));
	PQclear(res);
	return shop;
}

#endif
