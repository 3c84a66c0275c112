/*-------------------------------------------------------------------------
 *
 * note.c
 *		The data of znodes: of a contender, and of an instance.
 *
 * People and other clients read these notes, and so do other instances, of
 * this version and others.  Only this file writes and parses them.  Every
 * client that may write znodes can write these, too.
 *
 * A contender's note tells other instances its owner, and what becomes of it.
 *
 *	note	= "postgresql" { " " word } [ " retain=yes" ], as in core/word.c
 *
 *	N1	The order is: host, port, cluster, pid, the unknown words, retain=yes.
 *		There is always room for retain=yes.
 *	N2	No data, empty data, or a length of -1 are no note.
 *	N3	Exactly "__REVOKE__" is a revocation.
 *	N4	What begins with "postgresql " is the note of an instance.
 *	N5	A word that does not count is kept in "others", from which it is
 *		written again; bytes that do not print are encoded.  Words for which
 *		"others" has no room are left out.
 *	N6	Any other data are another client's.  It may be retained if they end
 *		in " retain=yes", which any client may write.
 *
 * A reader that knows no word takes what begins with "postgresql " for an
 * instance's note, and what ends in " retain=yes" for retained; by N1 both
 * hold.
 *
 * The fleet is the instances of one ensemble and root.  Its znode,
 * <root>/%clusters, is persistent; the creation of that znode is the fleet's
 * identity, as a UUID of version 8: its ctime, and its czxid, which two young
 * ensembles may have in common.  Below it each instance has one ephemeral
 * znode, named "<uuid>-cluster".  No contender's name ends like that, and the
 * name does not reveal the session's ID.
 *
 *	member	= "zklock" { " " word }, as in core/word.c
 *
 * Data are not zklock's if they do not begin with "zklock ", if they are
 * longer than MEMBER_SIZE, or if their znode is not ephemeral.
 *
 * The data of members are only shown to people; nothing else depends on them.
 *
 * A member conflicts with others (Member.conflicts) if
 * - its name is empty, or another instance has it: errors, the log and the
 *   deadlock detector tell instances apart by their names.  A primary and its
 *   standbys (the same system identifier, one of the two in recovery) may
 *   share a name, as Patroni's members do;
 * - its node_format or session timeout is not the most common value.  If no
 *   value is more common than all others, all of them conflict.
 *
 * A znode that an earlier session of the same server has left does not count.
 * It goes when that session times out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/note.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/note.h"

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/mutation.h"

#define MEMBER_PREFIX	"zklock "

#define NODE_SUFFIX	"-cluster"

/* The same as a word, without its space. */
static const char *const retain_word = &NOTE_RETAIN_MARK[1];

/* In the order in which they are written. */
static const WordField note_keys[] = {
	{"host=", NOTE_HOST, WORD_TEXT, offsetof(Note, host)},
	{"port=", NOTE_PORT, WORD_NUMBER, offsetof(Note, port)},
	{"cluster=", NOTE_CLUSTER, WORD_TEXT, offsetof(Note, cluster_name)},
	{"pid=", NOTE_PID, WORD_NUMBER, offsetof(Note, pid)},
	{.key = NULL}
};

/*
 * Parse a word; "seen" has the keys so far.  False if the word is to be kept
 * as it is.
 */
static bool
parse_word(Note *note, Bytes word, unsigned *seen)
{
	unsigned	bit = word_bytes_are(word, retain_word) ? NOTE_RETAIN :
		word_parse_field(word, note_keys, note, seen);

	note->words |= bit;
	return bit != 0;
}

/* Parse the words of an instance's note. */
static void
parse_words(Note *note, Bytes rest)
{
	Bytes		word;
	Writer		others = {.data = note->others,.size = NOTE_SIZE};
	unsigned	seen = 0;

	(void) word_next(&rest, &word);
	while (word_next(&rest, &word))
	{
		int			start = others.len;

		if (parse_word(note, word, &seen))
			continue;
		if (start > 0)
			word_put_byte(&others, ' ');
		word_put_encoded(&others, word, false);
		word_end(&others, start);
	}
}

/*
 * note_parse
 *		Parse the data of a contender of any client: "len" bytes, or -1 if
 *		there are none.
 */
void
note_parse(Note *note, const char *data, int len)
{
	memset(note, 0, sizeof(*note));
	if (data == NULL || len <= 0)
		return;
	if (note_is_revocation(data, len))
		note->kind = NOTE_REVOCATION;
	else if (note_is_of_instance(data, len))
	{
		note->kind = NOTE_OF_INSTANCE;
		parse_words(note, word_bytes(data, len));
	}
	else
	{
		note->kind = NOTE_OF_ANOTHER;
		if (word_ends_with(word_bytes(data, len), NOTE_RETAIN_MARK))
			note->words = NOTE_RETAIN;
	}
}

/*
 * note_set_contender
 *		Fill in the note of a contender of this instance, for note_write().
 *
 * "pid" is that of the backend that asked for it; "retain" says that it may be
 * retained.  Names that are too long are truncated.
 */
void
note_set_contender(Note *note, const char *host, int port,
				   const char *cluster_name, int pid, bool retain)
{
	memset(note, 0, sizeof(*note));
	note->kind = NOTE_OF_INSTANCE;
	note->words = NOTE_HOST | NOTE_PORT | NOTE_CLUSTER | NOTE_PID;
	if (retain)
		note->words |= NOTE_RETAIN;
	word_set_text(note->host, host);
	note->port = port;
	word_set_text(note->cluster_name, cluster_name);
	note->pid = pid;
}

/* Write the note of an instance; returns the string's length. */
int
note_write(const Note *note, char data[NOTE_SIZE])
{
	Writer		writer = {.data = data,.size = NOTE_SIZE};
	Bytes		rest = {note->others, (int) strlen(note->others)};
	Bytes		word;
	bool		retain = (note->words & NOTE_RETAIN) != 0;
	int			prefix_len = (int) strlen(NOTE_PREFIX);

	/* each word brings its space */
	word_put_text(&writer, NOTE_PREFIX);
	writer.len = prefix_len - 1;
	if (retain)
		writer.size -= (int) strlen(NOTE_RETAIN_MARK);
	word_put_fields(&writer, note_keys, note, note->words);
	while (word_next(&rest, &word))
	{
		int			start = writer.len;

		word_put_byte(&writer, ' ');
		word_put_encoded(&writer, word, false);
		word_end(&writer, start);
	}
	if (retain)
	{
		writer.size += (int) strlen(NOTE_RETAIN_MARK);
		word_put_text(&writer, NOTE_RETAIN_MARK);
	}
	if (writer.len < prefix_len)
		word_put_byte(&writer, ' ');
	return writer.len;
}

/*
 * note_is_of_instance
 *		Are these the data of a contender of an instance, ours or another?
 *
 * "data" and "len" are as for note_parse(), here and below.
 */
bool
note_is_of_instance(const char *data, int len)
{
	return word_begins_with(word_bytes(data, len), NOTE_PREFIX);
}

/* Do the data of an owner say that it may be retained? */
bool
note_may_be_retained(const char *data, int len)
{
	Note		note;

	note_parse(&note, data, len);
	return (note.words & NOTE_RETAIN) != 0;
}

/* Has another client requested revocation of the lock? */
bool
note_is_revocation(const char *data, int len)
{
	return word_bytes_are(word_bytes(data, len), NOTE_REVOCATION_DATA);
}

/* In the order in which they are written. */
static const WordField member_keys[] = {
	{"host=", MEMBER_HOST, WORD_TEXT, offsetof(Member, host)},
	{"port=", MEMBER_PORT, WORD_NUMBER, offsetof(Member, port)},
	{"cluster=", MEMBER_CLUSTER, WORD_TEXT, offsetof(Member, cluster_name)},
	{"system=", MEMBER_SYSTEM, WORD_LONG, offsetof(Member, system)},
	{"place=", MEMBER_PLACE, WORD_LONG, offsetof(Member, place)},
	{"version=", MEMBER_VERSION, WORD_TEXT, offsetof(Member, version)},
	{"server=", MEMBER_SERVER, WORD_TEXT, offsetof(Member, server)},
	{"format=", MEMBER_FORMAT, WORD_TEXT, offsetof(Member, format)},
	{"timeout=", MEMBER_TIMEOUT, WORD_NUMBER, offsetof(Member, timeout)},
	{"standby=", MEMBER_STANDBY, WORD_NUMBER, offsetof(Member, standby)},
	{"id=", MEMBER_ID, WORD_TEXT, offsetof(Member, id)},
	{.key = NULL}
};

/* The name of an instance's znode. */
void
member_node(const uint8_t uuid[ZNODE_UUID_BYTES],
			char node[MEMBER_NODE_SIZE])
{
	znode_write_uuid(uuid, node);
	strcat(node, NODE_SUFFIX);
}

static bool
is_uuid(Bytes bytes)
{
	if (bytes.len != MEMBER_FLEET_SIZE - 1)
		return false;
	for (int i = 0; i < bytes.len; i++)
	{
		char		byte = bytes.data[i];

		if (i == 8 || i == 13 || i == 18 || i == 23 ? byte != '-' :
			!((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f')))
			return false;
	}
	return true;
}

/* Is this the name of such a znode? */
bool
member_is_node(const char *node)
{
	int			uuid_len = MEMBER_FLEET_SIZE - 1;

	return (int) strlen(node) == MEMBER_NODE_SIZE - 1 &&
		strcmp(node + uuid_len, NODE_SUFFIX) == 0 &&
		is_uuid(word_bytes(node, uuid_len));
}

/* Write the data of an instance's znode; returns the string's length. */
int
member_write(const Member *member, char data[MEMBER_SIZE])
{
	Writer		writer = {.data = data,.size = MEMBER_SIZE};

	/* each word brings its space */
	word_put_text(&writer, MEMBER_PREFIX);
	writer.len--;
	word_put_fields(&writer, member_keys, member, member->words);
	data[writer.len] = '\0';
	return writer.len;
}

/*
 * member_parse
 *		Read the data of a znode below %clusters, whichever client wrote it:
 *		"len" bytes, or -1 if we may not read them.
 */
void
member_parse(Member *member, const char *data, int len)
{
	Bytes		rest;
	Bytes		word;
	unsigned	seen = 0;

	memset(member, 0, sizeof(*member));
	member->kind = len < 0 ? MEMBER_UNREAD : MEMBER_STRANGE;
	rest = word_bytes(data, len);
	if (len <= 0 || !word_begins_with(rest, MEMBER_PREFIX))
		return;
	member->kind = MEMBER_READ;
	(void) word_next(&rest, &word);
	while (word_next(&rest, &word))
		member->words |= word_parse_field(word, member_keys, member, &seen);
}

/* Are these two sessions of one server, as far as their data show? */
static bool
same_server(const Member *a, const Member *b)
{
	const unsigned needed = MEMBER_SYSTEM | MEMBER_PLACE;

	return (a->words & b->words & needed) == needed &&
		a->system == b->system && a->place == b->place;
}

/* Does a later session of the same server have a znode, too? */
static bool
is_left_over(const Member *members, int n, int i)
{
	for (int j = 0; j < n; j++)
		if (j != i && same_server(&members[i], &members[j]) &&
			(members[j].since > members[i].since ||
			 (members[j].since == members[i].since && j > i)))
			return true;
	return false;
}

static bool
is_standby(const Member *member)
{
	return (member->words & MEMBER_STANDBY) && member->standby;
}

/* May two instances share a name, as a primary and its standbys do? */
static bool
may_share_name(const Member *a, const Member *b)
{
	return (a->words & b->words & MEMBER_SYSTEM) && a->system == b->system &&
		(is_standby(a) || is_standby(b));
}

static bool
has_no_name(const Member *member)
{
	return !(member->words & MEMBER_CLUSTER) ||
		member->cluster_name[0] == '\0';
}

static bool
has_same_name(const Member *members, int n, int i)
{
	for (int j = 0; j < n; j++)
		if (j != i && !members[j].left_over && !has_no_name(&members[j]) &&
			strcmp(members[i].cluster_name, members[j].cluster_name) == 0 &&
			!may_share_name(&members[i], &members[j]))
			return true;
	return false;
}

/* Does the member count, and have this word? */
static bool
has(const Member *member, unsigned word)
{
	return !member->left_over && (member->words & word) != 0;
}

static bool
has_same(const Member *a, const Member *b, unsigned word)
{
	return word == MEMBER_FORMAT ? strcmp(a->format, b->format) == 0 :
		a->timeout == b->timeout;
}

/* Mark each member whose value is not more common than every other value. */
static void
judge_value(Member *members, int n, unsigned word, unsigned conflict)
{
	for (int i = 0; i < n; i++)
	{
		members[i].same = 0;
		for (int j = 0; j < n; j++)
			members[i].same += has(&members[j], word) &&
				has_same(&members[i], &members[j], word);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (has(&members[i], word) && has(&members[j], word) &&
				!has_same(&members[i], &members[j], word) &&
				members[j].same >= members[i].same)
				members[i].conflicts |= conflict;
}

/*
 * member_judge
 *		Find out what conflicts among all members.
 *
 * Takes time in the square of their number.
 */
void
member_judge(Member *members, int n)
{
	for (int i = 0; i < n; i++)
		members[i].left_over = is_left_over(members, n, i);
	for (int i = 0; i < n; i++)
	{
		Member	   *member = &members[i];

		member->conflicts = 0;
		if (member->kind == MEMBER_UNREAD)
			member->conflicts = MEMBER_IS_UNREAD;
		else if (member->kind == MEMBER_STRANGE)
			member->conflicts = MEMBER_IS_STRANGE;
		else if (member->left_over)
			continue;
		else if (has_no_name(member))
			member->conflicts = MEMBER_NO_NAME;
		else if (has_same_name(members, n, i))
			member->conflicts = MEMBER_SAME_NAME;
	}
	judge_value(members, n, MEMBER_FORMAT, MEMBER_OTHER_FORMAT);
	judge_value(members, n, MEMBER_TIMEOUT, MEMBER_OTHER_TIMEOUT);
}

/* The text shown for one bit of Member.conflicts. */
const char *
member_conflict_text(int bit)
{
	switch (bit)
	{
		case MEMBER_SAME_NAME:
			return "another instance has this cluster_name";
		case MEMBER_NO_NAME:
			return "cluster_name is empty";
		case MEMBER_OTHER_FORMAT:
			return "zklock.node_format differs";
		case MEMBER_OTHER_TIMEOUT:
			return "session timeout differs";
		case MEMBER_IS_UNREAD:
			return "this server may not read it";
		case MEMBER_IS_STRANGE:
			return "not written by zklock";
	}
	return "unknown";
}

/* The identity of the fleet whose %clusters was created like this. */
void
member_fleet(int64_t czxid, int64_t ctime, char fleet[MEMBER_FLEET_SIZE])
{
	uint8_t		uuid[ZNODE_UUID_BYTES] = {0};

	for (int i = 0; i < 6; i++)
		uuid[i] = (uint8_t) (ctime >> (8 * (5 - i)));
	for (int i = 0; i < 8; i++)
		uuid[8 + i] = (uint8_t) (czxid >> (8 * (7 - i)));
	znode_make_uuid(uuid);
	znode_write_uuid(uuid, fleet);
}

/*
 * member_mark
 *		Note the stat of an acknowledged write of our znode, which was sent
 *		after the previous write had been answered.
 *
 * Returns false if that proves that ZooKeeper has lost the previous write,
 * because it was restored from an older copy.  A server that lags proves
 * nothing, but it acknowledges no write before it has caught up.  A restored
 * ensemble may begin an epoch with a higher zxid; then the version of the data
 * is too low, or the znode is a new one, since the copy had none.  The version
 * counts all writes, including those of other clients, and starts again after
 * the highest number.  Nobody but its instance has reason to remove a znode;
 * whoever does has the session ended as well.
 */
bool
member_mark(MemberMark *mark, int64_t zxid, int64_t czxid, int32_t version)
{
	bool		later = zxid > mark->zxid;

	if (czxid != mark->czxid)
		later = later && mark->czxid == 0;
	else if ((int32_t) ((uint32_t) version - (uint32_t) mark->version) <= 0)
		later = false;
	mark->zxid = zxid;
	mark->czxid = czxid;
	mark->version = version;
	return later;
}
