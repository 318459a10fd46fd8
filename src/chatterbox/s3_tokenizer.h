/*
 * s3_tokenizer.h - from the log-mel of speech to speech tokens, 25 a second (specification section 4.6).
 *
 * Immutable once loaded; any thread.
 */
#ifndef CHATTERBOX_S3_TOKENIZER_H
#define CHATTERBOX_S3_TOKENIZER_H

#include "chatterbox/observer.h"
#include "checkpoint/bind.h"
#include "device/device.h"

enum { S3_MELS = 128, S3_CODE_DIGITS = 8, S3_FRAMES_PER_TOKEN = 4 };

struct s3_tokenizer;

/* Binds "s3gen.tokenizer.*"; width and depth are read from the tensors, heads are 64 wide. */
utter_status s3_tokenizer_load(struct s3_tokenizer **out, struct binder *b);
void s3_tokenizer_free(struct s3_tokenizer **m);

/* One recording: its log-mel [n_frames][S3_MELS] on the host (audio/features.h), n_frames > 0, and where its tokens go. */
struct s3_request {
    const float *mel;
    int n_frames;
    int32_t *tokens;  /* s3_tokens(n_frames) of them */
    float *pre_round; /* optional, the same number of rows of S3_CODE_DIGITS: what was rounded to digits */
};

/* How many tokens n_frames give: a quarter, rounded up twice; recordings over 30 s are heard in windows. */
int s3_tokens(int n_frames);

/* Tokens of several recordings at once: their rows share the matrix products, which read each weight once. */
void s3_tokenize(struct stream *s, const struct s3_tokenizer *m, const struct s3_request *requests, int n_requests,
                 const struct observer *observer);

#endif
