/*
 * part_file.h - a file that gets its name when it is whole.
 *
 * Until then it lies in the same folder as NAME.part, or NAME.2.part, NAME.3.part, ... where that is taken: by another
 * process that writes the same file, by a killed run, or by a file that somebody called so. A long NAME is cut there. Symbolic
 * links are followed: what PATH points to is replaced, not the link. Permissions are the umask's.
 */
#ifndef BASE_PART_FILE_H
#define BASE_PART_FILE_H

#include <stdbool.h>

#include "base/error.h"

struct part_file {
    char *part, *target;
};

/* *fd: open for reading and writing; the caller closes it. OUTPUT_UNWRITABLE, also when PATH is there and is no regular file
 * or may not be written. */
utter_status part_file_create(struct part_file *p, int *fd, const char *path, struct error *e);

/* The first gives the file its name (false with errno: it cannot have it, and is removed), the second removes it. Both end
 * *p; a zeroed one is fine for the second. */
bool part_file_finish(struct part_file *p);
void part_file_discard(struct part_file *p);

#endif
