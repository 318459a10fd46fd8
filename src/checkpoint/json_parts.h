/*
 * json_parts.h - a large JSON object, some of its members at a time.
 *
 * jansson parses a whole text or nothing, and a model's tens of thousands of members take and free many milliseconds, which a cancel would
 * have to wait for. Here the text is cut between members, and every stretch of some KiB is parsed as an object of its own.
 */
#ifndef CHECKPOINT_JSON_PARTS_H
#define CHECKPOINT_JSON_PARTS_H

#include <jansson.h>

#include "base/cancel.h"
#include "base/error.h"

/* Some members, in the text's order; the object is freed after the call. A failure ends it all. */
typedef utter_status json_part_fn(void *user, json_t *members, struct error *e);

/* Calls fn for every part of the text, which must be one object and nothing else: else MODEL_DAMAGED, "FILE: WHAT: line N: ...". A cancel
 * is looked at before every part. A key that stands twice is refused within a part only: fn sees to the rest. */
utter_status json_object_parts(const char *text, size_t n, const char *file, const char *what, struct cancel *cancel,
                               json_part_fn *fn, void *user, struct error *e);

#endif
