/*-------------------------------------------------------------------------
 *
 * dynahash.c
 *		Stand-ins for hash tables, of a process or in shared memory.
 *
 * The functions of a table are those of the process that uses it, as each has
 * a copy of its own.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/dynahash.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "common/hashfn.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* What all processes share of a table. */
typedef struct Contents
{
	uint32		nbuckets;		/* a power of two */
	uint32		nentries;
	HASHELEMENT *free;			/* of a table of fixed size */
	HASHELEMENT **buckets;
} Contents;

struct HTAB
{
	Contents   *contents;
	bool		fixed;
	Size		keysize;
	Size		entrysize;
	HashValueFunc hash;
	HashCompareFunc match;
	HashCopyFunc keycopy;
	MemoryContext context;
};

#define KEY(element)	((char *) (element) + MAXALIGN(sizeof(HASHELEMENT)))
#define ELEMENT_SIZE(entrysize) \
	(MAXALIGN(sizeof(HASHELEMENT)) + MAXALIGN(entrysize))

static void *
copy_string(void *dest, const void *src, Size keysize)
{
	strlcpy(dest, src, keysize);
	return dest;
}

static int
match_strings(const void *a, const void *b, Size keysize)
{
	return strncmp(a, b, keysize - 1);
}

static void
set_functions(HTAB *table, const HASHCTL *ctl, int flags)
{
	table->keysize = ctl->keysize;
	table->entrysize = ctl->entrysize;
	table->hash = flags & HASH_FUNCTION ? ctl->hash :
		flags & HASH_BLOBS ? tag_hash : string_hash;
	table->match = flags & HASH_COMPARE ? ctl->match :
		flags & HASH_STRINGS ? match_strings : memcmp;
	table->keycopy = flags & HASH_KEYCOPY ? ctl->keycopy :
		flags & HASH_STRINGS ? copy_string : memcpy;
}

HTAB *
hash_create(const char *name, long nelem, const HASHCTL *ctl, int flags)
{
	MemoryContext context = flags & HASH_CONTEXT ? ctl->hcxt : TopMemoryContext;
	HTAB	   *table;

	context = AllocSetContextCreateInternal(context, name,
											ALLOCSET_DEFAULT_SIZES);
	table = MemoryContextAllocZero(context, sizeof(HTAB));
	(void) nelem;
	set_functions(table, ctl, flags);
	table->context = context;
	table->contents = MemoryContextAllocZero(context, sizeof(Contents));
	table->contents->nbuckets = 16;
	table->contents->buckets =
		MemoryContextAllocZero(context, 16 * sizeof(HASHELEMENT *));
	return table;
}

void
hash_destroy(HTAB *table)
{
	MemoryContextDelete(table->context);
}

HTAB *
ShmemInitHash(const char *name, long init_size, long max_size, HASHCTL *ctl,
			  int flags)
{
	HTAB	   *table = MemoryContextAllocZero(TopMemoryContext, sizeof(HTAB));
	uint32		nbuckets = 16;
	Size		size = ELEMENT_SIZE(ctl->entrysize);
	char	   *elements;
	bool		found;

	(void) init_size;
	while (nbuckets < (uint32) max_size)
		nbuckets *= 2;
	set_functions(table, ctl, flags);
	table->fixed = true;
	table->contents = ShmemInitStruct(name, MAXALIGN(sizeof(Contents)) +
									  nbuckets * sizeof(HASHELEMENT *) +
									  max_size * size, &found);
	if (found)
		return table;
	table->contents->nbuckets = nbuckets;
	table->contents->buckets =
		(HASHELEMENT **) ((char *) table->contents + MAXALIGN(sizeof(Contents)));
	elements = (char *) (table->contents->buckets + nbuckets);
	for (long i = max_size - 1; i >= 0; i--)
	{
		HASHELEMENT *element = (HASHELEMENT *) (elements + i * size);

		element->link = table->contents->free;
		table->contents->free = element;
	}
	return table;
}

Size
hash_estimate_size(long num_entries, Size entrysize)
{
	return num_entries * ELEMENT_SIZE(entrysize);
}

uint32
get_hash_value(HTAB *table, const void *key)
{
	return table->hash(key, table->keysize);
}

static void
grow(HTAB *table)
{
	Contents   *contents = table->contents;
	uint32		n = 2 * contents->nbuckets;
	HASHELEMENT **buckets =
		MemoryContextAllocZero(table->context, n * sizeof(HASHELEMENT *));

	for (uint32 i = 0; i < contents->nbuckets; i++)
	{
		HASHELEMENT *element = contents->buckets[i];

		while (element)
		{
			HASHELEMENT *next = element->link;

			element->link = buckets[element->hashvalue & (n - 1)];
			buckets[element->hashvalue & (n - 1)] = element;
			element = next;
		}
	}
	pfree(contents->buckets);
	contents->buckets = buckets;
	contents->nbuckets = n;
}

static HASHELEMENT *
new_element(HTAB *table)
{
	HASHELEMENT *element;

	if (!table->fixed)
	{
		if (table->contents->nentries >= table->contents->nbuckets)
			grow(table);
		return MemoryContextAlloc(table->context,
								  ELEMENT_SIZE(table->entrysize));
	}
	element = table->contents->free;
	if (element)
		table->contents->free = element->link;
	return element;
}

static void
free_element(HTAB *table, HASHELEMENT *element)
{
	if (!table->fixed)
	{
		pfree(element);
		return;
	}
	element->link = table->contents->free;
	table->contents->free = element;
}

void *
hash_search_with_hash_value(HTAB *table, const void *key, uint32 hash,
							HASHACTION action, bool *found)
{
	Contents   *contents = table->contents;
	HASHELEMENT **place = &contents->buckets[hash & (contents->nbuckets - 1)];
	HASHELEMENT *element;

	while (*place && ((*place)->hashvalue != hash ||
					  table->match(KEY(*place), key, table->keysize) != 0))
		place = &(*place)->link;
	element = *place;
	if (found)
		*found = element != NULL;
	if (element && action == HASH_REMOVE)
	{
		*place = element->link;
		contents->nentries--;
		free_element(table, element);
	}
	if (element || action == HASH_FIND || action == HASH_REMOVE)
		return element ? KEY(element) : NULL;

	element = new_element(table);
	if (element == NULL && action == HASH_ENTER)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory")));
	if (element == NULL)
		return NULL;
	place = &contents->buckets[hash & (contents->nbuckets - 1)];
	element->hashvalue = hash;
	element->link = *place;
	*place = element;
	contents->nentries++;
	table->keycopy(KEY(element), key, table->keysize);
	return KEY(element);
}

void *
hash_search(HTAB *table, const void *key, HASHACTION action, bool *found)
{
	return hash_search_with_hash_value(table, key, get_hash_value(table, key),
									   action, found);
}

long
hash_get_num_entries(HTAB *table)
{
	return table->contents->nentries;
}

/*
 * The element that comes next is looked for when the one ahead of it is given
 * out, so that that may be removed.
 */
static void
find_next(HASH_SEQ_STATUS *status)
{
	Contents   *contents = status->hashp->contents;

	while (status->curEntry == NULL && status->curBucket < contents->nbuckets)
		status->curEntry = contents->buckets[status->curBucket++];
}

void
hash_seq_init(HASH_SEQ_STATUS *status, HTAB *table)
{
	status->hashp = table;
	status->curBucket = 0;
	status->curEntry = NULL;
	find_next(status);
}

void *
hash_seq_search(HASH_SEQ_STATUS *status)
{
	HASHELEMENT *element = status->curEntry;

	if (element == NULL)
		return NULL;
	status->curEntry = element->link;
	find_next(status);
	return KEY(element);
}

void
hash_seq_term(HASH_SEQ_STATUS *status)
{
	status->curEntry = NULL;
}
