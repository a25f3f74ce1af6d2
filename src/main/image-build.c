/*
 * paddock-image-build NAME: builds one image, once. Started by paddockd as root of a user namespace
 * (sandbox_jail_start, kind BUILD) with the empty root folder of the image at /out, the recipe as
 * descriptor 3, a memfd for the image's size as descriptor 4, and the log as its output.
 *
 * Exit status 0: the image is whole. 1: it is not, and the last line of the log says why.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "image/build.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/name.h"

static int image_build(const char *name, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_recipe struct recipe recipe = {0};
    int result = build_check_namespace(err);
    if (result < 0)
        return result;
    fd_set_cloexec(BUILD_RECIPE_FD, true);
    fd_set_cloexec(BUILD_REPORT_FD, true); /* packages' scripts write no report */
    result = fd_read_all(BUILD_RECIPE_FD, &text);
    if (result < 0)
        return err_errno(err, -result, "cannot read the recipe from descriptor %d",
                         BUILD_RECIPE_FD);
    result = recipe_parse("build.json", buf_text(&text), text.len, &recipe, err);
    return result < 0 ? result : build_image(name, &recipe, err);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    umask(022); /* the image's folders are for all of its users, whatever ours was */
    if (argc != 2 || !name_is_valid(argv[1], strlen(argv[1]))) {
        fputs("paddock-image-build is started by paddockd: use `paddock image build NAME`\n",
              stderr);
        return 2;
    }
    if (image_build(argv[1], &err) < 0) {
        printf("error: %s\n", err.message);
        return 1;
    }
    return 0;
}
