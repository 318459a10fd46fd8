#include "engine/voice.h"

#include <stdatomic.h>

#include "base/mem.h"

utter_status voice_create(utter_voice **out, const struct utter_model *m, struct error *e)
{
    struct utter_voice *v = *out = mem_calloc(1, sizeof *v);
    if (v) v->kept = mem_calloc(1, sizeof *v->kept);
    if (!v || !v->kept) {
        mem_free(v);
        *out = NULL;
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a voice");
    }
    static atomic_uint_least64_t voices;
    v->model = m;
    v->kept->serial = atomic_fetch_add(&voices, 1) + 1;
    pthread_mutex_init(&v->kept->lock, NULL);
    return UTTER_OK;
}

void utter_voice_free(utter_voice **voice)
{
    if (!voice || !*voice) return;
    struct utter_voice *v = *voice;
    t3_gpt2_prefix_free(&v->kept->prefix);
    pthread_mutex_destroy(&v->kept->lock);
    mem_free(v->kept);
    conds_free(&v->conds);
    if (v->record) voice_free(v->record);
    mem_free(v->record);
    mem_free(v->report);
    mem_free(v);
    *voice = NULL;
}

const struct t3_gpt2_prefix *voice_prefix(const utter_voice *v)
{
    pthread_mutex_lock(&v->kept->lock);
    const struct t3_gpt2_prefix *p = v->kept->prefix;
    pthread_mutex_unlock(&v->kept->lock);
    return p;
}

utter_status voice_keep_prefix(const utter_voice *v, struct t3_gpt2_state *t3, struct stream *s, struct error *e)
{
    utter_status status = UTTER_OK;
    pthread_mutex_lock(&v->kept->lock);
    if (!v->kept->prefix) status = t3_gpt2_prefix_create(&v->kept->prefix, t3, s, e);
    pthread_mutex_unlock(&v->kept->lock);
    return status == UTTER_OK ? UTTER_DONE : status;
}
