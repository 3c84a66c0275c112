/*-------------------------------------------------------------------------
 *
 * mutation.h
 *		Mutations: deliberate defects, for the files that have them.
 *
 * The simulator or the checker of test/chaos must find each of them.  In
 * builds with ZKLOCK_TEST_BUILD the setting zklock.mutation, which
 * shared/test_build.c defines, selects one; other builds have none of this
 * code.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/mutation.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MUTATION_H
#define ZKLOCK_MUTATION_H

#ifdef ZKLOCK_TEST_BUILD

typedef enum ZkMutation
{
	ZK_MUTATION_NONE,
	ZK_COMMIT_CHECK_OFF,		/* commit, whatever has happened to the
								 * locks */
	ZK_RELEASE_BEFORE_COMMIT,	/* release the locks before the commit */
	ZK_RECOVERED_CREATE_OWNS,	/* take a contender that had to be searched for
								 * to be the owner */
	ZK_REQUEUED_OWNS,			/* take a requeued contender to be the owner,
								 * whatever its number */
	ZK_LOST_WAKEUP,				/* sometimes ignore that the predecessor is
								 * gone */
	ZK_GAP_OWNS,				/* own even if the number is not next to our
								 * last owner's */
	ZK_READER_PRECEDES,			/* remember a reader's number as an owner's */
	ZK_RECONNECTED_OWNS,		/* remember it across a lost connection */
	ZK_WATCH_CROSSES_CONNECTIONS,	/* count the answer to a get that was out
									 * when a connection was lost */
	ZK_COLLECTED_OWNS,			/* remember it in the next directory of the
								 * name */
	ZK_WATCHES_OF_ONE_TYPE,	/* forget all watches of a path when one fires */
	ZK_UNSENT_WATCH_DROPPED,	/* when the connection is lost, forget watches
								 * whose requests are out */
	ZK_WAKE_LATE,				/* lose events that arrive while others are
								 * taken */
	ZK_EVENT_DROPPED,			/* now and then, drop the event of a watch */
	ZK_MAIL_DROPPED,			/* now and then, begin no contender for a slot
								 * that asks for one */
	ZK_RELEASE_DROPPED,			/* now and then, do not release a contender for
								 * a slot that asks for it */
	ZK_CANCEL_KEEPS_NODE,		/* when a wait has ended ahead of the answer to
								 * its create, do not delete what that made */
	ZK_PERMIT_TWICE,			/* count one permit of others twice */
	ZK_PERMIT_MISSED,			/* do not count one permit of others */
	ZK_REQUEUE_KEEPS_TOKEN,		/* keep the token when queuing again */
	ZK_DIRECTORY_STAYS,			/* do not make a directory again that has been
								 * deleted */
	ZK_DELETE_FORGOTTEN,		/* take a delete for done whose answer is
								 * lost */
	ZK_CLAIM_STAYS,				/* do not end claims that are over */
	ZK_CLAIM_OVERLOOKED,		/* when one begins, do not note when it must be
								 * looked at */
	ZK_CLAIM_OVER_USED,			/* use and renew those that are over */
	ZK_CLAIM_NOT_RENEWED,		/* renew none, and say that it was */
	ZK_CLAIM_RENEWED_UNPROVED,	/* renew those of a session that may have
								 * ended */
	ZK_CLAIM_UNCHECKED,			/* commit under a claim that is lost */
	ZK_CLAIM_USERS_FORGOTTEN,	/* release the lock with the claim, in use or
								 * not */
	ZK_CLAIM_ENDS_LATE,			/* a claim goes on for a while when its ttl is
								 * over */
	ZK_ROOM_UNCHECKED,			/* begin contenders that do not fit */
	ZK_RESTORE_UNNOTICED,		/* do not notice that ZooKeeper is an older
								 * copy */
	ZK_LATE_ANSWER_PROVES,		/* take an answer to prove the session until it
								 * arrives, not until the request was sent */
	ZK_CLOCK_READ_TWICE,		/* sleep without an end if what is due is due
								 * between two readings of the clock */
	ZK_EVENT_LEAKED,			/* do not free what a watch has told */
	ZK_HEARTBEAT_ALWAYS,		/* keep the lease of a session without locks */
	ZK_NOT_HANDED_ON,			/* release a lock though others of the instance
								 * wait for it */
	ZK_EXCLUSION_IGNORED,		/* take locks of all instances, whatever
								 * zklock.exclusion is */
	ZK_EXCLUSION_APART,			/* a heavyweight lock of its own for a lock of
								 * the instance alone */
	ZK_LOSS_CANCELS,			/* cancel the statement of a session that the
								 * loss of its lock is to end */
	ZK_LOSS_UNTOLD,				/* do not end a session that has lost its lock
								 * during a commit */
	ZK_LEASE_OF_ONE,			/* have one proof prolong the lease by the
								 * session timeout */
	ZK_REVOCATION_FORGOTTEN,	/* retain a lock by habit as if it had not been
								 * revoked */
	ZK_OTHERS_FORGOTTEN,		/* the same as if no other kind of client had
								 * been seen in its queue */
	ZK_HABITS_UNBOUNDED,		/* retain by habit more locks than there may
								 * be */
	ZK_PROOF_UNASKED,			/* commit with quorum without having asked */
	ZK_LEASE_FOR_QUORUM,		/* take the lease for a proof by the quorum */
	ZK_SYNC_UNANSWERED,			/* send requests behind the sync check, before its
								 * answer */
	ZK_SYNC_OF_BEFORE,			/* take the answer on the last connection to be that
								 * on the next */
	ZK_QUANTUM_FORGOTTEN,		/* hand a contended lock on for as long as somebody
								 * takes it */
	ZK_CONTENTION_IGNORED,		/* do not note that others wait */
	ZK_CHANGE_IGNORED,			/* do not note that the queue behind readers
								 * has changed */
	ZK_OPERATION_LEAKED,		/* do not free requests that list children */
	ZK_ANSWER_LEAKED,			/* do not free the children that an answer has */
	ZK_READS_NOT_AGAIN,			/* when a batch has failed, do not send again what
								 * was sent behind its writes */
	ZK_ANSWER_WAKES_NOBODY,		/* now and then, do not wake the main thread for
								 * an answer */
	ZK_GRANT_WAKES_NOBODY,		/* now and then, wake nobody for a grant */
	ZK_CYCLE_ANY_GENERATION,	/* identities of edges without generations */
	ZK_CYCLE_ANY_WAY,			/* and without their ways */
	ZK_CYCLE_AHEAD_FAILS,		/* a victim that is only ahead of a member */
	ZK_CYCLE_LOCAL_ORDER,		/* each instance has an order of its own */
	ZK_CYCLE_GIVES_UP,			/* a confirm goes when its time has passed */
	ZK_CYCLE_WRITES_AT_ONCE,	/* new edges are published at any time */
	ZK_CYCLE_UNCONFIRMED,		/* act without the confirms of all */
	ZK_CYCLE_ACT_UNCHECKED,		/* do not check them in the act */
	ZK_CYCLE_KEEPER_UNCHECKED,	/* nor the writers that keep readers */
	ZK_CYCLE_LEFTOVERS_STAY,	/* leave there what the worker before has
								 * left */
	ZK_CYCLE_LOOKS_AHEAD,		/* do not look behind our own write */
	ZK_CYCLE_LOADS_BEHIND,		/* do not wait for what is left of before */
	ZK_CYCLE_NO_RESCAN,			/* what was published is taken to be
								 * there still */
	ZK_CYCLE_ENDS_LATE,			/* it is published at the next scan that an
								 * edge has ended */
	ZK_CYCLE_SOUGHT_IS_DONE,	/* take an act without an answer to be done */
	ZK_CYCLE_SECOND_VICTIM		/* fail other members of ours along with the
								 * victim */
} ZkMutation;

extern int	zklock_mutation;	/* a ZkMutation */

#define ZK_MUTATED(mutation)	(zklock_mutation == (mutation))

#else

#define ZK_MUTATED(mutation)	(false)

#endif

#endif							/* ZKLOCK_MUTATION_H */
