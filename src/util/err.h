/*
 * Errors: made where the failure is, carried up in a buffer on the caller's stack, given context on
 * the way. Functions return 0 or a negative errno and take `struct err *` last (NULL is allowed
 * when the caller does not want the text). Nothing here allocates, prints or exits, so every
 * process may use it, the set-up child after clone included.
 */
#pragma once

#include <errno.h>

#define ERR_MESSAGE_MAX 1024

struct err {
    char
        message[ERR_MESSAGE_MAX]; /* "" or one line: what was tried, on what, why not, what to do */
};

/* Sets the message and returns -code (code is a positive errno). The text is cut at the limit. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": " and the text of errno `code` appended. */
int err_errno(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts context in front of the message there is ("context: message"); returns `result` unchanged.
 */
int err_context(struct err *err, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
