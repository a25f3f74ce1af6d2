/* Ownership by scope: `cleanup_free char *text = ...;` frees text when the scope ends. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_at(void *pointer)
{
    free(*(void **)pointer);
}

static inline void cleanup_fd_at(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_file_at(FILE **file)
{
    if (*file)
        fclose(*file);
}

#define cleanup_free __attribute__((cleanup(cleanup_free_at)))
#define cleanup_fd __attribute__((cleanup(cleanup_fd_at)))
#define cleanup_file __attribute__((cleanup(cleanup_file_at)))

/* Moves the value out of a variable with a cleanup attribute, so that the caller owns it. */
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int taken_fd_ = (fd);                                                                      \
        (fd) = -1;                                                                                 \
        taken_fd_;                                                                                 \
    })
#define TAKE_PTR(pointer)                                                                          \
    ({                                                                                             \
        __typeof__(pointer) taken_pointer_ = (pointer);                                            \
        (pointer) = NULL;                                                                          \
        taken_pointer_;                                                                            \
    })

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))
