#include "endpoint/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "description.h"

void report(const char *format, ...)
{
    const char *wanted = getenv("MRC_LOG");
    if (wanted != NULL && strcmp(wanted, "off") == 0)
        return;
    char line[600];
    int before = errno;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "mrc: %s\n", line);
    errno = before;
}

int64_t mrc_entry_failed(const char *name)
{
    report("an assertion of the engine failed in %s", name);
    abort();
}
