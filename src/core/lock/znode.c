/*-------------------------------------------------------------------------
 *
 * znode.c
 *		Lock names, znode paths, and the order of contenders.
 *
 * A lock name becomes one path component below zklock.root.  A contender
 * becomes an ephemeral sequential child of that lock directory, named as by
 * Curator's InterProcessMutex or InterProcessReadWriteLock:
 *
 *		/zklock/stock%2F17/_c_<uuid>-lock-0000000042
 *		<root> <enc. name> <contender                >
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/znode.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/znode.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTENDER_PREFIX	"_c_"

/* The text between the UUID and the sequence number, by ZnodeKind. */
static const char *const kind_marks[] = {
	[ZNODE_MUTEX] = "-lock-",
	[ZNODE_WRITER] = "-__WRIT__",
	[ZNODE_READER] = "-__READ__",
	[ZNODE_PERMIT] = "-lease-",
};

static const char hex_upper[] = "0123456789ABCDEF";
static const char hex_lower[] = "0123456789abcdef";

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Does this byte stand for itself in an encoded lock name? */
static bool
is_plain(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		(c != '\0' && strchr("-_.~:@=+,", c) != NULL);
}

/* The value of a hexadecimal digit in lower case; -1: it is none. */
int
znode_hex_digit(char digit)
{
	if (is_digit(digit))
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The same in upper case. */
static int
hex_value(char digit)
{
	return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 :
		is_digit(digit) ? digit - '0' : -1;
}

/*
 * znode_encode_name
 *		Percent-encode a lock name (UTF-8, "len" bytes) into one path
 *		component.
 *
 * The mapping is injective, so distinct names never share a directory.
 * ZooKeeper allows neither "." nor "..", so they are encoded whole.
 *
 * Returns the encoded length, or -1 if it would exceed ZNODE_MAX_NAME or
 * "size" - 1 bytes.
 */
int
znode_encode_name(const char *name, size_t len, char *encoded, size_t size)
{
	bool		dots = (len == 1 && name[0] == '.') ||
		(len == 2 && name[0] == '.' && name[1] == '.');
	size_t		used = 0;

	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) name[i];
		bool		plain = is_plain(name[i]) && !dots;
		size_t		need = plain ? 1 : 3;

		if (used + need > ZNODE_MAX_NAME || used + need >= size)
			return -1;
		if (plain)
			encoded[used++] = name[i];
		else
		{
			encoded[used++] = '%';
			encoded[used++] = hex_upper[c >> 4];
			encoded[used++] = hex_upper[c & 0x0F];
		}
	}
	encoded[used] = '\0';
	return (int) used;
}

/*
 * znode_decode_name
 *		Decode a lock name, as UTF-8.
 *
 * A '%' that two hexadecimal digits do not follow, which we never write,
 * stands for itself.  Returns the length, or -1 if "size" is too small.
 */
int
znode_decode_name(const char *encoded, char *name, size_t size)
{
	size_t		used = 0;

	while (*encoded)
	{
		int			high = -1;
		int			low = -1;

		if (used + 1 >= size)
			return -1;
		if (encoded[0] == '%' && (high = hex_value(encoded[1])) >= 0)
			low = hex_value(encoded[2]);
		if (low >= 0)
		{
			name[used++] = (char) (high << 4 | low);
			encoded += 3;
		}
		else
			name[used++] = *encoded++;
	}
	name[used] = '\0';
	return (int) used;
}

/*
 * znode_check_root
 *		Is this a usable value of zklock.root?
 *
 * Returns NULL if it is, else a sentence that says why not.  Unlike ZooKeeper,
 * which allows most of Unicode, this allows printable ASCII only.
 */
const char *
znode_check_root(const char *root)
{
	const char *component;

	if (root[0] != '/')
		return "The path must start with \"/\".";
	if (strlen(root) > ZNODE_MAX_ROOT)
		return "The path is longer than 119 bytes.";

	for (component = root; component != NULL;
		 component = strchr(component, '/'))
	{
		size_t		len;

		component++;
		len = strcspn(component, "/");
		if (len == 0)
			return "The path must not be \"/\", end in \"/\", or have an empty component.";
		if ((len == 1 && component[0] == '.') ||
			(len == 2 && component[0] == '.' && component[1] == '.'))
			return "The path must not have \".\" or \"..\" as a component.";
		if (component == root + 1 && len == 9 &&
			strncmp(component, "zookeeper", 9) == 0)
			return "\"/zookeeper\" is reserved for ZooKeeper itself.";
		for (size_t i = 0; i < len; i++)
			if (component[i] < 0x21 || component[i] > 0x7E)
				return "The path must consist of printable ASCII characters.";
	}
	return NULL;
}

/*
 * znode_make_uuid
 *		Make a version 8 UUID (RFC 9562) from 16 random bytes in "uuid".
 *
 * Version 8 is for UUIDs of an application's own kind.  Curator and kazoo use
 * version 4, so the name of a contender tells which of them has made it.
 */
void
znode_make_uuid(uint8_t uuid[ZNODE_UUID_BYTES])
{
	uuid[6] = (uuid[6] & 0x0F) | 0x80;
	uuid[8] = (uuid[8] & 0x3F) | 0x80;
}

/* Write a UUID as text, as in the names of znodes. */
void
znode_write_uuid(const uint8_t uuid[ZNODE_UUID_BYTES],
				 char text[ZNODE_UUID_SIZE])
{
	for (int i = 0; i < ZNODE_UUID_BYTES; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		*text++ = hex_lower[uuid[i] >> 4];
		*text++ = hex_lower[uuid[i] & 0x0F];
	}
	*text = '\0';
}

/* "_c_<uuid>", as Curator's withProtection() names its znodes. */
static void
protected_prefix(const uint8_t uuid[ZNODE_UUID_BYTES], char *prefix)
{
	strcpy(prefix, CONTENDER_PREFIX);
	znode_write_uuid(uuid, prefix + strlen(CONTENDER_PREFIX));
}

/*
 * znode_contender_prefix
 *		The name with which a contender is created; ZooKeeper appends the
 *		sequence number.
 */
void
znode_contender_prefix(const uint8_t uuid[ZNODE_UUID_BYTES], ZnodeKind kind,
					   char prefix[ZNODE_CONTENDER_SIZE])
{
	protected_prefix(uuid, prefix);
	strcat(prefix, kind_marks[kind]);
}

/*
 * znode_contender_name
 *		The full name of a contender, as ZooKeeper returns it.
 *
 * The server formats the number with Java's "%010d", which counts the minus
 * sign of a number that has overflowed among the ten characters, as C does.
 */
void
znode_contender_name(const uint8_t uuid[ZNODE_UUID_BYTES], ZnodeKind kind,
					 int32_t sequence, char name[ZNODE_CONTENDER_SIZE])
{
	size_t		len;

	znode_contender_prefix(uuid, kind, name);
	len = strlen(name);
	snprintf(name + len, ZNODE_CONTENDER_SIZE - len, "%010d", (int) sequence);
}

/* Read a UUID from text that begins with one, as znode_write_uuid() has it. */
bool
znode_read_uuid(const char *text, uint8_t uuid[ZNODE_UUID_BYTES])
{
	char		same[ZNODE_UUID_SIZE];
	const char *c = text;

	for (int i = 0; i < ZNODE_UUID_BYTES; i++)
	{
		int			high;
		int			low;

		if (*c == '-')
			c++;
		high = znode_hex_digit(c[0]);
		low = high < 0 ? -1 : znode_hex_digit(c[1]);
		if (low < 0)
			return false;
		uuid[i] = (uint8_t) (high << 4 | low);
		c += 2;
	}
	znode_write_uuid(uuid, same);
	return strncmp(text, same, strlen(same)) == 0;
}

/* Read the UUID from a child's name, if it is named as ours are. */
bool
znode_parse_uuid(const char *child, uint8_t uuid[ZNODE_UUID_BYTES])
{
	const char *text = child + strlen(CONTENDER_PREFIX);

	return strncmp(child, CONTENDER_PREFIX, strlen(CONTENDER_PREFIX)) == 0 &&
		znode_read_uuid(text, uuid) && text[ZNODE_UUID_SIZE - 1] == '-';
}

/* Was this child created with our UUID? */
bool
znode_has_uuid(const char *child, const uint8_t uuid[ZNODE_UUID_BYTES])
{
	char		prefix[ZNODE_CONTENDER_SIZE];

	protected_prefix(uuid, prefix);
	return strncmp(child, prefix, strlen(prefix)) == 0 &&
		child[strlen(prefix)] == '-';
}

/*
 * znode_is_of_instance
 *		Is this child named by an instance, this or another one?
 */
bool
znode_is_of_instance(const char *child)
{
	uint8_t		uuid[ZNODE_UUID_BYTES];

	return znode_parse_uuid(child, uuid) && uuid[6] >> 4 == 8 &&
		uuid[8] >> 6 == 2;
}

/* Is it one of the directories of a semaphore? */
bool
znode_is_semaphore_part(const char *child)
{
	return strcmp(child, ZNODE_LOCKS_DIR) == 0 ||
		strcmp(child, ZNODE_PERMITS_DIR) == 0;
}

/*
 * Does the text before the sequence number mark a reader, of whichever client?
 */
static bool
marks_reader(const char *child, size_t len)
{
	static const struct
	{
		const char *text;
		bool		whole;		/* nothing may precede it */
	}			marks[] =
	{
		{"__READ__", false}, {"__rlock__", false}, {"read-", true}, {"sh", true}
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
	{
		size_t		mark_len = strlen(marks[i].text);

		if ((marks[i].whole ? len == mark_len : len >= mark_len) &&
			strncmp(child + len - mark_len, marks[i].text, mark_len) == 0)
			return true;
	}
	return false;
}

/*
 * znode_parse_contender
 *		Read the sequence number and mode from a child's name.
 *
 * The name of a contender, ours or another client's, ends in the number as the
 * server formats it: ten digits or, after an overflow, a minus sign and nine
 * or ten digits.  Most clients put a '-' before the number, so a '-' is taken
 * for a minus sign only if another mark ('-' or '_') precedes it and the
 * digits are nine, or ten without a leading zero.  If a client's prefix ends
 * in two such marks, its numbers are exact below 1,000,000,000.
 *
 * Returns false for any other name; no lock recipe counts it as a contender.
 */
bool
znode_parse_contender(const char *child, ZnodeContender *contender)
{
	size_t		len = strlen(child);
	size_t		start = len;
	bool		negative;
	long long	value;

	while (start > 0 && len - start < 10 && is_digit(child[start - 1]))
		start--;

	negative = start >= 2 && child[start - 1] == '-' &&
		(child[start - 2] == '-' || child[start - 2] == '_') &&
		(len - start < 10 || child[start] != '0');
	if (len - start < (negative ? 9 : 10))
		return false;

	value = strtoll(child + start, NULL, 10);
	if (negative)
	{
		value = -value;
		start--;
	}
	if (value < INT32_MIN || value > INT32_MAX)
		return false;

	contender->sequence = (int32_t) value;
	contender->shared = marks_reader(child, start);
	return true;
}

/*
 * znode_before
 *		Does sequence number a precede b in the queue?
 *
 * Negative numbers come after all others, and equal ones have no order: see
 * znode_is_unordered().
 */
bool
znode_before(int32_t a, int32_t b)
{
	return (uint32_t) a < (uint32_t) b;
}

/*
 * znode_is_late
 *		Must the directory be made again before its creator can own the lock?
 */
bool
znode_is_late(int32_t sequence)
{
	return sequence >= ZNODE_LATE_SEQUENCE || znode_is_unordered(sequence);
}

/*
 * znode_is_unordered
 *		Does this number say nothing about the place in the queue?
 *
 * The server's counter of a directory stops at 2147483647, which it then gives
 * again and again: DataTree.java accepts a parent's new count only if it is
 * larger, and one more than that is negative.  Creates that are under way
 * together with one that got that number get negative numbers
 * (PrepRequestProcessor.java counts on from its predecessor), which are given
 * repeatedly, too.  Numbers from 0 up to the last but one are given once each,
 * in the order of the creates.
 */
bool
znode_is_unordered(int32_t sequence)
{
	return sequence < 0 || sequence == INT32_MAX;
}
