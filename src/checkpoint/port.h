/*
 * port.h - the ggml port's pair of GGUF files: one with T3, tokenizer and voice encoder, one with S3Gen (specification
 * section 5). Private to this room.
 */
#ifndef CHECKPOINT_PORT_H
#define CHECKPOINT_PORT_H

#include "checkpoint/table.h"

enum port_part { PORT_NONE, PORT_T3, PORT_S3GEN };

/* Which half a GGUF file is, from its metadata. */
enum port_part port_part(const struct checkpoint *ck);

/* From the port's names and shapes to the canonical ones, entries [first, n_entries). Unknown names stay as they are. */
utter_status port_translate(struct checkpoint *ck, size_t first, struct error *e);

/* The path of the other half, looked for beside the first among files of the same variant, the best match of names first;
 * *path is NULL when there is none. */
utter_status port_find_partner(struct checkpoint *ck, enum port_part have, const char **path, struct error *e);

#endif
