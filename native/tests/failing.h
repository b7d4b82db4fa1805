/* How a test has calls of libmrc.so fail, see failing.c. */
#ifndef FAILING_H
#define FAILING_H

void failing_set(const char *name, int error, long first, long count) __attribute__((weak));
long failing_seen(void) __attribute__((weak));

#endif
