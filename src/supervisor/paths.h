/* Where our programs and data are, found from /proc/self/exe; never from PATH. */
#pragma once

#include <limits.h>

#include "util/err.h"

struct paths {
    char api[PATH_MAX];
    char egress[PATH_MAX];
    char init[PATH_MAX];
    char jail[PATH_MAX];
    char image_build[PATH_MAX];
    char data[PATH_MAX]; /* holds policy/ and images/ */
};

/* Beside paddockd itself (build tree), else where they are installed, seen from there: so an
 * installed tree may lie anywhere (DESTDIR). Data likewise, or in the source tree above the build.
 * Errors: /proc cannot be read. A program that is missing is told when it is needed. */
int paths_find(struct paths *ret, struct err *err);
