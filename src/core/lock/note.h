/*-------------------------------------------------------------------------
 *
 * note.h
 *		The data of znodes: the grammar of all that zklock writes, and the
 *		notes of contenders and of instances.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/note.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTE_H
#define ZKLOCK_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/lock/znode.h"

/* The size of a decoded value, with its terminating zero. */
#define WORD_VALUE_SIZE 128

/* The size that one byte of another client may become: \xNN. */
#define WORD_ESCAPE_SIZE 4

/* Some bytes of a note, not terminated. */
typedef struct Bytes
{
	const char *data;
	int			len;
} Bytes;

/* A string being written; what does not fit is left out. */
typedef struct Writer
{
	char	   *data;
	int			len;
	int			size;			/* with the terminating zero */
	bool		full;			/* something did not fit */
} Writer;

/* The longest note that we write, with its terminating zero. */
#define NOTE_SIZE		256

/* The beginning of the note of an instance's contender, ours or another. */
#define NOTE_PREFIX		"postgresql "

/*
 * Ends the note of a contender that may own the lock without using it.  If
 * another contender is behind it, its instance gives the lock up, or writes
 * that the lock is in use.
 */
#define NOTE_RETAIN_MARK	" retain=yes"

/* Curator's Revoker replaces the data by this to request the lock. */
#define NOTE_REVOCATION_DATA	"__REVOKE__"

typedef enum NoteKind
{
	NOTE_EMPTY,					/* no data, or we may not read them */
	NOTE_OF_INSTANCE,
	NOTE_REVOCATION,			/* another client requests the lock */
	NOTE_OF_ANOTHER				/* another client's, in a form of its own */
} NoteKind;

/* The known words: bits of Note.words. */
#define NOTE_HOST		(1 << 0)
#define NOTE_PORT		(1 << 1)
#define NOTE_CLUSTER	(1 << 2)
#define NOTE_PID		(1 << 3)
#define NOTE_RETAIN		(1 << 4)

typedef struct Note
{
	NoteKind	kind;
	unsigned	words;			/* present words; other fields are not set */
	char		host[WORD_VALUE_SIZE];
	int			port;
	char		cluster_name[WORD_VALUE_SIZE];	/* its cluster_name */
	int			pid;			/* of the backend that asked for the lock */
	char		others[NOTE_SIZE];	/* all other words, as written */
} Note;

/* "permits=2147483647" and the terminator, rounded up. */
#define NOTE_PERMITS_SIZE	24

/* The directory below a root; no lock's name is encoded as that. */
#define MEMBER_DIR			"%clusters"

/* The longest data that we write, with the terminating zero. */
#define MEMBER_SIZE			1024

/* The fleet's identity, a UUID as text, with its terminator. */
#define MEMBER_FLEET_SIZE	ZNODE_UUID_SIZE

/* "<uuid>-cluster" and the terminator. */
#define MEMBER_NODE_SIZE	(ZNODE_UUID_SIZE + 8)

/* The known words: bits of Member.words. */
#define MEMBER_HOST			(1 << 0)
#define MEMBER_PORT			(1 << 1)
#define MEMBER_CLUSTER		(1 << 2)
#define MEMBER_SYSTEM		(1 << 3)
#define MEMBER_PLACE		(1 << 4)
#define MEMBER_VERSION		(1 << 5)
#define MEMBER_SERVER		(1 << 6)
#define MEMBER_FORMAT		(1 << 7)
#define MEMBER_TIMEOUT		(1 << 8)
#define MEMBER_STANDBY		(1 << 9)
#define MEMBER_ID			(1 << 10)

typedef enum MemberKind
{
	MEMBER_UNREAD,				/* we may not read it */
	MEMBER_STRANGE,				/* no version of zklock has written it */
	MEMBER_READ
} MemberKind;

/* An instance, as its znode describes it. */
typedef struct Member
{
	MemberKind	kind;
	unsigned	words;			/* present words; other fields are not set */
	char		host[WORD_VALUE_SIZE];
	int			port;
	char		cluster_name[WORD_VALUE_SIZE];
	uint64_t	system;			/* PostgreSQL's system identifier */
	uint64_t	place;			/* hash of the data directory and the start of
								 * the machine, other than 0 */
	char		version[WORD_VALUE_SIZE];	/* of zklock */
	char		server[WORD_VALUE_SIZE];	/* of PostgreSQL */
	char		format[WORD_VALUE_SIZE];	/* its zklock.node_format */
	int			timeout;		/* ms, as granted */
	int			standby;		/* 1: in recovery */
	char		id[WORD_VALUE_SIZE];	/* prefix of its claims' tokens */
	int64_t		since;			/* of the znode, ms since 1970; not in its
								 * data */

	/* set by member_judge() */
	bool		left_over;		/* a later session of the server has a znode */
	int			same;			/* members with the value being compared */
	unsigned	conflicts;		/* MEMBER_ bits, as follows */
} Member;

/* What conflicts. */
#define MEMBER_SAME_NAME		(1 << 0)	/* as another instance */
#define MEMBER_NO_NAME			(1 << 1)
#define MEMBER_OTHER_FORMAT		(1 << 2)	/* than most */
#define MEMBER_OTHER_TIMEOUT	(1 << 3)	/* than most */
#define MEMBER_IS_UNREAD		(1 << 4)
#define MEMBER_IS_STRANGE		(1 << 5)

#define MEMBER_CONFLICTS		6

/* The stat of the latest write of our znode; 0: none yet. */
typedef struct MemberMark
{
	int64_t		zxid;			/* of that write */
	int64_t		czxid;			/* of the znode */
	int32_t		version;		/* of its data */
} MemberMark;

/* words */
extern Bytes word_bytes(const char *data, int len);
extern bool word_bytes_are(Bytes bytes, const char *text);
extern bool word_next(Bytes *rest, Bytes *word);
extern void word_put_byte(Writer *writer, char byte);
extern void word_put_text(Writer *writer, const char *text);
extern void word_put_encoded(Writer *writer, Bytes bytes, bool percent);
extern int	word_printable(Bytes bytes, bool ascii, char *text, int size);
extern bool word_decode(Bytes bytes, char *text, int size);
extern bool word_parse_text(Bytes bytes, char *text, int size);
extern bool word_parse_unsigned(Bytes bytes, unsigned base, uint64_t max,
								uint64_t *number);
extern bool word_parse_number(Bytes bytes, int *number);
extern void word_set_text(char text[WORD_VALUE_SIZE], const char *from);

/* contenders */
extern void note_set_contender(Note *note, const char *host, int port,
							   const char *cluster_name, int pid, bool retain);
extern int	note_write(const Note *note, char data[NOTE_SIZE]);
extern void note_parse(Note *note, const char *data, int len);
extern bool note_may_be_retained(const char *data, int len);
extern bool note_is_revocation(const char *data, int len);

/* semaphores */
extern void note_write_permits(char data[NOTE_PERMITS_SIZE], int permits);
extern int	note_permits(const char *data, int len);

/* members of the fleet */
extern void member_node(const uint8_t uuid[ZNODE_UUID_BYTES],
						char node[MEMBER_NODE_SIZE]);
extern bool member_is_node(const char *node);
extern int	member_write(const Member *member, char data[MEMBER_SIZE]);
extern void member_parse(Member *member, const char *data, int len);
extern void member_judge(Member *members, int n);
extern const char *member_conflict_text(int bit);
extern void member_fleet(int64_t czxid, int64_t ctime,
						 char fleet[MEMBER_FLEET_SIZE]);
extern bool member_mark(MemberMark *mark, int64_t zxid, int64_t czxid,
						int32_t version, bool written);

#endif							/* ZKLOCK_NOTE_H */
