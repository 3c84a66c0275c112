/*-------------------------------------------------------------------------
 *
 * list.c
 *		Stand-ins for lists and pairing heaps.
 *
 * A heap is a list in order here: those that are equal come out in the order
 * in which they have come.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/list.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "lib/pairingheap.h"
#include "nodes/pg_list.h"

static List *
new_list(NodeTag type)
{
	List	   *list = palloc0(sizeof(List));

	list->type = type;
	list->max_length = 8;
	list->elements = palloc(8 * sizeof(ListCell));
	return list;
}

static ListCell *
new_cell(List *list)
{
	if (list->length == list->max_length)
	{
		list->max_length *= 2;
		list->elements = repalloc(list->elements,
								  list->max_length * sizeof(ListCell));
	}
	return &list->elements[list->length++];
}

List *
lappend(List *list, void *datum)
{
	if (list == NIL)
		list = new_list(T_List);
	new_cell(list)->ptr_value = datum;
	return list;
}

List *
lappend_int(List *list, int datum)
{
	if (list == NIL)
		list = new_list(T_IntList);
	new_cell(list)->int_value = datum;
	return list;
}

List *
list_make1_impl(NodeTag type, ListCell datum)
{
	List	   *list = new_list(type);

	*new_cell(list) = datum;
	return list;
}

void
list_free(List *list)
{
	if (list == NIL)
		return;
	pfree(list->elements);
	pfree(list);
}

List *
list_delete_first(List *list)
{
	if (list == NIL)
		return NIL;
	if (--list->length == 0)
	{
		list_free(list);
		return NIL;
	}
	memmove(list->elements, list->elements + 1,
			list->length * sizeof(ListCell));
	return list;
}

/* In the order in which they were, where they are equal. */
void
list_sort(List *list, list_sort_comparator cmp)
{
	if (list == NIL)
		return;
	for (int i = 1; i < list->length; i++)
	{
		ListCell	cell = list->elements[i];
		int			j = i;

		for (; j > 0 && cmp(&list->elements[j - 1], &cell) > 0; j--)
			list->elements[j] = list->elements[j - 1];
		list->elements[j] = cell;
	}
}

pairingheap *
pairingheap_allocate(pairingheap_comparator compare, void *arg)
{
	pairingheap *heap = palloc0(sizeof(pairingheap));

	heap->ph_compare = compare;
	heap->ph_arg = arg;
	return heap;
}

/* The greatest comes first. */
void
pairingheap_add(pairingheap *heap, pairingheap_node *node)
{
	pairingheap_node **place = &heap->ph_root;

	while (*place &&
		   heap->ph_compare(*place, node, heap->ph_arg) >= 0)
		place = &(*place)->next_sibling;
	node->next_sibling = *place;
	*place = node;
}

pairingheap_node *
pairingheap_first(pairingheap *heap)
{
	return heap->ph_root;
}

void
pairingheap_remove(pairingheap *heap, pairingheap_node *node)
{
	pairingheap_node **place = &heap->ph_root;

	while (*place != node)
	{
		Assert(*place != NULL);
		place = &(*place)->next_sibling;
	}
	*place = node->next_sibling;
}
