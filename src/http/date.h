/* The time as HTTP writes it. api and egress. */
#pragma once

#define HTTP_DATE_SIZE 30

/* Now, as "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7), always of 29 characters and
 * terminated. Returns ret. */
const char *http_date(char ret[HTTP_DATE_SIZE]);
