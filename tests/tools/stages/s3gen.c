/*
 * Stages s3gen and s3gen_meanflow: speech tokens and a voice's prompt to mel.
 */
#include "chatterbox/s3gen.h"

#include <string.h>

#include "base/mem.h"
#include "chatterbox/cfm.h"
#include "tools/stages/stage.h"

struct seen {
    struct stage_run *run;
    int step; /* of the solver; -1 before the first */
    bool meanflow;
};

/* Of all grid points, what the reference recorded last for step 0: its end for mean flow, its start (for both halves of the
 * guided batch) else. */
static void put_time_mlp(const struct seen *seen, struct array taus)
{
    float row[4096];
    if (taus.cols > 4096) return;
    stream_read(seen->run->stream, row, array_rows(taus, seen->meanflow, 1));
    for (int i = 0; i < 2 - seen->meanflow; i++)
        stage_output_values(seen->run, "step0.time_mlp", 2, (int64_t[]){1, taus.cols}, row);
}

/* Names as the reference has them: everything of step 0, then only x and dxdt. Inside the estimator channels come first. */
static void see(void *user, const char *name, struct array value)
{
    struct seen *seen = user;
    char full[REF_NAME_BYTES];
    if (strcmp(name, "spk_affine") == 0) {
        float row[PROMPT_N_MELS] = {0};
        stream_read(seen->run->stream, row, value);
        stage_output_values(seen->run, name, 2, (int64_t[]){1, value.cols}, row);
        return;
    }
    if (strncmp(name, "enc", 3) == 0) {
        stage_output(seen->run, name, value, strcmp(name, "enc.up_layer") == 0);
        return;
    }
    if (strcmp(name, "time_mlp") == 0) {
        put_time_mlp(seen, value);
        return;
    }
    seen->step += strcmp(name, "x") == 0;
    const bool tap = strcmp(name, "x") == 0 || strcmp(name, "dxdt") == 0, transformer = strstr(name, ".tfm.") != NULL;
    const bool recorded = tap || (transformer ? strncmp(name, "down", 4) == 0 : true);
    if (!recorded || (seen->step > 0 && !tap)) return;
    snprintf(full, sizeof full, "step%d.%s", seen->step, name);
    stage_output(seen->run, full, value, !transformer);
}

static void run_mel(struct stage_run *r, const struct s3gen *m, struct mel_request q, const char *name)
{
    const size_t mark = stream_mark(r->stream);
    struct array mel = stream_array(r->stream, s3gen_mel_frames(&q), PROMPT_N_MELS);
    s3gen_mel(r->stream, m, mel, &q);
    stage_output(r, name, mel, true);
    stream_release(r->stream, mark);
}

static void put_times(struct stage_run *r, const struct cfm *m, int n_steps)
{
    const bool meanflow = cfm_is_meanflow(m);
    for (int k = 0; k < n_steps; k++) {
        char name[32];
        const float t = cfm_time(m, k, n_steps), end = cfm_time(m, k + 1, n_steps);
        snprintf(name, sizeof name, "step%d.t", k);
        stage_output_values(r, name, 1, (int64_t[]){meanflow ? 1 : 2}, (float[]){t, t});
        snprintf(name, sizeof name, "step%d.r", k);
        if (meanflow) stage_output_values(r, name, 1, (int64_t[]){1}, &end);
    }
}

stage_fn stage_s3gen;

utter_status stage_s3gen(struct stage_run *r)
{
    const struct ref_array *tokens = stage_input(r, "in.tokens", true, 2);
    const struct ref_array *prompt_token = stage_input(r, "in.prompt_token", true, 2);
    const struct ref_array *prompt_feat = stage_input(r, "in.prompt_feat", false, 3);
    const struct ref_array *embedding = stage_input(r, "in.embedding", false, 2);
    float *z = stage_input_transposed(r, "in.noise");
    struct s3gen *m = NULL;
    if (r->status == UTTER_OK) r->status = s3gen_load(&m, r->binder);
    if (r->status == UTTER_OK &&
        (embedding->count != XVECTOR_SIZE || prompt_feat->shape[2] != PROMPT_N_MELS ||
         reffile_find(r->in, "in.noise")->count != 160 * (tokens->count + prompt_token->count)))
        r->status = error_set(r->error, UTTER_INPUT_UNREADABLE, "inputs of stage s3gen do not fit each other");
    if (r->status == UTTER_OK) {
        struct conds voice = {.n_prompt_tokens = (int)prompt_token->count,
                              .n_prompt_frames = (int)prompt_feat->shape[1],
                              .prompt_tokens = prompt_token->values.i,
                              .prompt_mel = prompt_feat->values.f};
        memcpy(voice.xvector, embedding->values.f, sizeof voice.xvector);
        struct seen seen = {.run = r, .step = -1, .meanflow = s3gen_is_meanflow(m)};
        struct observer observer = {see, &seen};
        struct mel_request q = {.voice = &voice,
                                .tokens = tokens->values.i,
                                .n_tokens = (int)tokens->count,
                                .final = true,
                                .z = z,
                                .observer = &observer};
        put_times(r, s3gen_cfm(m), s3gen_default_steps(m));
        run_mel(r, m, q, s3gen_is_meanflow(m) ? "mel.steps2" : "mel.steps10");
        q.observer = NULL;
        q.final = false;
        run_mel(r, m, q, "mel.not_final");
        q.final = true;
        q.n_steps = 1;
        if (s3gen_is_meanflow(m)) run_mel(r, m, q, "mel.steps1");
    }
    s3gen_free(&m);
    mem_free(z);
    return r->status;
}
