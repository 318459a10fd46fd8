/*
 * map.h - a file as read-only memory.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/error.h"

struct file_map {
    const unsigned char *data; /* page-aligned; NULL when closed */
    size_t n_bytes;
};

/* Maps a regular, non-empty file. A folder, a pipe or an empty file is refused by name, without blocking. The pages are
 * read when touched; a file that shrinks while mapped raises SIGBUS, as with any mapped file. */
utter_status file_map_open(struct file_map *m, const char *path, struct error *e);
void file_map_close(struct file_map *m);

/* Gives back the memory of mapped bytes that will hardly be needed again; touching them reads them anew. Pages at the ends, which hold
 * other bytes too, stay. */
void file_map_drop(const void *data, size_t n_bytes);

#endif
