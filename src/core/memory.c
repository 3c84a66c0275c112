/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Memory for core/: there is always enough for the caller.
 *
 * If there is not, memory_exhausted() is called, which does not return: the
 * library has it raise an error, as palloc() does.  That ends the worker, and
 * the next one begins anew; only the worker uses the files of core/ that need
 * memory.
 *
 * This is not palloc(), since what a state machine keeps from step to step
 * must not be in the context of whoever calls it: the worker resets that in
 * each turn of its loop.
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

/* Set by the library; unit tests have memory. */
void		(*memory_exhausted) (void) = abort;

/*
 * memory_alloc
 *		Memory, all 0, to be freed by free().
 */
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
 *		Make room for one more in an array of n, which may have moved then.
 *
 * The new element is all 0.  An array of none may be NULL.
 */
void *
memory_grow(void *array, int n, size_t size)
{
	char	   *grown = array;

	/* it has room for up to the next power of 2 */
	if ((n & (n - 1)) == 0)
	{
		grown = realloc(array, (n == 0 ? 1 : 2 * (size_t) n) * size);
		if (grown == NULL)
			memory_exhausted();
	}
	memset(grown + n * size, 0, size);
	return grown;
}

/*
 * memory_copy
 *		A copy of a text, to be freed by free().
 */
char *
memory_copy(const char *text)
{
	return strcpy(memory_alloc(strlen(text) + 1), text);
}
