/* Names of sandboxes, images and agents. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* ^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$ : an RFC 1123 label in lower case. */
bool name_is_valid(const char *name, size_t len);

/* What a valid name can begin with: as above, but a hyphen may be last. */
bool name_prefix_is_valid(const char *prefix, size_t len);

/* OWNER/REPOSITORY, each of letters, digits, "-", "_" and ".", with no "." in front; at most
 * LIMIT_REPOSITORY_BYTES in all. */
bool name_is_repository(const char *text);
