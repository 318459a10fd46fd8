/*
 * model.h - what a utter_model holds: the mapped files, the device, the bound networks, the built-in voice.
 *
 * Immutable after utter_model_open; tasks on any threads read it.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "chatterbox/s3gen.h"
#include "chatterbox/t3_gpt2.h"
#include "checkpoint/bind.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "text/tokenizer.h"

struct utter_model {
    char *path;
    struct checkpoint *checkpoint;
    struct device *device;
    struct binder_owned *owned; /* weights and parameters of all networks */
    struct t3_gpt2 *t3;
    struct s3gen *s3gen;
    struct tokenizer *tokenizer;
    const char *variant;           /* "turbo", "nano", "small" */
    utter_voice *voice;            /* the built-in one; NULL when there is none */
    struct clone_room *clone_room; /* the networks that listen, bound when the first voice is made (clone.c) */
    utter_log_fn *log;
    void *log_user;
};

utter_status clone_room_create(struct clone_room **out, struct error *e);
void clone_room_free(struct clone_room **r);

void model_log(const struct utter_model *m, utter_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
