/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The background worker: requests out, completions in, grants.
 *
 * The worker keeps one contender (recipe.c) for each slot that is wanted or
 * owned, and one session (session.c) for all of them.  Its loop opens the
 * mail of the slots, deals with what the session tells, and sleeps on its
 * latch and on the session's file descriptor.
 *
 * The worker may end at any time and lose nothing.  What the next one needs
 * is in shared memory: the session's id and password, and for each slot its
 * state and contender.  A worker that ends alone therefore leaves the session
 * open, and the next one resumes it.  The session is closed only when the
 * server shuts down or zklock.servers has a new chroot, and then only after
 * the last backend has dropped its locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "shared/compat.h"
#include "shared/queries.h"
#include "shared/slots.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/timestamp.h"
#include "worker/queries.h"
#include "worker/session.h"
#include "zklock.h"

/* How long to wait before trying to open a session again. */
#define REOPEN_DELAY_MS		1000

/* How long to wait before trying again what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* How often to look whether the last holder is gone, if the session is to end. */
#define DRAIN_CHECK_MS		10

/*
 * A contender that has owned its lock for this long is guarded, so that it can
 * be asked for by other clients; so many of them at the most, since the library
 * sets all watches again in one request when it reconnects.
 */
#define GUARD_DELAY_MS		1000
#define MAX_GUARDED			1000

/* In the data directory, which is every process's working directory. */
#define POSTMASTER_PID_FILE	"postmaster.pid"

/* Forget which lock directories exist when they become this many. */
#define MAX_KNOWN_DIRECTORIES	16384

typedef struct Contender
{
	ZkSlot	   *slot;			/* hash key, must be first */
	uint32		id;				/* owner of its operations */
	int64		owner_since;	/* zk_now_ms(); 0: not seen as owner */
	Recipe		recipe;
} Contender;

typedef struct ContenderId
{
	uint32		id;				/* hash key, must be first */
	Contender  *contender;
} ContenderId;

PGDLLEXPORT void zklock_worker_main(Datum main_arg);

static HTAB *contenders;		/* by slot */
static HTAB *contender_ids;		/* by id */
static HTAB *known_directories; /* paths that have been seen to exist */
static uint32 last_contender_id = 0;
static ZkSessionInfo session;	/* what session_write() last published */
static int64 reopen_at = 0;		/* zk_now_ms() before which not to open one */
static int64 retry_at = 0;		/* the same of RECIPE_RETRY; 0: none needed */
static int64 guard_at = 0;		/* the same of the next guard_owners() */
static bool stranger_warned = false;

static void
publish_session(ZkSessionState state)
{
	if (session.state != state)
	{
		session.state = state;
		session.state_since = GetCurrentTimestamp();
	}
	session_write(&session);
}

static void
worker_exit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	slots_detach_worker();
	session.worker_pid = 0;
	session.server[0] = '\0';
	publish_session(ZK_SESSION_DOWN);
}

/* The part of zklock.servers that says below which znode all our paths are. */
static const char *
chroot_of(const char *servers)
{
	const char *slash = strchr(servers, '/');

	return slash && slash[1] != '\0' ? slash : "";
}

/*
 * Has zklock.servers another chroot than the session has begun with?  Then no
 * contender is begun any more until nothing is held, and the session ends.
 */
static bool
chroot_changed(void)
{
	return session.client_id != 0 &&
		strcmp(session.chroot, chroot_of(zklock_servers)) != 0;
}

static HTAB *
create_table(const char *name, Size keysize, Size entrysize, int flags)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return hash_create(name, 256, &ctl, HASH_ELEM | flags);
}

static Contender *
make_contender(ZkSlot *slot)
{
	Contender  *contender;
	bool		found;

	contender = hash_search(contenders, &slot, HASH_ENTER, &found);
	if (!found)
	{
		ContenderId *by_id;

		/* they wrap around, and some contenders live long */
		do
			last_contender_id = (last_contender_id + 1) & ~QUERY_OWNER;
		while (hash_search(contender_ids, &last_contender_id, HASH_FIND, NULL));
		contender->id = last_contender_id;
		contender->owner_since = 0;
		recipe_init(&contender->recipe);
		by_id = hash_search(contender_ids, &contender->id, HASH_ENTER, NULL);
		by_id->contender = contender;
	}
	return contender;
}

static void
drop_contender(Contender *contender)
{
	recipe_free(&contender->recipe);
	hash_search(contender_ids, &contender->id, HASH_REMOVE, NULL);
	hash_search(contenders, &contender->slot, HASH_REMOVE, NULL);
}

static void
forget_directories(void)
{
	if (known_directories)
		hash_destroy(known_directories);
	known_directories = create_table("zklock directories", ZNODE_PATH_SIZE,
									 ZNODE_PATH_SIZE, HASH_STRINGS);
}

static bool
directory_known(const char *path)
{
	return hash_search(known_directories, path, HASH_FIND, NULL) != NULL;
}

static void
note_directory(const char *path, bool known)
{
	if (!known)
		hash_search(known_directories, path, HASH_REMOVE, NULL);
	else
	{
		if (hash_get_num_entries(known_directories) >= MAX_KNOWN_DIRECTORIES)
			forget_directories();
		hash_search(known_directories, path, HASH_ENTER, NULL);
	}
}

/* Begin a new contender for a slot that is wanted. */
static void
want(Contender *contender, RecipeOutput *out)
{
	uint8		uuid[ZNODE_UUID_BYTES];

	if (!pg_strong_random(uuid, sizeof(uuid)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	znode_make_uuid(uuid);
	contender->owner_since = 0;
	slot_set_uuid(contender->slot, uuid);
	recipe_want(&contender->recipe, uuid, ZNODE_MUTEX, false,
				directory_known(contender->slot->path), out);
}

static void
refuse(Contender *contender, int error)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (session_error_is_access(error))
		refusal = ZK_REFUSAL_ACCESS;
	else if (session_error_is_no_node(error))
		refusal = ZK_REFUSAL_NO_CHROOT;

	ereport(LOG,
			(errmsg("ZooKeeper refused a contender for \"%s\": %s",
					contender->slot->path, session_error_text(error))));
	slot_set_refused(contender->slot, refusal);
}

static void
warn_of_stranger(Contender *contender, const char *stranger)
{
	if (stranger_warned)
		return;
	stranger_warned = true;
	ereport(WARNING,
			(errmsg("ignoring znode \"%s\" in lock directory \"%s\"",
					stranger, contender->slot->path),
			 errdetail("Its name does not end in a sequence number, so it is no contender for the lock."),
			 errhint("Curator clients count it as one and may wait for it forever: do not keep other znodes in lock directories.")));
}

/*
 * Our node may be left in ZooKeeper.  If it was its deletion that was refused,
 * that is tried again from time to time, and who wants the slot is told that
 * it may take long.
 */
static void
warn_of_left(Contender *contender, const RecipeOutput *out)
{
	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					contender->slot->path, contender->recipe.node,
					session_error_text(out->error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (contender->recipe.state == RECIPE_LEAVING)
	{
		slot_set_queued(contender->slot);
		if (retry_at == 0)
			retry_at = zk_now_ms() + RETRY_DELAY_MS;
	}
}

/* What a person finds in our contenders: short, and who we are. */
static const char *
contender_data(void)
{
	static char data[256];
	char		host[128];

	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "unknown", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	snprintf(data, sizeof(data), "postgresql host=%s port=%d cluster=%s",
			 host, PostPortNumber, cluster_name);
	return data;
}

static void
submit(Contender *contender, RecipeOp *op)
{
	if (op->kind == RECIPE_OP_CREATE || op->kind == RECIPE_OP_SET)
		op->data = contender_data();
	session_submit(contender->id, contender->slot->path, op, 0);
}

/* The contender owns its lock: guard it, if that goes on for long. */
static void
note_owner(Contender *contender)
{
	contender->owner_since = zk_now_ms();
	if (guard_at == 0)
		guard_at = contender->owner_since + GUARD_DELAY_MS;
}

/* Another client has written into our node that it wants the lock. */
static void
revoked(ZkSlot *slot)
{
	int			n = slot_cancel_holders_of(slot);

	ereport(LOG,
			(errmsg("another client asks for lock \"%s\"", slot->path),
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n)));
}

/*
 * Do what a step of the recipe came out with: send its operations and tell
 * the slot the news.  The contender is gone afterwards if the news was that.
 */
static void
carry_out(Contender *contender, RecipeOutput *out)
{
	ZkSlot	   *slot = contender->slot;
	Recipe	   *recipe = &contender->recipe;

	for (;;)
	{
		ereport(DEBUG3,
				(errmsg_internal("contender \"%s/%s\" is %s", slot->path,
								 recipe->node,
								 recipe_state_name(recipe->state))));
		for (int i = 0; i < out->nops; i++)
			submit(contender, &out->ops[i]);

		if (out->told & RECIPE_TOLD_STRANGER)
			warn_of_stranger(contender, out->stranger);
		if (out->told & RECIPE_TOLD_CREATED)
		{
			slot_set_created(slot, recipe->sequence);
			note_directory(slot->path, true);
		}
		if (out->told & RECIPE_TOLD_QUEUED)
			slot_set_queued(slot);
		if (out->told & RECIPE_TOLD_GRANTED)
			slot_set_granted(slot);
		if (out->told & RECIPE_TOLD_TOKEN)
			slot_set_token(slot, out->token);
		if (recipe->state == RECIPE_OWNER && contender->owner_since == 0)
			note_owner(contender);
		if (out->told & RECIPE_TOLD_REVOKED)
			revoked(slot);
		if (out->told & RECIPE_TOLD_LOST)
			ereport(LOG,
					(errmsg("lost the lock \"%s\"", slot->path)));
		if (out->told & RECIPE_TOLD_FAILED)
			refuse(contender, out->error);
		if (out->told & RECIPE_TOLD_LEFT)
			warn_of_left(contender, out);

		if (!recipe->dir_known)
			note_directory(slot->path, false);
		if (!(out->told & RECIPE_TOLD_GONE))
			return;
		if (!slot_set_gone(slot) || chroot_changed())
		{
			drop_contender(contender);
			return;
		}
		want(contender, out);
	}
}

/* The slot is wanted: have a contender for it, if it has none. */
static void
begin_contender(ZkSlot *slot)
{
	Contender  *contender;
	RecipeOutput out;

	if (chroot_changed())
		return;					/* take_over() will, in the next session */
	contender = make_contender(slot);
	if (contender->recipe.state != RECIPE_NONE)
		return;
	want(contender, &out);
	carry_out(contender, &out);
}

static void
release_contender(ZkSlot *slot)
{
	RecipeInput input = {.event = RECIPE_RELEASE};
	Contender  *contender;
	RecipeOutput out;

	contender = hash_search(contenders, &slot, HASH_FIND, NULL);
	if (contender != NULL)
	{
		recipe_step(&contender->recipe, &input, &out);
		carry_out(contender, &out);
	}
	else if (slot_set_gone(slot))
		begin_contender(slot);
}

static void
open_mail(void)
{
	ZkSlot	   *slot = slots_collect_mail();

	while (slot != NULL)
	{
		ZkSlot	   *next;
		ZkMail		mail = slot_open_mail(slot, &next);

		if (mail == ZK_MAIL_WANT)
			begin_contender(slot);
		else if (mail == ZK_MAIL_RELEASE)
			release_contender(slot);
		slot = next;
	}
}

/*
 * Have a contender for each slot that wants one and has none: take over those
 * of the worker before this one, begin the others.
 */
static void
take_over(void)
{
	int			nslots;
	ZkSlot	  **list = slots_list(&nslots);

	for (int i = 0; i < nslots; i++)
	{
		ZkSlot	   *slot = list[i];
		uint8		uuid[ZNODE_UUID_BYTES];
		int32		sequence;
		bool		has_uuid;
		bool		has_sequence;
		RecipeResume how;
		Contender  *contender;
		RecipeOutput out;

		if (hash_search(contenders, &slot, HASH_FIND, NULL) != NULL)
			continue;
		switch (slot_read_contender(slot, uuid, &has_uuid,
									&sequence, &has_sequence))
		{
			case ZK_SLOT_WANTED:
				how = RECIPE_RESUME_WANTED;
				break;
			case ZK_SLOT_IDLE:
			case ZK_SLOT_HELD:
				how = RECIPE_RESUME_OWNED;
				break;
			case ZK_SLOT_RELEASING:
				how = RECIPE_RESUME_RELEASING;
				break;
			default:
				continue;		/* not in the list */
		}

		contender = make_contender(slot);
		if (has_uuid)
			recipe_resume(&contender->recipe, uuid, ZNODE_MUTEX, false, how,
						  has_sequence ? &sequence : NULL, &out);
		else if (how == RECIPE_RESUME_WANTED)
			want(contender, &out);
		else
		{
			/* given up before any worker saw that it was wanted */
			memset(&out, 0, sizeof(out));
			out.told = RECIPE_TOLD_GONE;
		}
		carry_out(contender, &out);
	}
	pfree(list);
}

/* All contenders, palloc'd: carry_out() changes the table. */
static Contender **
list_contenders(int *n)
{
	HASH_SEQ_STATUS scan;
	Contender  *contender;
	Contender **list;

	list = palloc(sizeof(Contender *) *
				  Max(hash_get_num_entries(contenders), 1));
	*n = 0;
	hash_seq_init(&scan, contenders);
	while ((contender = hash_seq_search(&scan)) != NULL)
		list[(*n)++] = contender;
	return list;
}

/* Try again what ZooKeeper has refused. */
static void
retry_refused(void)
{
	int			n;
	Contender **list;
	RecipeInput input = {.event = RECIPE_RETRY};
	RecipeOutput out;

	if (retry_at == 0 || zk_now_ms() < retry_at)
		return;
	retry_at = 0;
	list = list_contenders(&n);
	for (int i = 0; i < n; i++)
	{
		recipe_step(&list[i]->recipe, &input, &out);
		carry_out(list[i], &out);
	}
}

/*
 * Have those contenders guarded that have owned their locks for some time, and
 * come back as long as there are others.
 */
static void
guard_owners(void)
{
	int64		now = zk_now_ms();
	int			n;
	int			guarded = 0;
	Contender **list;
	RecipeInput input = {.event = RECIPE_GUARD};
	RecipeOutput out;

	if (guard_at == 0 || now < guard_at)
		return;
	guard_at = 0;
	list = list_contenders(&n);
	for (int i = 0; i < n; i++)
		if (list[i]->recipe.state == RECIPE_OWNER && list[i]->recipe.guard != 0)
			guarded++;
	for (int i = 0; i < n; i++)
	{
		Recipe	   *recipe = &list[i]->recipe;

		if (recipe->state != RECIPE_OWNER || recipe->guard != 0)
			continue;
		if (now - list[i]->owner_since < GUARD_DELAY_MS ||
			guarded == MAX_GUARDED)
		{
			guard_at = now + GUARD_DELAY_MS;
			continue;
		}
		guarded++;
		recipe_step(recipe, &input, &out);
		carry_out(list[i], &out);
	}
}

/* Forget all contenders, whose session is over, and tell the slots. */
static void
forget_contenders(void)
{
	int			n;
	Contender **list = list_contenders(&n);
	RecipeInput input = {.event = RECIPE_EXPIRED};
	RecipeOutput out;

	for (int i = 0; i < n; i++)
	{
		recipe_step(&list[i]->recipe, &input, &out);
		if (out.told & RECIPE_TOLD_LOST)
			ereport(LOG,
					(errmsg("lost the lock \"%s\"", list[i]->slot->path)));
		(void) slot_set_gone(list[i]->slot);
		drop_contender(list[i]);
	}
}

/*
 * The session is over, or we end it ourselves, which takes slots_retire().
 * What is still wanted queues again, in the next session.
 */
static void
end_session(const char *why)
{
	ereport(LOG,
			(errmsg("ZooKeeper session 0x%llx has ended",
					(unsigned long long) session.client_id),
			 errdetail_internal("%s", why)));
	forget_contenders();
	session_close();
	forget_directories();

	session.client_id = 0;
	memset(session.passwd, 0, sizeof(session.passwd));
	session.server[0] = '\0';
	publish_session(ZK_SESSION_CONNECTING);

	take_over();
	queries_restart();
}

static void
session_up(void)
{
	SessionIdentity identity;

	session_identity(&identity);
	if (session.client_id != identity.client_id)
		session.sessions++;
	else
		session.reconnects++;
	session.client_id = identity.client_id;
	memcpy(session.passwd, identity.passwd, sizeof(session.passwd));
	session.timeout = identity.timeout;
	strlcpy(session.server, identity.address, sizeof(session.server));
	session.last_error[0] = '\0';
	publish_session(ZK_SESSION_CONNECTED);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					identity.address, (unsigned long long) identity.client_id,
					identity.timeout)));
}

/*
 * A line of the library's log.  It repeats itself at each attempt to connect,
 * so only what differs from the last one goes to the server log.
 */
static void
session_message(const char *message)
{
	const char *line = strchr(message, '@');

	/* "<time>:<pid>(<thread>):ZOO_ERROR@<function>@<line>: <line>" */
	line = line ? strstr(line, ": ") : NULL;
	line = line ? line + 2 : message;

	if (strncmp(session.last_error, line, sizeof(session.last_error) - 1) != 0)
	{
		strlcpy(session.last_error, line, sizeof(session.last_error));
		session_write(&session);
		ereport(LOG, (errmsg("ZooKeeper client: %s", line)));
	}
	else
		ereport(DEBUG1, (errmsg("ZooKeeper client: %s", line)));
}

static void
contender_event(const SessionEvent *event)
{
	ContenderId *by_id;
	RecipeOutput out;

	by_id = hash_search(contender_ids, &event->owner, HASH_FIND, NULL);
	if (by_id == NULL)
		return;					/* a watch of one that is gone */
	recipe_step(&by_id->contender->recipe, &event->input, &out);
	carry_out(by_id->contender, &out);
}

static void
session_events(void)
{
	SessionEvent event;

	while (session_next_event(&event))
	{
		switch (event.kind)
		{
			case SESSION_UP:
				session_up();
				SetLatch(MyLatch);	/* collect what was asked meanwhile */
				break;
			case SESSION_SUSPENDED:
				session.server[0] = '\0';
				publish_session(session.client_id != 0 ?
								ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
				ereport(LOG, (errmsg("lost the connection to ZooKeeper")));
				if (session_is_stuck())
				{
					ereport(LOG,
							(errmsg("restarting the zklock worker, since ZooKeeper answers on no connection")));
					proc_exit(1);
				}
				break;
			case SESSION_EXPIRED:
				end_session("ZooKeeper has let it expire.");
				break;
			case SESSION_AUTH_FAILED:
				/* the session lives on: the next worker tries to resume it */
				ereport(LOG,
						(errmsg("ZooKeeper refused the credentials of \"zklock.auth\"")));
				proc_exit(1);
				break;
			case SESSION_ANSWER:
			case SESSION_WATCH:
				if (event.owner & QUERY_OWNER)
					queries_event(event.owner, &event.input);
				else
					contender_event(&event);
				break;
			case SESSION_MESSAGE:
				session_message(event.message);
				break;
		}
	}
}

static void
open_session(void)
{
	SessionOptions options;
	char	   *servers;

	if (session_is_open() || zk_now_ms() < reopen_at)
		return;

	/* a session lives below the chroot that it has begun with */
	if (session.client_id == 0)
		strlcpy(session.chroot, chroot_of(zklock_servers),
				sizeof(session.chroot));
	servers = psprintf("%.*s%s", (int) strcspn(zklock_servers, "/"),
					   zklock_servers, session.chroot);

	memset(&options, 0, sizeof(options));
	options.servers = servers;
	options.timeout = zklock_session_timeout;
	options.auth = zklock_auth;
	options.creator_acl = zklock_acl == ZK_ACL_CREATOR;
	options.client_id = session.client_id;
	memcpy(options.passwd, session.passwd, sizeof(options.passwd));

	if (session_open(&options))
		publish_session(ZK_SESSION_CONNECTING);
	else
	{
		int			save_errno = errno;

		/* the library has told more, if it knew more */
		session_events();
		if (session.last_error[0] == '\0')
			snprintf(session.last_error, sizeof(session.last_error),
					 "could not begin to connect: %s", strerror(save_errno));
		publish_session(ZK_SESSION_DOWN);
		reopen_at = zk_now_ms() + REOPEN_DELAY_MS;
	}
}

/*
 * Apply a changed configuration.  Another chroot takes effect in the main
 * loop, when nothing is held; all else with the next worker, which resumes the
 * session with the new settings.
 */
static void
reload(void)
{
	char	   *servers = pstrdup(zklock_servers);
	char	   *auth = pstrdup(zklock_auth);
	int			timeout = zklock_session_timeout;
	int			old_acl = zklock_acl;
	bool		waiting = chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	servers[strcspn(servers, "/")] = '\0';
	if (strlen(servers) != strcspn(zklock_servers, "/") ||
		strncmp(servers, zklock_servers, strlen(servers)) != 0 ||
		strcmp(auth, zklock_auth) != 0 ||
		timeout != zklock_session_timeout || old_acl != zklock_acl)
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	/* changed back: what was put off is wanted here after all */
	if (waiting && !chroot_changed())
		take_over();

	pfree(servers);
	pfree(auth);
}

/*
 * Is the whole server shutting down, rather than this worker being terminated
 * alone?  The postmaster notes it in its pid file, for pg_ctl, before it
 * signals anybody.
 */
static bool
server_is_stopping(void)
{
	FILE	   *file = fopen(POSTMASTER_PID_FILE, "r");
	char		line[MAXPGPATH];
	bool		stopping = false;

	if (file == NULL)
		return false;
	for (int i = 1; fgets(line, sizeof(line), file) != NULL; i++)
		if (i == LOCK_FILE_LINE_PM_STATUS)
			stopping = strncmp(line, PM_STATUS_STOPPING,
							   strlen(PM_STATUS_STOPPING)) == 0;
	fclose(file);
	return stopping;
}

/*
 * SIGTERM has come.  Returns if the worker has to go on, for backends that
 * still hold locks while the server stops: a backend may be in the middle of
 * its commit, and its locks must not be free before that is over.
 */
static void
shut_down(void)
{
	if (!server_is_stopping())
	{
		ereport(LOG,
				(errmsg("zklock worker is terminated, its session goes on")));
		proc_exit(1);
	}
	if (!slots_retire())
		return;
	session_close();
	session.client_id = 0;
	session_write(&session);

	/* not 0: in a smart shutdown of long, a new worker may be wanted */
	proc_exit(1);
}

/* The earlier of two times, of which 0 is none. */
static int64
earlier(int64 a, int64 b)
{
	if (a == 0 || b == 0)
		return a + b;
	return Min(a, b);
}

/*
 * zklock_worker_main
 *		Entry point of the background worker.
 */
void
zklock_worker_main(Datum main_arg pg_attribute_unused())
{
	WaitEventSet *wait_set;
	MemoryContext loop_context;
	static uint32 wait_event = 0;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	/* shared catalogs only: to be seen in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(ZKLOCK_WORKER_NAME);

	contenders = create_table("zklock contenders", sizeof(ZkSlot *),
							  sizeof(Contender), HASH_BLOBS);
	contender_ids = create_table("zklock contender ids", sizeof(uint32),
								 sizeof(ContenderId), HASH_BLOBS);
	forget_directories();
	loop_context = AllocSetContextCreate(TopMemoryContext, "zklock worker loop",
										 ALLOCSET_DEFAULT_SIZES);

	session_read(&session);
	session.worker_pid = MyProcPid;
	session.last_error[0] = '\0';
	publish_session(ZK_SESSION_CONNECTING);
	before_shmem_exit(worker_exit, (Datum) 0);

	wait_set = ZkCreateWaitEventSet(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, session_init(), NULL, NULL);

	slots_attach_worker();
	questions_attach_worker();
	MemoryContextSwitchTo(loop_context);
	take_over();

	for (;;)
	{
		WaitEvent	event;
		int64		flush_at;
		int64		wake_at;
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload();
		}
		if (ShutdownRequestPending)
			shut_down();
		if (chroot_changed() && slots_retire())
			end_session("\"zklock.servers\" has a new chroot.");

		open_session();
		if (session.state == ZK_SESSION_CONNECTED)
			queries_collect();
		open_mail();
		queries_begin();
		session_events();
		retry_refused();
		guard_owners();
		flush_at = session_flush();
		MemoryContextReset(loop_context);

		wake_at = 0;
		if (ShutdownRequestPending || chroot_changed())
			wake_at = zk_now_ms() + DRAIN_CHECK_MS;
		if (!session_is_open())
			wake_at = earlier(wake_at, Max(reopen_at, 1));
		wake_at = earlier(wake_at, retry_at);
		wake_at = earlier(wake_at, guard_at);
		wake_at = earlier(wake_at, flush_at);
		timeout = wake_at == 0 ? -1 : Max(wake_at - zk_now_ms(), 0);
		(void) WaitEventSetWait(wait_set, timeout, &event, 1,
								ZkWaitEvent(wait_event, "ZkLockWorkerMain"));
		ResetLatch(MyLatch);
	}
}
