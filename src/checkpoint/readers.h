/*
 * readers.h - one function per file format. Private to this room.
 *
 * Each adds the tensors and metadata of files[file] to the table, under the names the file uses. They trust nothing: on
 * any fault they return a status and a message that names the file and the tensor or key.
 */
#ifndef CHECKPOINT_READERS_H
#define CHECKPOINT_READERS_H

#include "checkpoint/table.h"

utter_status safetensors_read(struct checkpoint *ck, int file, struct error *e);
utter_status torch_read(struct checkpoint *ck, int file, struct error *e);
utter_status gguf_read(struct checkpoint *ck, int file, struct error *e);

#endif
