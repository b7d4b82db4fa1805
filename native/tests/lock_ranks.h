/*
 * The order of locks that native/src/objects/objects.h describes, checked: included before each source of a library for tests,
 * which ends with a line when a thread takes a lock out of order. A lock is known by the end of the words that name it.
 */
#ifndef LOCK_RANKS_H
#define LOCK_RANKS_H
#define _GNU_SOURCE /* as the sources say, before any header */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HELD 16

struct held_lock {
    const void *mutex;
    const char *words;
    int rank;
};

/* One definition is kept of those in all sources. */
__attribute__((weak)) struct held_lock *locks_of_thread(void)
{
    static _Thread_local struct held_lock held[MOST_HELD];
    return held;
}

/* From 1 on; 0: it is taken alone. */
__attribute__((weak)) int rank_of_lock(const char *words)
{
    static const char *const order[][2] = {
        {"&listing"},
        {"context->serving"},
        {"cq->lock"},
        {"context->events", "(lock)"}, /* `lock` of control/ev_events.c */
        {"ctl->requesting"},
        {"profiles->lock"},
        {"emulation->lock"},
        {"endpoint->posting"},
        {"endpoint->control"},
        {"mutex_at(endpoint, 0)"},
        {"mutex_at(endpoint, 1)"},
        {"context->reporting"},
        {"cq->ready_lock"},
        {"mutex_at(endpoint, 2)"},
    };
    static const char *const alone[] = {"channel->lock", "->mutex", "&mutex"};
    char whole[200];
    snprintf(whole, sizeof whole, strpbrk(words, "&(>") == NULL ? "(%s)" : "%s", words);
    size_t length = strlen(whole);
    for (size_t rank = 0; rank < sizeof order / sizeof *order; rank++)
        for (int way = 0; way < 2 && order[rank][way] != NULL; way++) {
            size_t end = strlen(order[rank][way]);
            if (length >= end && strcmp(whole + length - end, order[rank][way]) == 0)
                return (int)rank + 1;
        }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strstr(whole, alone[i]) != NULL)
            return 0;
    fprintf(stderr, "lock_ranks.h does not know %s\n", words);
    abort();
}

__attribute__((weak)) int lock_in_order(pthread_mutex_t *mutex, const char *words)
{
    struct held_lock *held = locks_of_thread(), *place = NULL;
    int rank = rank_of_lock(words);
    for (int i = 0; i < MOST_HELD; i++) {
        if (held[i].mutex == NULL)
            place = place == NULL ? &held[i] : place;
        else if (held[i].rank >= rank || held[i].rank == 0) {
            fprintf(stderr, "%s is taken while %s is held\n", words, held[i].words);
            abort();
        }
    }
    *place = (struct held_lock){mutex, words, rank};
    return pthread_mutex_lock(mutex);
}

__attribute__((weak)) int unlock_in_order(pthread_mutex_t *mutex)
{
    struct held_lock *held = locks_of_thread();
    int i = 0;
    while (i < MOST_HELD - 1 && held[i].mutex != mutex)
        i++;
    held[i].mutex = NULL;
    return pthread_mutex_unlock(mutex);
}

#define pthread_mutex_lock(mutex) lock_in_order(mutex, #mutex)
#define pthread_mutex_unlock(mutex) unlock_in_order(mutex)

#endif
