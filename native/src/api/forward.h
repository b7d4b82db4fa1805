/*
 * Functions of the libibverbs that is installed, for devices that are not ours: the next one of that name and version.
 */
#pragma once

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

/* A pointer to it, looked up once; NULL where no libibverbs is loaded, as in a program that opens this file by path. */
#define REAL(name, version)                                                                                            \
    ({                                                                                                                 \
        static __typeof__(&verbs_##name) found;                                                                        \
        if (found == NULL)                                                                                             \
            *(void **)&found = dlvsym(RTLD_NEXT, "ibv_" #name, version);                                               \
        found;                                                                                                         \
    })

/* Export `verbs_name` as `ibv_name` of a version. */
#define EXPORT(name, version) __asm__(".symver verbs_" #name ", ibv_" #name "@@" version)
