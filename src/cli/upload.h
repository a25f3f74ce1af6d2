/*
 * Where the archive of an import comes from: a file, standard input ("-"), or the folder of an OCI
 * image layout, which is packed on the way. The command line alone; blocks.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "util/err.h"

struct cli_upload;

/* -EINVAL: a folder that is no layout; errors of opening. The caller closes *ret. */
int cli_upload_open(const char *path, struct cli_upload **ret, struct err *err);
void cli_upload_close(struct cli_upload *upload);
static inline void cli_upload_close_at(struct cli_upload **upload)
{
    cli_upload_close(*upload);
}
#define cleanup_upload __attribute__((cleanup(cli_upload_close_at)))

int64_t cli_upload_size(const struct cli_upload *upload); /* in bytes; -1: not known */
/* Up to `max` bytes; 0: the end; negative: cli_upload_error says why. */
ssize_t cli_upload_read(void *upload, char *data, size_t max);
const struct err *cli_upload_error(const struct cli_upload *upload);
