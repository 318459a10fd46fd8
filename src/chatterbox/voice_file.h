/*
 * voice_file.h - voices on disk.
 *
 * Our own file is a GGUF (general.architecture "utter-voice"): for each set of conditionals the tensors of a published
 * conds.pt under the set's name,
 *
 *     turbo.t3.speaker_emb [256]   turbo.t3.cond_prompt_speech_tokens [n] i32   turbo.t3.emotion_adv [1]
 *     turbo.gen.prompt_token [n] i32   turbo.gen.prompt_feat [frames, 80]   turbo.gen.embedding [192]
 *     standard.* the same
 *     clip [n] i16: the clip at 24 kHz, only when it was kept
 *
 * and the notes as metadata: general.name, general.license, utter.voice.version 1, .family "chatterbox", .transcript,
 * .consent, .source, .source_hash and .networks (16 hexadecimal digits), .source_seconds.
 *
 * Files are hostile: every shape, id and value is checked; messages name file and tensor.
 */
#ifndef CHATTERBOX_VOICE_FILE_H
#define CHATTERBOX_VOICE_FILE_H

#include "chatterbox/voice.h"

enum { VOICE_FILE_VERSION = 1 };

/* Reads our file, a published conds.pt, a folder of the ggml port's five .npy files, a published folder or a model file
 * (its built-in voice). INPUT_UNREADABLE when there is no such file, VOICE_UNUSABLE when it is no voice or a damaged one. */
utter_status voice_load(struct voice *out, const char *path, struct error *e);

/* The same from a file that is open. */
utter_status voice_read(struct voice *out, const struct checkpoint *ck, struct error *e);

/* The file appears whole or not at all. OUTPUT_UNWRITABLE. */
utter_status voice_save(const struct voice *v, const char *path, struct error *e);

/* The five .npy files as the ggml port names them, in a folder that is made when it does not exist. */
utter_status voice_save_npy(const struct conds *c, const char *folder, struct error *e);

/* A copy of the model (a GGUF file of ours) at `path` whose built-in voice is this one. Every other tensor keeps its bytes. */
utter_status voice_bake(const struct checkpoint *model, const struct conds *c, const char *name, const char *path,
                        struct error *e);

#endif
