/*-------------------------------------------------------------------------
 *
 * callbacks.c
 *		The library's callbacks for the answers to operations.
 *
 * They run in the library's threads: see client.c for what they may touch.
 *
 * Callbacks do not trust what the library hands on.  A missing string or a
 * code that does not exist counts as an answer that was lost.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/callbacks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/zookeeper/callbacks.h"

/* What came in place of an answer that makes no sense: as if none had come. */
#define UNHEARD		ZCONNECTIONLOSS

/* An error code of the server, which has no positive ones; we do. */
static int
code_of(int rc)
{
	return rc > 0 ? UNHEARD : rc;
}

void
callback_void(int rc, const void *data)
{
	News	   *news = (News *) data;

	if (news)					/* else a step of an operation, not its end */
		client_post_answer(news, code_of(rc));
}

void
callback_string(int rc, const char *value, const void *data)
{
	News	   *news = (News *) data;
	int			code = code_of(rc);

	if (news == NULL)
		return;
	if (rc == ZOK)
	{
		news->string = value ? strdup(value) : NULL;
		if (news->string == NULL)
			code = UNHEARD;
	}
	client_post_answer(news, code);
}

void
callback_create(int rc, const char *value, const struct Stat *stat,
					 const void *data)
{
	News	   *news = (News *) data;

	if (rc == ZOK && stat)
		news->stat = *stat;
	callback_string(rc, value, data);
}

/* The barrier ahead of an operation is answered ahead of it. */
void
callback_barrier(int rc, const void *data)
{
	Barrier    *barrier = (Barrier *) data;

	barrier->code = rc;
}

/*
 * A list that was cut short has no strings at its end, or none at all.  Part
 * of a queue would look like a queue in which others are missing.  The list
 * may claim to have 2^31 strings, which the library would free one by one:
 * set the count to what there is.
 */
static bool
list_is_whole(const struct String_vector *strings)
{
	if (strings == NULL || strings->count < 0 ||
		(strings->count > 0 && strings->data == NULL))
		return false;
	for (int i = 0; i < strings->count; i++)
	{
		if (strings->data[i] != NULL)
			continue;
		((struct String_vector *) strings)->count = i;
		return false;
	}
	return true;
}

/* Copy a list into one block; false if there is no memory. */
static bool
copy_children(News *news, const struct String_vector *strings)
{
	Size		size = strings->count * sizeof(char *);
	char	   *end;

	for (int i = 0; i < strings->count; i++)
		size += strlen(strings->data[i]) + 1;
	news->children = malloc(size);
	if (news->children == NULL)
		return false;
	end = (char *) (news->children + strings->count);
	for (int i = 0; i < strings->count; i++)
	{
		news->children[i] = end;
		strcpy(end, strings->data[i]);
		end += strlen(end) + 1;
	}
	news->nchildren = strings->count;
	return true;
}

/* What was read behind a barrier that has failed does not count. */
static int
behind_barrier(const News *news, int rc)
{
	if ((rc == ZOK || rc == ZNONODE) &&
		news->barrier && !client_is_leaders(news->barrier->code))
		return UNHEARD;
	return rc;
}

void
callback_strings(int rc, const struct String_vector *strings,
					  const void *data)
{
	News	   *news = (News *) data;
	int			code;

	rc = behind_barrier(news, rc);
	code = code_of(rc);
	if (rc == ZOK && !list_is_whole(strings))
		code = UNHEARD;
	else if (rc == ZOK && strings->count > 0 && !copy_children(news, strings))
		code = UNHEARD;
	client_post_answer(news, code);
}

void
callback_stat(int rc, const struct Stat *stat, const void *data)
{
	News	   *news = (News *) data;

	if (rc == ZOK && stat)
		news->stat = *stat;
	client_post_answer(news, code_of(rc));
}

/* Does this let everybody do more than read? */
static bool
is_open(const struct ACL *acl)
{
	return (acl->perms & ~ZOO_PERM_READ) != 0 &&
		(acl->id.scheme == NULL || strcmp(acl->id.scheme, "world") == 0);
}

void
callback_acl(int rc, struct ACL_vector *acl,
			 struct Stat *stat pg_attribute_unused(), const void *data)
{
	News	   *news = (News *) data;
	int			code = code_of(rc);

	if (rc == ZOK && (acl == NULL || acl->data == NULL))
		code = UNHEARD;
	else if (rc == ZOK)
	{
		news->acl_count = acl->count;
		for (int i = 0; i < acl->count; i++)
			news->acl_open |= is_open(&acl->data[i]);
	}
	client_post_answer(news, code);
}

void
callback_data(int rc, const char *value, int value_len,
				   const struct Stat *stat, const void *data)
{
	News	   *news = (News *) data;
	int			code;

	rc = behind_barrier(news, rc);
	code = code_of(rc);
	news->data_len = -1;
	if (rc == ZOK && stat)
		news->stat = *stat;
	if (rc == ZOK && (stat == NULL || Max(value_len, 0) != stat->dataLength))
		code = UNHEARD;			/* cut short, so it is not even there */
	else if (rc == ZOK && value && value_len >= 0)
	{
		news->data = malloc((Size) value_len + 1);
		if (news->data == NULL)
			code = UNHEARD;
		else
		{
			memcpy(news->data, value, value_len);
			news->data_len = value_len;
		}
	}
	client_post_answer(news, code);
}

/* Does this one's answer go to the news of that one, which has some? */
static bool
is_part(const Multi *multi, int one, int that)
{
	return one == that ||
		(one >= 0 && one == that - 1 && multi->answers[one] == NULL);
}

/*
 * A multi can fail in two ways.  If one of its operations fails, that one has
 * an error of its own, those ahead of it have none, and those behind it have
 * ZRUNTIMEINCONSISTENCY, since the server did not try them.  If the request
 * fails or the connection is lost, all have the same error.
 */
void
callback_multi(int rc, const void *data)
{
	const Multi *multi = data;
	bool		one_failed = false;
	int			failed = -1;

	for (int i = 0; i < multi->count; i++)
	{
		int			own = multi->results[i].err;

		if (own != rc)
			one_failed = true;
		else if (failed < 0 && own < ZAPIERROR && own != ZRUNTIMEINCONSISTENCY)
			failed = i;
	}
	for (int i = 0; i < multi->count; i++)
	{
		News	   *news = multi->answers[i];
		int			own = multi->results[i].err;

		if (news == NULL)
			continue;
		news->code = code_of(rc);
		news->failed = failed;
		if (!one_failed || is_part(multi, failed, i))
			;
		else if (multi->is_batch)
			news->code = CLIENT_BATCH_FAILED;
		else if (rc < ZAPIERROR)
			news->code = own < ZAPIERROR ? own : ZRUNTIMEINCONSISTENCY;
		if (news->code == ZOK)
			news->created = multi->results[i].value;
	}
	client_post_multi(multi);
}
