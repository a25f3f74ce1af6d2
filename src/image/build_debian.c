/*
 * Debian's part of an image, for paddock-image-build: mmdebstrap with the host's sources and ways
 * of fetching. They are asked of apt itself, so that every format of its files is read as apt reads
 * it.
 *
 * mmdebstrap runs in mode root: here root is that of our user namespace. (As root it would not make
 * one itself in its mode unshare.) mknod(2) is refused in it, and mmdebstrap then mounts the jail's
 * device nodes; /sys cannot be mounted and no package needs it.
 */
#include "image/build.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define APT_SETTINGS "/tmp/apt.conf"
#define WORD_MAX 512

/* The suite itself, its updates or its security updates. */
static bool is_of_suite(const char *release, const char *suite)
{
    static const char *const suffixes[] = {"", "-updates", "-security"};
    size_t len = strlen(suite);
    if (strncmp(release, suite, len) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (strcmp(release + len, suffixes[i]) == 0)
            return true;
    return false;
}

int build_select_sources(const char *lines, const char *suite, struct buf *ret)
{
    for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n') {
        char uri[WORD_MAX], release[WORD_MAX], component[WORD_MAX], source[3 * WORD_MAX];
        size_t len = strcspn(lines, "\n");
        char line[3 * WORD_MAX];
        if (len >= sizeof(line))
            continue;
        memcpy(line, lines, len);
        line[len] = '\0';
        if (sscanf(line, "%511s %511s %511s", uri, release, component) != 3 ||
            !is_of_suite(release, suite) || strcmp(component, "main") != 0)
            continue;
        snprintf(source, sizeof(source), "deb %s %s main\n", uri, release);
        if (strstr(buf_text(ret), source)) /* named once for each architecture */
            continue;
        int result = buf_append_string(ret, source);
        if (result < 0)
            return result;
    }
    return 0;
}

int build_select_apt_settings(const char *dump, struct buf *ret)
{
    static const char wanted[] = "Acquire::", indexes[] = "Acquire::IndexTargets";
    while (*dump) {
        size_t len = strcspn(dump, "\n");
        len += dump[len] == '\n';
        bool take = strncmp(dump, wanted, strlen(wanted)) == 0 &&
                    strncmp(dump, indexes, strlen(indexes)) != 0;
        int result = take ? buf_append(ret, dump, len) : 0;
        if (result < 0)
            return result;
        dump += len;
    }
    return 0;
}

/* Lines of a sources.list; none when the host has no source for the suite. */
static int debian_sources(const char *suite, struct buf *ret, struct err *err)
{
    static const char *const argv[] = {"apt-get",
                                       "indextargets",
                                       "--no-release-info",
                                       "--format",
                                       "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                                       "Created-By: Packages",
                                       NULL};
    cleanup_buf struct buf lines = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = build_run(argv, &lines, err);
    if (result < 0)
        return result;
    result = build_select_sources(buf_text(&lines), suite, ret);
    return result < 0 ? err_errno(err, -result, "cannot read apt's sources") : 0;
}

static int debian_apt_settings(struct err *err)
{
    static const char *const argv[] = {"apt-config", "dump", NULL};
    cleanup_buf struct buf dump = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_buf struct buf settings = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = build_run(argv, &dump, err);
    if (result < 0)
        return result;
    result = build_select_apt_settings(buf_text(&dump), &settings);
    cleanup_fd int fd = open(APT_SETTINGS, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_errno(err, errno, "cannot write %s", APT_SETTINGS);
    if (result == 0)
        result = fd_write_all(fd, buf_text(&settings), settings.len);
    return result < 0 ? err_errno(err, -result, "cannot write %s", APT_SETTINGS) : 0;
}

/* --include=A,B; dpkg, sh and the like come with the essential packages. */
static int debian_include(const struct recipe *recipe, struct buf *ret, struct err *err)
{
    int result = buf_append_string(ret, "--include=");
    for (size_t i = 0; i < recipe->package_count && result == 0; i++)
        result = buf_appendf(ret, "%s%s", i ? "," : "", recipe->packages[i]);
    return result < 0 ? err_errno(err, -result, "the list of packages is too long") : 0;
}

/* mmdebstrap leaves a file of dpkg's settings that is there as it is: that of the image below. */
static int debian_forget_settings(struct err *err)
{
    cleanup_fd int root = open(BUILD_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_errno(err, errno, "cannot open the image");
    return build_remove(root, "etc/dpkg/dpkg.cfg.d/99mmdebstrap", false, err);
}

int build_debian(const struct recipe *recipe, struct err *err)
{
    cleanup_buf struct buf sources = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_buf struct buf include = BUF_INIT(LIMIT_CONFIG_BYTES);
    int result = debian_sources(recipe->suite, &sources, err);
    if (result == 0)
        result = debian_apt_settings(err);
    if (result == 0)
        result = debian_include(recipe, &include, err);
    if (result == 0 && recipe->from)
        result = debian_forget_settings(err);
    if (result < 0)
        return result;
    static const char apt_settings[] = "--aptopt=" APT_SETTINGS;
    const char *const argv[] = {
        "mmdebstrap",
        "--mode=root",
        recipe->from ? "--variant=custom" : "--variant=essential",
        "--format=directory",
        recipe->from ? "--skip=output/dev,chroot/mount/sys,check/empty"
                     : "--skip=output/dev,chroot/mount/sys",
        apt_settings,
        "--aptopt=APT::Install-Recommends \"false\"",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-include=/usr/share/man/man[1-9]", /* a JDK's scripts put links there */
        "--dpkgopt=path-exclude=/usr/share/info/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-exclude=/usr/share/lintian/*",
        include.data,
        "--",
        recipe->suite,
        BUILD_ROOT,
        sources.len ? sources.data : NULL, /* none: mmdebstrap's own default */
        NULL,
    };
    return build_run(argv, NULL, err);
}
