/*-------------------------------------------------------------------------
 *
 * memory.h
 *		Memory for core/: a function that returns has the memory.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/memory.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MEMORY_H
#define ZKLOCK_MEMORY_H

#include <stddef.h>

extern void (*memory_exhausted) (void);

extern void *memory_alloc(size_t size);
extern void *memory_grow(void *array, int n, size_t size);
extern char *memory_copy(const char *text);

#endif							/* ZKLOCK_MEMORY_H */
