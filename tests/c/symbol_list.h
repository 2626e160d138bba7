/* Reads a list of the driver's entry points: include/symbols/cuda.json, or any text whose
 * lines hold base name, twin ("_ptds", "_ptsz" or nothing), version and symbol.
 */
#ifndef SYMBOL_LIST_H
#define SYMBOL_LIST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol_row {
    char base[80];
    char twin[8];
    int version;
    char symbol[96];
};

/* Rows of a file; the program ends when it cannot be read. The caller owns the array. */
static inline struct symbol_row *read_symbol_list(const char *path, size_t *count) {
    FILE *file = fopen(path, "r");
    struct symbol_row *rows = NULL;
    char line[512];
    *count = 0;
    if (!file) {
        printf("the symbol list cannot be read\n");
        exit(1);
    }
    while (fgets(line, sizeof line, file)) {
        char *words[5] = {NULL};
        size_t found = 0;
        for (char *word = strtok(line, " \t\r\n,[]\""); word && found < 5;
             word = strtok(NULL, " \t\r\n,[]\"")) {
            words[found++] = word;
        }
        if (found < 3 || found > 4) continue;
        rows = realloc(rows, (*count + 1) * sizeof *rows);
        if (!rows) exit(1);
        struct symbol_row *row = &rows[(*count)++];
        memset(row, 0, sizeof *row);
        snprintf(row->base, sizeof row->base, "%s", words[0]);
        snprintf(row->twin, sizeof row->twin, "%s", found == 4 ? words[1] : "");
        row->version = atoi(words[found - 2]);
        snprintf(row->symbol, sizeof row->symbol, "%s", words[found - 1]);
    }
    fclose(file);
    if (*count == 0) {
        printf("the symbol list has no rows\n");
        exit(1);
    }
    return rows;
}

#endif
