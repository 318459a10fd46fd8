/*
 * table.h - a checkpoint while it is being opened: the files, the tensors and the metadata that readers put in.
 *
 * Private to this room. Every reader hands its tensors to table_add, which is the one place where shapes, sizes and
 * offsets of a file are checked. Memory for names and copies comes from table_memory and lives until checkpoint_close.
 */
#ifndef CHECKPOINT_TABLE_H
#define CHECKPOINT_TABLE_H

#include "base/cancel.h"
#include "base/map.h"
#include "checkpoint/checkpoint.h"

struct table_file {
    const char *path;
    struct file_map map;
    bool borrowed; /* the bytes are the caller's */
};

struct table_entry {
    struct tensor tensor; /* first: a tensor of the table is its entry */
    int file;
};

struct table_meta {
    struct meta meta;
    int file;
};

struct table_block; /* of table_memory */

struct checkpoint {
    const char *path, *format;
    struct cancel *cancel; /* while it is opened */
    const char *hint;      /* what a "tensor is missing" message adds, NULL for nothing */
    struct table_file *files;
    int n_files;
    struct table_entry *entries; /* sorted by name once open */
    size_t n_entries, entry_capacity;
    struct table_meta *metas;
    size_t n_metas, meta_capacity;
    struct table_block *blocks;
};

/* Limits on what a file may claim, far above any real one. */
enum { TABLE_MAX_TENSORS = 1 << 20, TABLE_MAX_METAS = 4096, TABLE_MAX_NAME = 512 };

/* Room for a canonical name: what a file calls the tensor, and what is put in front. */
enum { TABLE_NAME_ROOM = 1024 };

/* Memory that lives as long as the checkpoint: 16-byte aligned, NULL when out of memory. */
void *table_memory(struct checkpoint *ck, size_t n_bytes);
char *table_text(struct checkpoint *ck, const char *text, size_t n_bytes); /* a copy, NUL-terminated */
char *table_format(struct checkpoint *ck, const char *format, ...) __attribute__((format(printf, 2, 3)));
utter_status table_out_of_memory(const struct checkpoint *ck, struct error *e);

/* Maps a file, or takes the caller's bytes for one; *file is its index. */
utter_status table_map_file(struct checkpoint *ck, const char *path, int *file, struct error *e);
utter_status table_lend_bytes(struct checkpoint *ck, const char *name, const void *data, size_t n_bytes, int *file,
                              struct error *e);

/* Adds a tensor that begins at byte `offset` of the file. t: name (copied), type, n_dims and shape; n_bytes what the file
 * claims (0: no claim). Refuses unless the shape has no zero, whole blocks, the claimed size, and lies inside the file, and when it is time to stop. */
utter_status table_add(struct checkpoint *ck, int file, const struct tensor *t, uint64_t offset, struct error *e);

/* Refuses when two tensors of [first, n_entries) share bytes. */
utter_status table_refuse_overlaps(const struct checkpoint *ck, size_t first, struct error *e);

/* Keeps m's pointers. Refuses a key that the same file has already; one that an earlier file has is passed over. */
utter_status table_add_meta(struct checkpoint *ck, int file, const struct meta *m, struct error *e);

/* Sorts, and refuses a name that occurs twice. */
utter_status table_finish(struct checkpoint *ck, struct error *e);

/* "[3, 4]" into text. */
enum { SHAPE_TEXT = 96 };
const char *shape_text(char text[SHAPE_TEXT], int n_dims, const int64_t *shape);

#endif
