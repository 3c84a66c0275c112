/*-------------------------------------------------------------------------
 *
 * session_file.c
 *		The session's ID and password on disk, for after a crash.
 *
 * When a backend crashes, PostgreSQL kills all processes and sets up new
 * shared memory, which no longer has the session.  Its contenders would stay
 * in the queues until it times out.  So a file in the data directory names the
 * session, and the first worker after the crash attaches to it and closes it
 * (lifecycle.c).
 *
 * Closing another instance's session would be a disaster: all its locks would
 * be lost.  Data directories are copied, by backups, for standbys, as clones
 * of whole machines, and the file with them.  So the file is valid only
 *
 * - in the directory that it was written in, identified by device and inode of
 *   the data directory.  A session belongs to one postmaster, which runs in
 *   one directory.  The inode of the file itself would not do: copies may be
 *   hard links, and the number of a deleted file is reused;
 * - since the same boot of the machine, identified by Linux' boot ID.  A disk
 *   that has been cloned, by a snapshot or with its virtual machine, or that
 *   two machines share, looks the same elsewhere.  On a system without a boot
 *   ID there is no file, and the session has to time out.
 *
 * Any other file is removed.  Since its name begins with "pgsql_tmp", base
 * backups should not include it: pg_basebackup skips such names, and the
 * documentation tells other tools to.  (pg_rewind does not, but what it copies
 * is of another directory.)  As only the same boot counts, the file need not
 * be synced to disk: it must survive PostgreSQL, not Linux.
 *
 * If the file is valid, all processes that held locks in its session are
 * dead.  After the crash of a backend, the postmaster waits for the end of all
 * its children before it starts new ones.  If the postmaster itself was
 * killed, its children may live on for a while and even commit; but no
 * postmaster starts in a data directory while any process is attached to its
 * predecessor's shared memory.  PostgreSQL, too, identifies that by device and
 * inode of the data directory, so removing postmaster.pid does not deceive it.
 * And since workers start when recovery is over (on a standby at consistency),
 * the next owner of a lock sees what was committed under it.
 *
 * The session's chroot is not in the file; it is not needed to close a
 * session.
 *
 * No error ends the worker.  Errors are logged; then a session may have to
 * time out after a crash.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/session_file.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_utils.h"
#include "common/hashfn.h"
#include "port/pg_crc32c.h"
#include "shared/session_info.h"
#include "storage/fd.h"
#include "worker/zookeeper/session_file.h"

/* In the data directory, which is every process's working directory. */
#define SESSION_FILE		PG_TEMP_FILE_PREFIX ".zklock_session"

#define BOOT_ID_FILE		"/proc/sys/kernel/random/boot_id"
#define BOOT_ID_SIZE		36

/* To be changed with the struct below. */
#define SESSION_FILE_MAGIC	0x7A6B0001

#define NOT_OURS			"It does not have the format of this version of zklock."

typedef struct SessionFile
{
	uint32		magic;
	char		boot_id[BOOT_ID_SIZE];
	uint64		device;			/* of the data directory */
	uint64		inode;
	SessionKey	key;
	pg_crc32c	crc;			/* of all that precedes; must be last */
} SessionFile;

static pg_crc32c
checksum(const SessionFile *file)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(SessionFile, crc));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Read a file of at least "size" bytes.  Returns false if there is none, or
 * after an error, which is logged.
 */
static bool
read_bytes(const char *path, void *buffer, size_t size)
{
	int			fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	ssize_t		n;

	if (fd < 0)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", path)));
		return false;
	}
	n = read(fd, buffer, size);
	if (n < 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	else if ((size_t) n < size)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read file \"%s\": read %zd of %zu",
						path, n, size)));
	CloseTransientFile(fd);
	return n >= 0 && (size_t) n == size;
}

/* Fill in our place and boot; false if they are unknown. */
static bool
fill_place(SessionFile *file)
{
	struct stat st;

	memset(file, 0, sizeof(*file));
	if (stat(".", &st) != 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not stat data directory: %m")));
		return false;
	}
	file->magic = SESSION_FILE_MAGIC;
	file->device = st.st_dev;
	file->inode = st.st_ino;
	return read_bytes(BOOT_ID_FILE, file->boot_id, BOOT_ID_SIZE);
}

/*
 * session_file_place
 *		A hash of the data directory and the boot, different for any two
 *		servers; 0 if they are unknown.
 */
uint64
session_file_place(void)
{
	SessionFile here;
	uint64		place;

	if (!fill_place(&here))
		return 0;
	place =
		hash_bytes_extended((const unsigned char *) &here, sizeof(here), 0);
	return place == 0 ? 1 : place;
}

/*
 * session_file_remove
 *		There is no session any more.
 */
void
session_file_remove(void)
{
	if (unlink(SESSION_FILE) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", SESSION_FILE)));
}

/*
 * session_file_write
 *		Replace the file: this is the session.
 *
 * The former one is of a session that has ended.  It is not overwritten, since
 * a copy of the data directory may have it as a hard link.
 */
void
session_file_write(const SessionKey *key)
{
	SessionFile file;
	int			fd;
	bool		written;

	session_file_remove();
	if (!fill_place(&file))
		return;
	file.key = *key;
	file.crc = checksum(&file);

	fd = OpenTransientFilePerm(SESSION_FILE,
							   O_CREAT | O_EXCL | O_WRONLY | PG_BINARY,
							   S_IRUSR | S_IWUSR);
	if (fd >= 0)
		errno = ENOSPC;			/* if less is written without an error */
	written = fd >= 0 && write(fd, &file, sizeof(file)) == sizeof(file);
	if (fd >= 0 && CloseTransientFile(fd) != 0)
		written = false;
	if (!written)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", SESSION_FILE)));
}

/* Why the file is not valid in this place and boot, or NULL. */
static const char *
what_is_wrong(const SessionFile *file, const SessionFile *here)
{
	if (file->magic != SESSION_FILE_MAGIC ||
		file->crc != checksum(file) || file->key.client_id == 0)
		return NOT_OURS;
	if (file->device != here->device || file->inode != here->inode)
		return "It was written in another data directory.";
	if (memcmp(file->boot_id, here->boot_id, BOOT_ID_SIZE) != 0)
		return "It was written before the last start of the machine.";
	return NULL;
}

/*
 * session_file_read
 *		The session of the previous postmaster, or from before a crash, which
 *		is to be closed; false if there is none.
 *
 * An invalid file is removed.
 */
bool
session_file_read(SessionKey *key)
{
	SessionFile here;
	SessionFile file;
	const char *wrong = NOT_OURS;

	if (access(SESSION_FILE, F_OK) != 0 && errno == ENOENT)
		return false;
	if (!fill_place(&here))
		return false;
	if (read_bytes(SESSION_FILE, &file, sizeof(file)))
		wrong = what_is_wrong(&file, &here);
	if (wrong)
	{
		ereport(LOG,
				(errmsg("ignoring file \"%s\"", SESSION_FILE),
				 errdetail_internal("%s", wrong)));
		session_file_remove();
		return false;
	}
	*key = file.key;
	return true;
}
