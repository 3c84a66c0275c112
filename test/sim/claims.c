/*-------------------------------------------------------------------------
 *
 * claims.c
 *		The claims of a schedule: the tokens that clients have, and what is
 *		true of the claims behind them.
 *
 * Nobody is told when a claim ends by itself.  So there are two bounds of the
 * machine's clock: until "lasts_until" it goes on, whatever happens, unless it
 * is ended or lost; from "over_at" on nobody may use or renew it.  Between
 * them either may be true.
 *
 * While a claim goes on nobody else has the lock.  Each successful renewal,
 * and each commit under it, proves that for the time since it was proved last,
 * and is compared with the sections of others as a section of the claim's.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/claims.c
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "workload.h"

#define MAX_CLAIMS		1024
#define MAX_PENDING		16

/* A claim that is over is gone so long after that, without faults. */
#define STRANDED_US		1000000

/* A client knows this many of the latest claims. */
#define KNOWN_CLAIMS	6

typedef enum ClaimState
{
	CLAIM_ASKED,				/* its transaction has not ended */
	CLAIM_LIVE,
	CLAIM_GONE					/* rolled back, or gone with the instance */
} ClaimState;

typedef struct Claim
{
	ClaimState	state;
	char		token[80];
	int			client;			/* that has taken it */
	int			name;
	int			instance;
	int64_t		ttl_us;
	int64_t		from;			/* since then the lock is held */
	int64_t		session;		/* in which it is held */
	int64_t		proved_at;		/* until then, nobody else has had it */
	int64_t		lasts_until;	/* of the machine's clock */
	int64_t		over_at;		/* the same */
	bool		beginning;		/* its commit is under way */
	bool		ended;			/* by its token */
	bool		lost;
	int			enders;			/* who has ended it, perhaps */
	int			renewers;		/* calls that are under way */
} Claim;

/* What a transaction does to a claim when it commits. */
typedef struct Pending
{
	int			claim;
	int			level;			/* of savepoints */
	bool		ends;			/* else it begins */
} Pending;

typedef struct ClaimClient
{
	Pending		pending[MAX_PENDING];
	int			npending;
	int			latest;			/* the claim that it has taken last, or -1 */
	int			taking;			/* 1 + the instance in which it takes one, or 0 */

	/* the call under way */
	bool		calls;
	SimClaimCall call;
	int			claim;
	int64_t		at;				/* true time */
	int64_t		boottime;
	bool		failed;			/* the last one has, ... */
	bool		refused;		/* ... since the claim had ended */
	bool		gone;			/* the claim had ended when the call began, */
	bool		asked;			/* or was another's whose COMMIT was not
								 * over */
}			ClaimClient;

static Claim claims[MAX_CLAIMS];
static int	nclaims;
static int	latest[SIM_MAX_NAMES];	/* claim of a name, plus 1 */
static ClaimClient clients[MAX_CLIENTS];

void
claims_begin(void)
{
	nclaims = 0;
	memset(latest, 0, sizeof(latest));
	memset(clients, 0, sizeof(clients));
	for (int i = 0; i < MAX_CLIENTS; i++)
		clients[i].latest = -1;
}

const char *
claims_token(int claim)
{
	return claims[claim].token;
}

int64_t
claims_ttl(int claim)
{
	return claims[claim].ttl_us;
}

/* The claim that a client has taken last, or -1. */
int
claims_own(int client)
{
	return clients[client].latest;
}

/* One of the latest claims, of this instance mostly; or -1. */
int
claims_choose(int instance)
{
	int			known = nclaims < KNOWN_CLAIMS ? nclaims : KNOWN_CLAIMS;

	for (int i = 0; i < 4 && known > 0; i++)
	{
		int			claim = nclaims - 1 - sim_below(known);

		if (claims[claim].instance == instance || sim_chance(20000))
			return claim;
	}
	return -1;
}

bool
claims_have_room(void)
{
	return nclaims < MAX_CLAIMS;
}

static int64_t
clock_of(const Claim *claim)
{
	return sim_boottime(instance_at(claim->instance));
}

/* Can nobody use it any more? */
static bool
is_gone(const Claim *claim)
{
	return claim->state == CLAIM_GONE || claim->ended ||
		(claim->state == CLAIM_LIVE && !claim->beginning &&
		 claim->renewers == 0 && clock_of(claim) >= claim->over_at);
}

/* Can any holder of the token use it, whatever happens? */
static bool
is_live(const Claim *claim)
{
	return claim->state == CLAIM_LIVE && !claim->beginning && !claim->ended &&
		!claim->lost && claim->enders == 0 && clock_of(claim) < claim->lasts_until;
}

/* Is the lock kept from others by a claim? */
bool
claims_hold(int name)
{
	const Claim *claim = latest[name] > 0 ? &claims[latest[name] - 1] : NULL;

	return claim != NULL && !claim->lost && !is_gone(claim);
}

/* Since when has nobody else had the lock? */
int64_t
claims_proved_at(int claim)
{
	return claims[claim].proved_at;
}

void
claims_prove(int claim, int64_t at)
{
	if (claims[claim].proved_at < at)
		claims[claim].proved_at = at;
}

int64_t
claims_since(int claim)
{
	return claims[claim].from;
}

int64_t
claims_session(int claim)
{
	return claims[claim].session;
}

/*
 * May the instance have as many claims as it has room for, without the one that
 * a client takes?
 */
bool
claims_may_fill(int instance)
{
	int			n = 0;

	for (int i = 0; i < nclaims; i++)
		n += claims[i].instance == instance &&
			claims[i].state != CLAIM_GONE;
	for (int i = 0; i < MAX_CLIENTS; i++)
		n += clients[i].taking == instance + 1;
	return n > workload_max_claims();
}

/*
 * How long an instance that has no lease may need for one: an answer, or, if
 * that may take longer than a lone proof counts, four, the second one T/4
 * behind the first (lease.c).
 */
static int64_t
lease_takes_us(void)
{
	int64_t		answer_us = check_grace_us();
	int64_t		timeout_us = workload_timeout_ms() * INT64_C(1000);

	return answer_us <= timeout_us / 50 ? answer_us :
		4 * answer_us + timeout_us / 3;
}

/*
 * Does the client's last call, which has failed, explain this error?  An
 * instance that has crashed is another one.  A ttl may be over before there is
 * a lease.
 */
bool
claims_explain(int number, const char *sqlstate)
{
	ClaimClient *client = &clients[number];

	if (!client->failed)
		return false;
	client->failed = false;
	if (strcmp(sqlstate, "57P03") == 0)
		return sim_now() - client->at <= lease_takes_us();
	return strcmp(sqlstate, "40001") == 0 ? client->refused :
		strcmp(sqlstate, "55000") == 0 &&
		(claims[client->claim].instance != instance_number(sim_instance()) ||
		 claims[client->claim].state == CLAIM_GONE);
}

static void
add_pending(int number, int claim, bool ends)
{
	ClaimClient *client = &clients[number];

	if (client->npending == MAX_PENDING)
		sim_lacks("that many claims in a transaction");
	client->pending[client->npending++] = (Pending)
	{
		.claim = claim,.level = check_level(number),.ends = ends
	};
}

static Pending *
find_pending(int number, int claim, bool ends)
{
	ClaimClient *client = &clients[number];

	for (int i = 0; i < client->npending; i++)
		if (client->pending[i].claim == claim && client->pending[i].ends == ends)
			return &client->pending[i];
	return NULL;
}

/* A client takes a claim, or that has ended. */
void
check_claim_taken(int number, bool begins)
{
	clients[number].taking = begins ? instance_number(sim_instance()) + 1 : 0;
}

/* A client has got a token for the lock that it has acquired last. */
void
check_claim_given(int number, int name, int64_t ttl_us, const char *token)
{
	Claim	   *claim = &claims[nclaims];

	memset(claim, 0, sizeof(*claim));
	snprintf(claim->token, sizeof(claim->token), "%s", token);
	claim->client = number;
	claim->name = name;
	claim->instance = instance_number(sim_instance());
	claim->ttl_us = ttl_us;
	claim->from = claim->proved_at = check_mark_claim(number, name, nclaims,
															&claim->session);
	latest[name] = nclaims + 1;
	clients[number].latest = nclaims;
	add_pending(number, nclaims, false);
	totals.claims++;
	sim_trace("claim %d of %d", nclaims, name);
	nclaims++;
}

void
check_claim_call(int number, int claim, SimClaimCall call)
{
	ClaimClient *client = &clients[number];

	client->calls = true;
	client->failed = false;
	client->call = call;
	client->claim = claim;
	client->at = sim_now();
	client->boottime = clock_of(&claims[claim]);
	client->gone = is_gone(&claims[claim]);
	client->asked = claims[claim].client != number &&
		(claims[claim].state == CLAIM_ASKED || claims[claim].beginning);
	if (call == CLAIM_RENEW)
		claims[claim].renewers++;
	if (call == CLAIM_END)
		claims[claim].enders++;
	sim_trace("%s claim %d", call == CLAIM_RENEW ? "renews" :
			  call == CLAIM_USE ? "uses" : "ends", claim);
}

/* The call is over, whatever has become of it. */
static Claim *
end_call(int number)
{
	ClaimClient *client = &clients[number];
	Claim	   *claim = &claims[client->claim];

	client->calls = false;
	if (client->call == CLAIM_RENEW)
	{
		int64_t		over_at = clock_of(claim) + claim->ttl_us;

		claim->renewers--;
		if (over_at > claim->over_at)
			claim->over_at = over_at;
	}
	return claim;
}

/* The call has succeeded: so the claim goes on. */
static void
check_success(int number, const Claim *claim)
{
	const		ClaimClient *client = &clients[number];

	if (client->gone)
		sim_violation("claims", "client %d: claim %d had ended",
					  number, client->claim);
	if (claim->state == CLAIM_ASKED && claim->client != number)
		sim_violation("claims", "client %d: claim %d has not begun",
					  number, client->claim);
	if (claim->instance != instance_number(sim_instance()))
		sim_violation("claims", "client %d: claim %d is another instance's",
					  number, client->claim);
}

/* A claim that goes on has been said to have ended. */
static void
check_refusal(int number, const Claim *claim)
{
	sim_trace("claim %d has ended", clients[number].claim);
	if (claim->instance == instance_number(sim_instance()) && is_live(claim) &&
		!clients[number].asked)
		sim_violation("claims", "client %d: claim %d goes on",
					  number, clients[number].claim);
}

static void
renewed(int number, Claim *claim)
{
	const		ClaimClient *client = &clients[number];

	if (claim->state != CLAIM_LIVE)
		return;
	if (client->boottime + claim->ttl_us > claim->lasts_until)
		claim->lasts_until = client->boottime + claim->ttl_us;
	if (client->at > claim->proved_at)
		check_section_of_claim(number, claim->name, client->claim, client->at);
}

/* The transaction ends the claim now, or, unless "at_once", at its COMMIT. */
static void
ended(int number, Claim *claim, bool at_once)
{
	int			which = clients[number].claim;

	if (claim->state == CLAIM_ASKED || !at_once)
	{
		check_used(number, claim->name, which);
		if (find_pending(number, which, true) == NULL)
			add_pending(number, which, true);
		else
			claim->enders--;
		return;
	}
	claim->enders--;
	claim->ended = true;
}

/* The call has returned; "at_once": what it ends has ended. */
void
check_claim_done(int number, bool ok, bool at_once)
{
	Claim	   *claim;
	ClaimClient *client = &clients[number];

	if (client->call == CLAIM_END && !ok)
		claims[client->claim].enders--;
	claim = end_call(number);
	if (!ok)
	{
		check_refusal(number, claim);
		return;
	}
	check_success(number, claim);
	totals.claim_calls++;
	switch (client->call)
	{
		case CLAIM_RENEW:
			renewed(number, claim);
			break;
		case CLAIM_USE:
			check_used(number, claim->name, client->claim);
			break;
		case CLAIM_END:
			ended(number, claim, at_once);
			break;
	}
}

/* The call has failed; "refused": because the claim has ended. */
void
check_claim_failed(int number, bool refused)
{
	Claim	   *claim = end_call(number);

	clients[number].failed = true;
	clients[number].refused = refused;
	if (refused)
		check_refusal(number, claim);
}

/* The view shows a claim that was over so long ago. */
void
check_claim_shown(int users, int64_t over_us)
{
	if (users == 0 && over_us > STRANDED_US + check_grace_us() &&
		check_is_undisturbed(over_us))
		sim_violation("claims", "a claim is there %" PRId64
					  " us after it was over", over_us);
}

/*
 * Transactions.
 */
static void
drop_pending(int number, int i)
{
	ClaimClient *client = &clients[number];
	Claim	   *claim = &claims[client->pending[i].claim];

	if (client->pending[i].ends)
		claim->enders--;
	else
		claim->state = CLAIM_GONE;
	client->pending[i] = client->pending[--client->npending];
}

/* Rolled back to a savepoint of this level. */
void
claims_rolled_back_to(int number, int level)
{
	for (int i = clients[number].npending - 1; i >= 0; i--)
		if (clients[number].pending[i].level >= level)
			drop_pending(number, i);
}

/* A savepoint has been released: this is the level now. */
void
claims_released(int number, int level)
{
	ClaimClient *client = &clients[number];

	for (int i = 0; i < client->npending; i++)
		if (client->pending[i].level > level)
			client->pending[i].level = level;
}

void
claims_rolled_back(int number)
{
	while (clients[number].npending > 0)
		drop_pending(number, clients[number].npending - 1);
}

/* The commit record is written. */
void
claims_committed(int number)
{
	ClaimClient *client = &clients[number];

	for (int i = 0; i < client->npending; i++)
	{
		Claim	   *claim = &claims[client->pending[i].claim];

		if (client->pending[i].ends)
			continue;
		if (find_pending(number, client->pending[i].claim, true) != NULL)
		{
			claim->state = CLAIM_GONE;
			continue;
		}
		claim->state = CLAIM_LIVE;
		claim->beginning = true;
		claim->lasts_until = clock_of(claim) + claim->ttl_us;
		claim->over_at = 0;
	}
}

/* The transaction is over, for others, too. */
void
check_claims_settled(int number)
{
	ClaimClient *client = &clients[number];

	for (int i = 0; i < client->npending; i++)
	{
		Claim	   *claim = &claims[client->pending[i].claim];

		if (client->pending[i].ends)
		{
			claim->enders--;
			claim->ended = true;
		}
		else if (claim->beginning)
		{
			int64_t		over_at = clock_of(claim) + claim->ttl_us;

			claim->beginning = false;
			if (over_at > claim->over_at)
				claim->over_at = over_at;
		}
	}
	client->npending = 0;
}

/* The process of the client is gone. */
void
claims_gone(int number)
{
	if (clients[number].calls)
		(void) end_call(number);
	claims_rolled_back(number);
	clients[number].latest = -1;
	clients[number].taking = 0;
}

/* The instance has crashed. */
void
claims_crashed(int instance)
{
	for (int i = 0; i < nclaims; i++)
		if (claims[i].instance == instance)
			claims[i].state = CLAIM_GONE;
}

/* The instance has lost the lock, as its worker knows. */
void
check_lost(int instance, const char *name)
{
	for (int i = 0; i < nclaims; i++)
		if (claims[i].instance == instance &&
			strcmp(workload_name(claims[i].name), name) == 0)
			claims[i].lost = true;
}
