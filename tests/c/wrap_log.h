/* The log of the wrapping libraries' counts: a line `NAME COUNT` when the process ends,
 * appended to the file that WRAP_LOG names, else to standard error.
 */
#ifndef WRAP_LOG_H
#define WRAP_LOG_H

#include <stdio.h>
#include <stdlib.h>

static inline void write_count(const char *name, unsigned long count) {
    const char *path = getenv("WRAP_LOG");
    FILE *file = path ? fopen(path, "a") : stderr;
    if (!file) return;
    fprintf(file, "%s %lu\n", name, count);
    if (file != stderr) fclose(file);
}

#endif
