/*
 * A recipe (build.json, see image.h), read and checked. Its strings become arguments of package
 * clients and paths in the image, so each has a narrow pattern: none can be an option, a second
 * argument, or a path out of its place.
 */
#pragma once

#include <stddef.h>

#include "util/err.h"

#define RECIPE_NPM_FOLDER "/opt/npm"

struct json;

struct recipe_link {
    const char *path; /* /usr/local/bin/NAME */
    char *target;     /* absolute, ${ARCH} put in */
};

struct recipe {
    const char *from;      /* the image that this one begins as; NULL: with nothing */
    const char *suite;     /* NULL, with `from` alone: no Debian packages */
    const char **packages; /* Debian packages: NAME or NAME=VERSION; at least one with a suite */
    size_t package_count;
    const char **npm; /* NAME@VERSION or @SCOPE/NAME@VERSION; may be none */
    size_t npm_count;
    struct recipe_link *links;
    size_t link_count;
    struct json *json; /* owns the strings above */
};

/* The name of this machine's architecture as npm packages spell it ("x64", "arm64"); this is what
 * ${ARCH} in a link's target stands for. */
const char *recipe_arch(void);

/* Parses and checks a recipe's text; `file` names it in errors ("FILE:LINE:COLUMN: reason").
 * Unknown keys are errors. On success the caller frees *ret with recipe_free. -EINVAL, -ENOMEM.
 * Pure: no I/O. */
int recipe_parse(const char *file, const char *data, size_t len, struct recipe *ret,
                 struct err *err);
void recipe_free(struct recipe *recipe);

#define cleanup_recipe __attribute__((cleanup(recipe_free)))
