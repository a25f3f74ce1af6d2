/* Errors; see err.h. */
#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
    }
    return -code;
}

int err_errno(struct err *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        size_t len = strlen(err->message);
        snprintf(err->message + len, sizeof(err->message) - len, ": %s", strerror(code));
    }
    return -code;
}

int err_context(struct err *err, int result, const char *format, ...)
{
    if (err) {
        struct err inner = *err;
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        size_t len = strlen(err->message);
        snprintf(err->message + len, sizeof(err->message) - len, ": %s", inner.message);
    }
    return result;
}
