/* Lines on stderr: what was chosen, and why something failed. MRC_LOG=off silences them. */
#pragma once

void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
