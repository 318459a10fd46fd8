/*
 * locate.h - where models are looked for.
 *
 * In this order: the path in $UTTER_MODEL; the voices that came with the program (the folder `voices` beside the library
 * or command, then ../share/utter/voices and the data folder it was installed to); $XDG_DATA_HOME/utter/models (by default
 * ~/.local/share/utter/models). A model is a .gguf file or a folder with a t3_*.safetensors file.
 */
#ifndef ENGINE_LOCATE_H
#define ENGINE_LOCATE_H

#include "base/error.h"

struct located_model {
    char *name; /* the file's name without folder and ".gguf" */
    char *path;
    const char *origin; /* "environment", "built in", "user" */
};

struct located_models {
    struct located_model *models;
    size_t count;
};

utter_status locate_models(struct located_models *out, struct error *e); /* every model found, in search order */
void located_models_free(struct located_models *m);

/* The path to open for what the user typed: an existing path as it is, else the name of a model that locate_models finds.
 * NULL is the default model, the first one found; "" is refused. *out is freed with mem_free. */
utter_status locate_model(char **out, const char *path_or_name, struct error *e);

/* The voices in $XDG_DATA_HOME/utter/voices (by default ~/.local/share/utter/voices): NAME.voice. */
utter_status locate_voices(struct located_models *out, struct error *e);

/* An existing path as it is, else the voice of that name. INPUT_UNREADABLE when there is neither. Freed with mem_free. */
utter_status locate_voice(char **out, const char *path_or_name, struct error *e);

/* Where a new voice of that name belongs; its folder is made. Freed with mem_free. */
utter_status locate_new_voice(char **out, const char *name, struct error *e);

#endif
