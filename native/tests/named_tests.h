/* Tests by name: without arguments the program lists them, else it runs those that are named. */
#ifndef NAMED_TESTS_H
#define NAMED_TESTS_H

#include <stdio.h>
#include <string.h>

struct named_test {
    const char *name;
    void (*run)(void);
};

#define TEST(name) {#name, name}

static int run_named(const struct named_test *tests, size_t total, int count, char **names)
{
    for (size_t i = 0; i < total; i++) {
        if (count < 2)
            puts(tests[i].name);
        for (int k = 1; k < count; k++)
            if (strcmp(names[k], tests[i].name) == 0)
                tests[i].run();
    }
    return 0;
}

#endif
