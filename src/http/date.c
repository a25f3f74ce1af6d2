/* See date.h. */
#include "http/date.h"

#include <assert.h>
#include <time.h>

const char *http_date(char ret[HTTP_DATE_SIZE])
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    size_t len = strftime(ret, HTTP_DATE_SIZE, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    assert(len == HTTP_DATE_SIZE - 1); /* the names of the C locale, which no daemon leaves */
    return ret;
}
