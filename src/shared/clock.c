/*-------------------------------------------------------------------------
 *
 * clock.c
 *		The clock that all processes of an instance share.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/clock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "shared/clock.h"
#include "utils/timestamp.h"

static int64
read_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * zk_now_us, zk_now_ms
 *		The time of a clock that also runs while the machine sleeps, in
 *		microseconds or milliseconds.
 */
int64
zk_now_us(void)
{
	return read_us(CLOCK_BOOTTIME);
}

int64
zk_now_ms(void)
{
	return zk_now_us() / 1000;
}

/*
 * zk_earlier
 *		The earlier one of two times of these clocks, each of which may be 0:
 *		never.
 */
int64
zk_earlier(int64 one, int64 other)
{
	return one == 0 ? other : other == 0 ? one : Min(one, other);
}

/*
 * zk_cpu_us
 *		How long this thread has been on a processor, in microseconds.
 */
int64
zk_cpu_us(void)
{
	return read_us(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * zk_wall_time
 *		The time of day when zk_now_us() is, or was, "us": to be shown, not
 *		compared, since the clock may have been set meanwhile.
 *
 * The two clocks are not read at the same moment.  Their difference is rounded
 * to milliseconds, so that each call shows the same time.
 */
TimestampTz
zk_wall_time(int64 us)
{
	int64		difference = GetCurrentTimestamp() - zk_now_us();

	return (difference + 500) / 1000 * 1000 + us;
}
