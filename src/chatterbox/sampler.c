#include "chatterbox/sampler.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

struct sampler {
    enum sampler_order order;
    int n_vocab, n; /* n: choices that are left */
    struct sampler_choice *choices;
    uint32_t *bits;        /* [n_vocab], for keep_top_k */
    unsigned char *listed; /* [n_vocab]: in the history */
};

struct sampler_params sampler_defaults(enum sampler_order order)
{
    if (order == SAMPLER_TURBO)
        return (struct sampler_params){.temperature = 0.8f, .top_k = 1000, .top_p = 0.95f, .repetition_penalty = 1.2f};
    return (struct sampler_params){
        .temperature = 0.8f, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1.2f, .cfg_weight = 0.5f};
}

utter_status sampler_check(const struct sampler_params *p, struct error *e)
{
    const struct {
        const char *name, *expected;
        float value;
        bool good;
    } rules[] = {
        {"temperature", "0 or more", p->temperature, p->temperature >= 0 && isfinite(p->temperature)},
        {"top_k", "0 or more", (float)p->top_k, p->top_k >= 0},
        {"top_p", "more than 0, 1 at most", p->top_p, p->top_p > 0 && p->top_p <= 1},
        {"min_p", "0 to 1", p->min_p, p->min_p >= 0 && p->min_p <= 1},
        {"repetition_penalty", "more than 0", p->repetition_penalty,
         p->repetition_penalty > 0 && isfinite(p->repetition_penalty)},
        {"cfg_weight", "0 or more", p->cfg_weight, p->cfg_weight >= 0 && isfinite(p->cfg_weight)},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].good)
            return error_set(e, UTTER_INVALID_ARGUMENT, "%s: expected %s, found %g", rules[i].name, rules[i].expected,
                             (double)rules[i].value);
    return UTTER_OK;
}

utter_status sampler_create(struct sampler **out, enum sampler_order order, int n_vocab, struct error *e)
{
    *out = NULL;
    struct sampler *s = n_vocab > 0 ? mem_calloc(1, sizeof *s) : NULL;
    if (s) {
        s->order = order;
        s->n_vocab = n_vocab;
        s->choices = mem_calloc((size_t)n_vocab, sizeof *s->choices);
        s->bits = mem_calloc((size_t)n_vocab, sizeof *s->bits);
        s->listed = mem_calloc((size_t)n_vocab, 1);
    }
    if (!s || !s->choices || !s->bits || !s->listed) {
        sampler_free(&s);
        return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a sampler over %d tokens", n_vocab);
    }
    *out = s;
    return UTTER_OK;
}

void sampler_free(struct sampler **s)
{
    if (!*s) return;
    mem_free((*s)->choices);
    mem_free((*s)->bits);
    mem_free((*s)->listed);
    mem_free(*s);
    *s = NULL;
}

/* ---- the steps, each over the choices that are left ------------------------------------------------------------- */

/* cond + w (cond - uncond); -inf choices are left out from the start. */
static utter_status take_logits(struct sampler *s, const float *logits, const float *uncond, float w, struct error *e)
{
    s->n = 0;
    for (int i = 0; i < s->n_vocab; i++) {
        float score = logits[i];
        if (uncond) score += w * (logits[i] - uncond[i]);
        if (score == -INFINITY) continue;
        if (!isfinite(score)) return error_set(e, UTTER_ENGINE, "the score of token %d is %g", i, (double)score);
        s->choices[s->n++] = (struct sampler_choice){.id = i, .score = score};
    }
    return s->n > 0 ? UTTER_OK : UTTER_DONE;
}

static void penalize(struct sampler *s, const int32_t *history, int n_history, float penalty)
{
    if (penalty == 1) return;
    for (int i = 0; i < n_history; i++)
        if (history[i] >= 0 && history[i] < s->n_vocab) s->listed[history[i]] = 1;
    for (int i = 0; i < s->n; i++) {
        struct sampler_choice *c = &s->choices[i];
        if (s->listed[c->id]) c->score = c->score < 0 ? c->score * penalty : c->score / penalty;
    }
    for (int i = 0; i < n_history; i++)
        if (history[i] >= 0 && history[i] < s->n_vocab) s->listed[history[i]] = 0;
}

static void divide(struct sampler *s, float temperature)
{
    if (temperature == 1) return;
    for (int i = 0; i < s->n; i++) s->choices[i].score /= temperature;
}

static float best_score(const struct sampler *s)
{
    float best = -INFINITY;
    for (int i = 0; i < s->n; i++)
        if (s->choices[i].score > best) best = s->choices[i].score;
    return best;
}

/* Bits that order like the floats they come from. */
static uint32_t ordered_bits(float f)
{
    const uint32_t bits = float_bits(f == 0 ? 0 : f); /* -0 and 0 are one score */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Keeps the scores from the k-th largest up, ties included: the k-th largest is found a byte of its bits at a time, each time
 * among those that begin like it. */
static void keep_top_k(struct sampler *s, int k)
{
    if (k == 0 || k >= s->n) return;
    uint32_t largest = 0;
    int n = s->n;
    for (int i = 0; i < n; i++) s->bits[i] = ordered_bits(s->choices[i].score);
    for (int shift = 24; shift >= 0; shift -= 8) {
        int count[256] = {0}, alike = 0;
        for (int i = 0; i < n; i++) count[s->bits[i] >> shift & 255]++;
        uint32_t digit = 255;
        while (count[digit] < k) k -= count[digit--];
        largest |= digit << shift;
        for (int i = 0; i < n; i++) {
            s->bits[alike] = s->bits[i];
            alike += (s->bits[i] >> shift & 255) == digit;
        }
        n = alike;
    }
    int kept = 0;
    for (int i = 0; i < s->n; i++)
        if (ordered_bits(s->choices[i].score) >= largest) s->choices[kept++] = s->choices[i];
    s->n = kept;
}

/* Probabilities of the choices left. */
static void soft_max(struct sampler *s)
{
    const float best = best_score(s);
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->choices[i].probability = exp((double)(s->choices[i].score - best));
    for (int i = 0; i < s->n; i++) s->choices[i].probability /= sum;
}

/* Drops what is less likely than min_p times the best. */
static void keep_min_p(struct sampler *s, float min_p)
{
    if (min_p == 0) return;
    soft_max(s);
    double best = 0;
    for (int i = 0; i < s->n; i++)
        if (s->choices[i].probability > best) best = s->choices[i].probability;
    int kept = 0;
    for (int i = 0; i < s->n; i++)
        if (s->choices[i].probability >= (double)min_p * best) s->choices[kept++] = s->choices[i];
    s->n = kept;
}

static bool better(const struct sampler_choice *a, const struct sampler_choice *b)
{
    return a->score != b->score ? a->score > b->score : a->id < b->id;
}

/* Restores the heap (best on top) of c[0 .. n) below c[i]. */
static void sift_down(struct sampler_choice *c, int n, int i)
{
    const struct sampler_choice moved = c[i];
    for (int child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && better(&c[child + 1], &c[child])) child++;
        if (!better(&c[child], &moved)) break;
        c[i] = c[child];
        i = child;
    }
    c[i] = moved;
}

/* Keeps a choice while the mass of the better ones is under p; the best always stays. The kept ones gather at the
 * end of the array as they leave the heap. */
static void keep_top_p(struct sampler *s, float p)
{
    if (p >= 1) return;
    soft_max(s);
    struct sampler_choice *c = s->choices;
    int n = s->n;
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(c, n, i);
    for (double above = 0; n > 0 && (n == s->n || above < (double)p); n--) {
        const struct sampler_choice top = c[0];
        above += top.probability;
        c[0] = c[n - 1];
        c[n - 1] = top;
        sift_down(c, n - 1, 0);
    }
    memmove(c, c + n, (size_t)(s->n - n) * sizeof *c);
    s->n -= n;
}

static void keep_best(struct sampler *s)
{
    int best = 0;
    for (int i = 1; i < s->n; i++)
        if (better(&s->choices[i], &s->choices[best])) best = i;
    s->choices[0] = s->choices[best];
    s->n = 1;
}

utter_status sampler_distribution(struct sampler *s, const struct sampler_params *p, const float *logits,
                                  const float *logits_uncond, const int32_t *history, int n_history,
                                  const struct sampler_choice **choices, int *n, struct error *e)
{
    *choices = s->choices;
    *n = 0;
    const bool turbo = s->order == SAMPLER_TURBO;
    utter_status status = take_logits(s, logits, turbo ? NULL : logits_uncond, p->cfg_weight, e);
    if (status != UTTER_OK) return status;
    if (p->temperature == 0) {
        penalize(s, history, n_history, p->repetition_penalty);
        keep_best(s);
    } else if (turbo) {
        divide(s, p->temperature);
        keep_top_k(s, p->top_k);
        keep_top_p(s, p->top_p);
        penalize(s, history, n_history, p->repetition_penalty);
    } else {
        penalize(s, history, n_history, p->repetition_penalty);
        divide(s, p->temperature);
        keep_min_p(s, p->min_p);
        keep_top_p(s, p->top_p);
    }
    if (!isfinite(best_score(s)))
        return error_set(e, UTTER_ENGINE, "the scores overflow at temperature %g", (double)p->temperature);
    soft_max(s);
    *n = s->n;
    return UTTER_OK;
}

utter_status sampler_draw(struct sampler *s, const struct sampler_params *p, const float *logits,
                          const float *logits_uncond, const int32_t *history, int n_history, double uniform,
                          int32_t *token, struct error *e)
{
    const struct sampler_choice *choices;
    int n;
    utter_status status = sampler_distribution(s, p, logits, logits_uncond, history, n_history, &choices, &n, e);
    if (status != UTTER_OK) return status;
    double mass = 0;
    int i = 0;
    for (; i < n - 1; i++) {
        mass += choices[i].probability;
        if (uniform < mass) break;
    }
    *token = choices[i].id;
    return UTTER_OK;
}
