/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Memory for core/: a function that returns has the memory.
 *
 * Otherwise it has called memory_exhausted(), which does not return: the
 * library has it raise an error, as palloc() does.  That ends the worker, and
 * the next one starts afresh; only the worker uses the files of core/ that
 * need memory.
 *
 * palloc() would not do: what a state machine keeps from step to step must not
 * be in the caller's memory context, which the worker resets in each
 * iteration of its loop.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/memory.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Set by the library; unit tests abort. */
void		(*memory_exhausted) (void) = abort;

/* Allocate zeroed memory, to be freed by free(). */
void *
memory_alloc(size_t size)
{
	void	   *memory = calloc(1, size > 0 ? size : 1);

	if (memory == NULL)
		memory_exhausted();
	return memory;
}

/*
 * memory_grow
 *		Make room for one more element in an array of n, which may move.
 *
 * The new element is zeroed.  If n is 0, the array may be NULL.
 */
void *
memory_grow(void *array, int n, size_t size)
{
	char	   *grown = array;

	/* the array has room for up to the next power of 2 */
	if ((n & (n - 1)) == 0)
	{
		grown = realloc(array, (n == 0 ? 1 : 2 * (size_t) n) * size);
		if (grown == NULL)
			memory_exhausted();
	}
	memset(grown + n * size, 0, size);
	return grown;
}

/* Copy a string; the copy is to be freed by free(). */
char *
memory_copy(const char *text)
{
	return strcpy(memory_alloc(strlen(text) + 1), text);
}
