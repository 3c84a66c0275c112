/*-------------------------------------------------------------------------
 *
 * error.c
 *		Stand-ins for ereport() and what belongs to it.
 *
 * All arguments are evaluated, whether there is a trace or not, so that a
 * trace changes nothing; but not those of debug messages.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/error.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#define MAX_ERRORS	8
#define TEXT_SIZE	2048

sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
bool		ExitOnAnyError = false;

static ErrorData errors[MAX_ERRORS];
static int	depth = -1;
static char sqlstate[6];		/* of the latest error, and what it was */
static char message[TEXT_SIZE];
static int	elog_errno;

const char *
error_sqlstate(void)
{
	return sqlstate;
}

const char *
error_message(void)
{
	return message;
}

bool
errstart(int elevel, const char *domain)
{
	(void) domain;
	if (elevel <= DEBUG1)
		return false;
	if (++depth >= MAX_ERRORS)
		sim_violation("errors", "errors in errors: %s", message);
	memset(&errors[depth], 0, sizeof(ErrorData));
	errors[depth].elevel = elevel;
	errors[depth].sqlerrcode = elevel >= ERROR ? ERRCODE_INTERNAL_ERROR :
		elevel >= WARNING ? ERRCODE_WARNING : ERRCODE_SUCCESSFUL_COMPLETION;
	errors[depth].saved_errno = errno;
	errors[depth].assoc_context = ErrorContext;
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

static char *
format_text(const char *format, va_list args)
{
	char		text[TEXT_SIZE];

	errno = errors[depth].saved_errno;
	pg_vsnprintf(text, sizeof(text), format, args);
	return MemoryContextStrdup(ErrorContext, text);
}

#define FORMAT(field) \
	do { \
		va_list		args; \
		Assert(depth >= 0); \
		va_start(args, fmt); \
		errors[depth].field = format_text(fmt, args); \
		va_end(args); \
	} while (0)

int
errcode(int code)
{
	errors[depth].sqlerrcode = code;
	return 0;
}

int
errcode_for_file_access(void)
{
	return errcode(ERRCODE_IO_ERROR);
}

int
errcode_for_socket_access(void)
{
	return errcode(ERRCODE_CONNECTION_FAILURE);
}

int
errmsg(const char *fmt,...)
{
	FORMAT(message);
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	FORMAT(message);
	return 0;
}

int
errdetail(const char *fmt,...)
{
	FORMAT(detail);
	return 0;
}

int
errdetail_internal(const char *fmt,...)
{
	FORMAT(detail);
	return 0;
}

int
errdetail_log(const char *fmt,...)
{
	FORMAT(detail_log);
	return 0;
}

int
errdetail_plural(const char *fmt_singular, const char *fmt_plural,
				 unsigned long n,...)
{
	va_list		args;

	va_start(args, n);
	errors[depth].detail = format_text(n == 1 ? fmt_singular : fmt_plural, args);
	va_end(args);
	return 0;
}

int
errhint(const char *fmt,...)
{
	FORMAT(hint);
	return 0;
}

int
errcontext_msg(const char *fmt,...)
{
	FORMAT(context);
	return 0;
}

int
set_errcontext_domain(const char *domain)
{
	(void) domain;
	return 0;
}

int
geterrcode(void)
{
	Assert(depth >= 0);
	return errors[depth].sqlerrcode;
}

static void
report(const ErrorData *error)
{
	sim_trace("%s %s: %s%s%s",
			  error->elevel >= FATAL ? "FATAL" : error->elevel >= ERROR ?
			  "ERROR" : error->elevel >= WARNING ? "WARNING" : "LOG",
			  unpack_sql_state(error->sqlerrcode),
			  error->message ? error->message : "",
			  error->detail ? " - " : "", error->detail ? error->detail : "");
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	ErrorData  *error = &errors[depth];
	int			elevel = error->elevel;
	int			code = error->sqlerrcode;

	error->filename = filename;
	error->lineno = lineno;
	error->funcname = funcname;
	for (ErrorContextCallback *context = error_context_stack; context != NULL;
		 context = context->previous)
		context->callback(context->arg);
	if (elevel == ERROR)
	{
		InterruptHoldoffCount = QueryCancelHoldoffCount = CritSectionCount = 0;
		if (PG_exception_stack == NULL)
			error->elevel = elevel = FATAL;
		else
			pg_re_throw();
	}
	report(error);
	if (elevel >= FATAL)
	{
		strlcpy(sqlstate, unpack_sql_state(code), sizeof(sqlstate));
		strlcpy(message, error->message ? error->message : "", sizeof(message));
		FlushErrorState();
		if (elevel >= PANIC)
			sim_violation("panic", "%s", message);
		proc_exit(1);
	}
	depth--;
	if (depth < 0)
		MemoryContextReset(ErrorContext);
}

void
pg_re_throw(void)
{
	if (PG_exception_stack == NULL)
	{
		errors[depth].elevel = FATAL;
		errfinish(errors[depth].filename, errors[depth].lineno,
				  errors[depth].funcname);
	}
	siglongjmp(*PG_exception_stack, 1);
}

/* As to the client of a backend, or to the log of a worker. */
void
EmitErrorReport(void)
{
	report(&errors[depth]);
	strlcpy(sqlstate, unpack_sql_state(errors[depth].sqlerrcode),
			sizeof(sqlstate));
	strlcpy(message, errors[depth].message ? errors[depth].message : "",
			sizeof(message));
}

void
FlushErrorState(void)
{
	depth = -1;
	MemoryContextReset(ErrorContext);
}

static char *
copy(const char *text)
{
	return text ? pstrdup(text) : NULL;
}

ErrorData *
CopyErrorData(void)
{
	ErrorData  *error = palloc(sizeof(ErrorData));

	*error = errors[depth];
	error->message = copy(error->message);
	error->detail = copy(error->detail);
	error->detail_log = copy(error->detail_log);
	error->hint = copy(error->hint);
	error->context = copy(error->context);
	error->assoc_context = CurrentMemoryContext;
	return error;
}

void
FreeErrorData(ErrorData *error)
{
	pfree(error);
}

void
ReThrowError(ErrorData *error)
{
	MemoryContext context = MemoryContextSwitchTo(ErrorContext);

	depth++;
	errors[depth] = *error;
	errors[depth].message = copy(error->message);
	errors[depth].detail = copy(error->detail);
	errors[depth].detail_log = copy(error->detail_log);
	errors[depth].hint = copy(error->hint);
	errors[depth].context = copy(error->context);
	MemoryContextSwitchTo(context);
	pg_re_throw();
}

char *
unpack_sql_state(int code)
{
	static char text[6];

	for (int i = 0; i < 5; i++)
	{
		text[i] = PGUNSIXBIT(code);
		code >>= 6;
	}
	return text;
}

void
pre_format_elog_string(int errnumber, const char *domain)
{
	(void) domain;
	elog_errno = errnumber;
}

char *
format_elog_string(const char *fmt,...)
{
	char		text[TEXT_SIZE];
	va_list		args;

	errno = elog_errno;
	va_start(args, fmt);
	pg_vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return MemoryContextStrdup(ErrorContext, text);
}

void
ExceptionalCondition(const char *condition, const char *type,
					 const char *file, int line)
{
	(void) type;
	sim_violation("assertion", "%s, %s:%d", condition, file, line);
}
