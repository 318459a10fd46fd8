#include "engine/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "engine/abi.h"
#include "engine/locate.h"
#include "engine/voice.h"

void model_log(const struct utter_model *m, utter_log_level level, const char *format, ...)
{
    if (!m->log) return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    m->log((int)level, line, m->log_user);
}

void utter_model_options_init_sized(utter_model_options *o, size_t size)
{
    const utter_model_options defaults = {0};
    abi_init(o, size, &defaults, sizeof defaults);
}

/* ---- opening ---- */

static utter_status create_device(struct utter_model *m, const utter_model_options *o, struct error *e)
{
    struct device_options d = {.n_threads = o->n_threads};
    if (o->cpu_level && !cpu_level_by_name(&d.level, o->cpu_level))
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "cpu_level: \"%.40s\" is not one of auto, scalar, avx2, avx512, neon", o->cpu_level);
    if (o->precision != UTTER_PRECISION_F32 && o->precision != UTTER_PRECISION_FAST)
        return error_set(e, UTTER_INVALID_ARGUMENT, "precision: %d is none", o->precision);
    d.precision = o->precision == UTTER_PRECISION_FAST ? PRECISION_FAST : PRECISION_F32;
    return device_create_cpu(&m->device, &d, e);
}

/* Every network by its tensors' names and shapes. */
static utter_status bind_networks(struct utter_model *m, struct cancel *cancel, struct error *e)
{
    struct binder b = {.checkpoint = m->checkpoint, .device = m->device, .error = e, .cancel = cancel};
    if (bind_has(&b, "t3.tfmr.layers.0.input_layernorm.weight"))
        return error_set(e, UTTER_UNSUPPORTED,
                         "%s: the Llama models (English, multilingual) are not supported; Turbo and Nano are", m->path);
    utter_status s = t3_gpt2_load(&m->t3, &b);
    if (s == UTTER_OK) s = s3gen_load(&m->s3gen, &b);
    m->owned = b.owned;
    return s;
}

static utter_status open_model(struct utter_model *m, const utter_model_options *o, struct error *e)
{
    struct cancel cancel = {0};
    cancel_attach_flag(&cancel, o->cancel_flag);
    utter_status s = checkpoint_open(&m->checkpoint, m->path, o->s3gen_path, &cancel, e);
    if (s == UTTER_OK) s = create_device(m, o, e);
    if (s == UTTER_OK) s = bind_networks(m, &cancel, e);
    if (s == UTTER_OK) s = tokenizer_load(&m->tokenizer, m->checkpoint, &cancel, e);
    if (s == UTTER_OK && m->t3->speaker_dim != SPEAKER_EMB_SIZE)
        s = error_set(e, UTTER_MODEL_DAMAGED, "%s: T3 takes a speaker of %d values, voices have %d", m->path,
                      m->t3->speaker_dim, SPEAKER_EMB_SIZE);
    if (s == UTTER_OK && tokenizer_size(m->tokenizer) > m->t3->text_vocab)
        s = error_set(e, UTTER_MODEL_DAMAGED,
                      "%s: these files do not belong together: the tokenizer has %d tokens, T3 %d", m->path,
                      tokenizer_size(m->tokenizer), m->t3->text_vocab);
    if (s == UTTER_OK && conds_present(m->checkpoint, "conds")) {
        s = voice_create(&m->voice, m, e);
        if (s == UTTER_OK) s = conds_read(&m->voice->conds, m->checkpoint, "conds", e);
    }
    if (s == UTTER_OK) s = clone_room_create(&m->clone_room, e);
    if (s == UTTER_OK && cancel_poll(&cancel)) s = error_set(e, UTTER_CANCELLED, "%s: loading was cancelled", m->path);
    if (s == UTTER_OK) m->variant = checkpoint_variant(m->checkpoint);
    return s;
}

utter_status utter_model_open(utter_model **out, const char *path, const utter_model_options *options, char *error,
                              size_t error_size)
{
    if (!out) return UTTER_INVALID_ARGUMENT;
    *out = NULL;
    struct error e = {""};
    utter_model_options o;
    utter_model_options_init(&o);
    utter_status s = options ? abi_read(&o, sizeof o, options, "model options", &e) : UTTER_OK;
    struct utter_model *m = s == UTTER_OK ? mem_calloc(1, sizeof *m) : NULL;
    if (s == UTTER_OK && !m) s = error_set(&e, UTTER_OUT_OF_MEMORY, "no memory for a model");
    if (s == UTTER_OK) s = locate_model(&m->path, path, &e);
    if (s == UTTER_OK) {
        m->log = o.log;
        m->log_user = o.log_user;
        s = open_model(m, &o, &e);
    }
    if (s == UTTER_OK)
        model_log(m, UTTER_LOG_INFO, "%s: chatterbox %s, %s, on %s", m->path, m->variant,
                  checkpoint_format(m->checkpoint), device_name(m->device));
    else
        utter_model_close(&m);
    if (error && error_size) snprintf(error, error_size, "%s", e.text);
    *out = m;
    return s;
}

void utter_model_close(utter_model **model)
{
    if (!model || !*model) return;
    struct utter_model *m = *model;
    utter_voice_free(&m->voice);
    tokenizer_free(&m->tokenizer);
    s3gen_free(&m->s3gen);
    t3_gpt2_free(&m->t3);
    clone_room_free(&m->clone_room);
    binder_free_owned(&m->owned);
    device_destroy(&m->device);
    checkpoint_close(&m->checkpoint);
    mem_free(m->path);
    mem_free(m);
    *model = NULL;
}

/* ---- what it is ---- */

utter_status utter_model_get_info(const utter_model *m, utter_model_info *info)
{
    if (!m || !info) return UTTER_INVALID_ARGUMENT;
    const utter_model_info known = {
        .capabilities =
            (checkpoint_can_clone(m->checkpoint) ? UTTER_CAN_CLONE : 0u) | (m->voice ? UTTER_HAS_BUILT_IN_VOICE : 0u),
        .sample_rate = S3GEN_SAMPLE_RATE,
        .channels = 1,
        .n_threads = device_threads(m->device),
        .family = "chatterbox",
        .variant = m->variant,
        .path = m->path,
        .device = device_name(m->device),
    };
    return abi_write(info, &known, sizeof known) ? UTTER_OK : UTTER_INVALID_ARGUMENT;
}

/* Specification section 7; the flow's steps come from the model, which is distilled for them or not. */
void utter_request_init_sized(utter_request *r, size_t size, const utter_model *model)
{
    const utter_request defaults = {
        .prompt_batch_size = 512,
        .seed = UTTER_SEED_RANDOM,
        .top_k = 1000,
        .top_p = 0.95f,
        .temperature = 0.8f,
        .repetition_penalty = 1.2f,
        .cfm_steps = model ? s3gen_default_steps(model->s3gen) : 2,
        .stream = UTTER_STREAM_OFF,
        .stream_first_chunk_tokens = 10,
        .stream_chunk_tokens = 25,
        .sentence_silence = 0.1f,
    };
    abi_init(r, size, &defaults, sizeof defaults);
}
