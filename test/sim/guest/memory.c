/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Stand-ins for memory contexts: each chunk is malloc'd by itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/memory.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "lib/ilist.h"
#include "nodes/memnodes.h"
#include "utils/memutils.h"

typedef struct Context
{
	MemoryContextData header;
	dlist_head	chunks;
} Context;

/* The context comes last: GetMemoryChunkContext() looks for it there. */
typedef struct Chunk
{
	dlist_node	node;
	Size		size;
	MemoryContext context;
} Chunk;

MemoryContext TopMemoryContext = NULL;
MemoryContext CurrentMemoryContext = NULL;
MemoryContext ErrorContext = NULL;
MemoryContext TopTransactionContext = NULL;
MemoryContext CurTransactionContext = NULL;
MemoryContext MessageContext = NULL;

void
memory_begin(void)
{
	TopMemoryContext = AllocSetContextCreate((MemoryContext) NULL,
											 "TopMemoryContext",
											 ALLOCSET_DEFAULT_SIZES);
	CurrentMemoryContext = TopMemoryContext;
	ErrorContext = AllocSetContextCreate(TopMemoryContext, "ErrorContext",
										 ALLOCSET_DEFAULT_SIZES);
	MessageContext = AllocSetContextCreate(TopMemoryContext, "MessageContext",
										   ALLOCSET_DEFAULT_SIZES);
}

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name,
							  Size minContextSize, Size initBlockSize,
							  Size maxBlockSize)
{
	Context    *context = process_malloc(sizeof(Context));

	(void) minContextSize;
	(void) initBlockSize;
	(void) maxBlockSize;
	memset(context, 0, sizeof(Context));
	context->header.type = T_AllocSetContext;
	context->header.name = name;
	dlist_init(&context->chunks);
	context->header.parent = parent;
	if (parent)
	{
		context->header.nextchild = parent->firstchild;
		if (parent->firstchild)
			parent->firstchild->prevchild = &context->header;
		parent->firstchild = &context->header;
	}
	return &context->header;
}

static void
free_chunks(MemoryContext context)
{
	dlist_head *chunks = &((Context *) context)->chunks;

	while (!dlist_is_empty(chunks))
		process_free(dlist_container(Chunk, node, dlist_pop_head_node(chunks)));
}

void
MemoryContextReset(MemoryContext context)
{
	while (context->firstchild)
		MemoryContextDelete(context->firstchild);
	free_chunks(context);
}

void
MemoryContextDelete(MemoryContext context)
{
	while (context->firstchild)
		MemoryContextDelete(context->firstchild);
	free_chunks(context);
	if (context->prevchild)
		context->prevchild->nextchild = context->nextchild;
	else if (context->parent)
		context->parent->firstchild = context->nextchild;
	if (context->nextchild)
		context->nextchild->prevchild = context->prevchild;
	process_free(context);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	Chunk	   *chunk = process_malloc(sizeof(Chunk) + size);

	chunk->size = size;
	chunk->context = context;
	dlist_push_head(&((Context *) context)->chunks, &chunk->node);
	return chunk + 1;
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
}

void *
MemoryContextAllocZeroAligned(MemoryContext context, Size size)
{
	return MemoryContextAllocZero(context, size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	return flags & MCXT_ALLOC_ZERO ? MemoryContextAllocZero(context, size) :
		MemoryContextAlloc(context, size);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return MemoryContextAlloc(context, size);
}

char *
MemoryContextStrdup(MemoryContext context, const char *string)
{
	return strcpy(MemoryContextAlloc(context, strlen(string) + 1), string);
}

void *
palloc(Size size)
{
	return MemoryContextAlloc(CurrentMemoryContext, size);
}

void *
palloc0(Size size)
{
	return MemoryContextAllocZero(CurrentMemoryContext, size);
}

void *
palloc_extended(Size size, int flags)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, size, flags);
}

void
pfree(void *pointer)
{
	Chunk	   *chunk = (Chunk *) pointer - 1;

	dlist_delete(&chunk->node);
#ifdef USE_ASSERT_CHECKING
	memset(pointer, 0x7F, chunk->size);
#endif
	process_free(chunk);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk	   *chunk = (Chunk *) pointer - 1;
	void	   *result = MemoryContextAlloc(chunk->context, size);

	memcpy(result, pointer, Min(size, chunk->size));
	pfree(pointer);
	return result;
}

void *
repalloc_huge(void *pointer, Size size)
{
	return repalloc(pointer, size);
}

char *
pstrdup(const char *string)
{
	return MemoryContextStrdup(CurrentMemoryContext, string);
}

char *
pnstrdup(const char *string, Size len)
{
	char	   *result = palloc(strnlen(string, len) + 1);

	result[strnlen(string, len)] = '\0';
	return memcpy(result, string, strnlen(string, len));
}

/* What backends have the worker read is not simulated. */
Size
MemoryContextMemAllocated(MemoryContext context, bool recurse)
{
	(void) context;
	(void) recurse;
	SIM_LACKS();
	return 0;
}
