/* The sampler and the generation rules, fed by scripted logits. R-numbers name public cases of engines that got it wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chatterbox/generate.h"
#include "test.h"
#include "text/split.h"

enum { VOCAB = 6563, STOP = 6562 };

static struct error e;
static float logits[VOCAB];
static struct generation *g;

static int setup(void **state)
{
    (void)state;
    return generation_create(&g, VOCAB, &e);
}

static int teardown(void **state)
{
    (void)state;
    generation_free(&g);
    generation_free(&g);
    return 0;
}

/* What the network says after n tokens. */
typedef void script(int n);

static void only(int32_t id)
{
    for (int i = 0; i < VOCAB; i++) logits[i] = -50;
    logits[id] = 50;
}

static void never_ends(int n)
{
    only((n * 7919 + n * n * 31) % 6561); /* no period below 6561 */
}
static void cycle_of_four(int n)
{
    only(100 + n % 4);
}
static void silence_on_top(int n)
{
    (void)n;
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)(i % 7) * 0.01f;
    logits[4299] = 8;
}
static void stop_at_300(int n)
{
    only(n < 300 ? 42 : STOP);
}
static void stop_at_3(int n)
{
    only(n < 3 ? 42 : STOP);
}
static void stop_at_once(int n)
{
    only(n < 2 ? STOP : 5);
}
static void varied_then_silence(int n)
{
    only(n < 40 ? n : n < 100 ? 4299 : STOP);
}
static void controls_between(int n)
{
    only(n == 3 ? 6561 : n == 8 ? STOP : n);
}

static struct generation_options options_for(const char *text)
{
    return (struct generation_options){.sampler = sampler_defaults(SAMPLER_TURBO),
                                       .stream = rng_stream(1, "test"),
                                       .expected_seconds = text_expected_seconds(text, strlen(text)),
                                       .room = 2000};
}

/* Returns how many tokens were fed back. */
static int run(script *source, const struct generation_options *o)
{
    int fed = 0;
    utter_status s;
    assert_int_equal(generation_begin(g, o, &e), UTTER_OK);
    do {
        int32_t token;
        source(g->n_drawn);
        s = generation_next(g, logits, &token, &e);
        fed += s == UTTER_OK;
        assert_true(fed <= GENERATE_MAX_TOKENS);
    } while (s == UTTER_OK);
    assert_int_equal(s, UTTER_DONE);
    assert_int_equal(generation_next(g, logits, &(int32_t){0}, &e), UTTER_DONE);
    generation_finish(g);
    for (int i = 1; i <= 3; i++) assert_int_equal(g->speech[g->n_speech - i], GENERATE_SILENCE);
    return fed;
}

static void one_word_ends_after_seconds(void **state)
{
    (void)state; /* R01, R02, R03a */
    static const char *const texts[] = {"Hi!", "No", "7", "A.", "1\u6b21", "2\u6b21", "1\u3002"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct generation_options o = options_for(texts[i]);
        run(never_ends, &o);
        assert_int_equal(g->end, GENERATION_LIMIT);
        assert_true(generation_truncated(g));
        assert_in_range(g->n_speech, 75, 125); /* 3 to 5 s */
    }
    const struct generation_options o = options_for(
        "A sentence of some twenty seconds is about three hundred letters long, and this one is near that, for it goes "
        "on and on, although nothing whatsoever of any importance is said in it, as is often the case.");
    run(never_ends, &o);
    assert_int_equal(g->end, GENERATION_LIMIT);
    assert_int_equal(g->n_drawn, GENERATE_MAX_TOKENS);
}

static void loops_are_noticed(void **state)
{
    (void)state; /* R03b, R10 */
    struct generation_options o = options_for(
        "A sentence of some twenty seconds is about three hundred letters long, and this one is near that.");
    run(cycle_of_four, &o);
    assert_int_equal(g->end, GENERATION_CYCLE);
    assert_true(generation_truncated(g));
    assert_in_range(g->n_drawn, 75, 90);
    o.sampler.temperature = 0;
    o.sampler.repetition_penalty = 1;
    run(silence_on_top, &o);
    assert_int_equal(g->end, GENERATION_CYCLE);
    assert_in_range(g->n_drawn, 75, 90);
}

static void an_explicit_limit_wins(void **state)
{
    (void)state; /* R04 */
    struct generation_options o = options_for("No.");
    o.max_tokens = 1000;
    run(stop_at_300, &o);
    assert_int_equal(g->end, GENERATION_STOPPED);
    assert_false(generation_truncated(g));
    assert_int_equal(g->n_speech, 303);
    o.max_tokens = 10;
    run(stop_at_300, &o);
    assert_int_equal(g->end, GENERATION_LIMIT);
    assert_int_equal(g->n_speech, 13);
    o.max_tokens = 1002;
    assert_int_equal(generation_begin(g, &o, &e), UTTER_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "max_tokens"));
    o.max_tokens = -1;
    assert_int_equal(generation_begin(g, &o, &e), UTTER_INVALID_ARGUMENT);
}

static void the_network_s_positions_are_a_limit(void **state)
{
    (void)state; /* R03, R09 */
    struct generation_options o =
        options_for("Some text that is long enough for a hundred tokens and for more than that.");
    o.room = 20;
    o.max_tokens = 1000;
    const int fed = run(never_ends, &o);
    assert_true(fed <= 20);
    assert_int_equal(g->end, GENERATION_LIMIT);
    o.room = 0;
    assert_int_equal(run(never_ends, &o), 0);
    assert_int_equal(g->end, GENERATION_LIMIT);
}

static void a_short_result_is_told(void **state)
{
    (void)state; /* R08 */
    const struct generation_options o =
        options_for("Twelve words of text are what this ordinary sentence has to offer.");
    run(stop_at_3, &o);
    assert_int_equal(g->end, GENERATION_STOPPED);
    assert_true(g->suspiciously_short);
    const struct generation_options word = options_for("Hi!");
    run(stop_at_3, &word);
    assert_false(g->suspiciously_short);
}

static void the_published_rules_hold(void **state)
{
    (void)state;
    struct generation_options o = options_for("Some text.");
    run(stop_at_once, &o); /* the first token is not tested for the stop token */
    assert_int_equal(g->n_drawn, 2);
    assert_int_equal(g->n_speech, 3);
    run(controls_between, &o);
    assert_int_equal(g->n_drawn, 9);
    assert_memory_equal(g->speech, ((int32_t[]){0, 1, 2, 4, 5, 6, 7, 4299, 4299, 4299}), 40);
    assert_int_equal(g->n_speech, 10);
    o = options_for("Long enough a text for a hundred tokens."); /* R11: pauses stay, length is exact */
    run(varied_then_silence, &o);
    assert_int_equal(g->end, GENERATION_STOPPED);
    assert_int_equal(g->n_speech, 103);
}

static void bad_logits_are_errors(void **state)
{
    (void)state; /* R86 */
    const float bad[] = {NAN, INFINITY};
    const struct generation_options o = options_for("Text.");
    for (int i = 0; i < 2; i++) {
        int32_t token;
        assert_int_equal(generation_begin(g, &o, &e), UTTER_OK);
        only(3);
        logits[1234] = bad[i];
        assert_int_equal(generation_next(g, logits, &token, &e), UTTER_ENGINE);
        assert_non_null(strstr(e.text, "token 1234"));
    }
    int32_t token;
    assert_int_equal(generation_begin(g, &o, &e), UTTER_OK);
    for (int i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
    assert_int_equal(generation_next(g, logits, &token, &e), UTTER_DONE);
    assert_int_equal(g->end, GENERATION_NO_CHOICE);
    logits[17] = 0;
    assert_int_equal(generation_begin(g, &o, &e), UTTER_OK);
    assert_int_equal(generation_next(g, logits, &token, &e), UTTER_OK);
    assert_int_equal(token, 17);
}

static void parameters_are_checked(void **state)
{
    (void)state;
    const struct sampler_params good = sampler_defaults(SAMPLER_TURBO);
    assert_int_equal(sampler_check(&good, &e), UTTER_OK);
    const float bad[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        struct sampler_params p = good;
        p.temperature = bad[i];
        assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
        assert_non_null(strstr(e.text, "temperature"));
        p = good, p.top_p = bad[i];
        assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
        p = good, p.min_p = bad[i];
        assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
        p = good, p.repetition_penalty = bad[i];
        assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
        p = good, p.cfg_weight = bad[i];
        assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
    }
    struct sampler_params p = good;
    p.top_k = -1;
    assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
    p = good, p.top_p = 0;
    assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
    p = good, p.repetition_penalty = 0;
    assert_int_equal(sampler_check(&p, &e), UTTER_INVALID_ARGUMENT);
}

/* ---- the sampler against a plain one with a full sort ---------------------------------------------------------------- */

static int by_score(const void *a, const void *b)
{
    const struct sampler_choice *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->id - y->id;
}

static void plain_turbo(const struct sampler_params *p, const int32_t *history, int n_history, double *probability)
{
    static struct sampler_choice c[VOCAB];
    for (int i = 0; i < VOCAB; i++) c[i] = (struct sampler_choice){i, logits[i] / p->temperature, 0};
    qsort(c, VOCAB, sizeof *c, by_score);
    int n = VOCAB;
    if (p->top_k > 0 && p->top_k < n)
        for (n = p->top_k; n < VOCAB && c[n].score >= c[p->top_k - 1].score;) n++;
    double sum = 0, above = 0;
    for (int i = 0; i < n; i++) sum += exp((double)(c[i].score - c[0].score));
    for (int i = 0; i < n && p->top_p < 1; i++) {
        if (i > 0 && above >= (double)p->top_p) n = i;
        above += exp((double)(c[i].score - c[0].score)) / sum;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_history; k++)
            if (history[k] == c[i].id) {
                c[i].score = c[i].score < 0 ? c[i].score * p->repetition_penalty : c[i].score / p->repetition_penalty;
                break;
            }
    sum = 0;
    memset(probability, 0, VOCAB * sizeof *probability);
    float best = c[0].score;
    for (int i = 0; i < n; i++) best = c[i].score > best ? c[i].score : best;
    for (int i = 0; i < n; i++) sum += probability[c[i].id] = exp((double)(c[i].score - best));
    for (int i = 0; i < VOCAB; i++) probability[i] /= sum;
}

static void selection_equals_sorting(void **state)
{
    (void)state;
    struct sampler *s;
    assert_int_equal(sampler_create(&s, SAMPLER_TURBO, VOCAB, &e), UTTER_OK);
    const struct rng r = rng_stream(5, "logits");
    static double expected[VOCAB];
    for (int round = 0; round < 60; round++) {
        rng_normal(r, (uint64_t)round * VOCAB, VOCAB, logits);
        for (int i = 0; i < VOCAB; i++) {
            logits[i] *= 4;
            if (round % 3 == 0) logits[i] = rintf(logits[i]); /* ties */
        }
        struct sampler_params p = sampler_defaults(SAMPLER_TURBO);
        p.top_k = (const int[]){0, 1, 2, 50, 1000, 6562, 9000}[round % 7];
        p.top_p = round % 3 == 0
                      ? 1
                      : (const float[]){0.05f, 0.5f, 0.95f, 1}[round % 4]; /* ties at the edge of top-p go either way */
        p.temperature = (const float[]){0.3f, 0.8f, 1, 1.7f}[round % 4];
        const int32_t history[] = {5, 5, 6000, -3, 99999, round};
        plain_turbo(&p, history, 6, expected);
        const struct sampler_choice *choices;
        int n, support = 0;
        assert_int_equal(sampler_distribution(s, &p, logits, NULL, history, 6, &choices, &n, &e), UTTER_OK);
        for (int i = 0; i < n; i++)
            if (fabs(choices[i].probability - expected[choices[i].id]) > 1e-12)
                fail_msg("round %d, token %d", round, choices[i].id);
        for (int i = 0; i < VOCAB; i++) support += expected[i] > 0;
        assert_int_equal(support, n);
    }
    sampler_free(&s);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    struct sampler *s;
    assert_int_equal(sampler_create(&s, SAMPLER_TURBO, 5, &e), UTTER_OK);
    const struct sampler_params p = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    const float scores[5] = {logf(0.1f), logf(0.2f), -INFINITY, logf(0.3f), logf(0.4f)};
    int32_t token;
    const struct {
        double u;
        int32_t token;
    } cases[] = {{0, 0}, {0.0999, 0}, {0.1001, 1}, {0.2999, 1}, {0.3001, 3}, {0.5999, 3}, {0.6001, 4}, {0.9999999, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(sampler_draw(s, &p, scores, NULL, NULL, 0, cases[i].u, &token, &e), UTTER_OK);
        assert_int_equal(token, cases[i].token);
    }
    sampler_free(&s);
}

static void temperature_zero_is_greedy(void **state)
{
    (void)state; /* R10 */
    struct sampler *s;
    for (int order = SAMPLER_TURBO; order <= SAMPLER_CFG; order++) {
        assert_int_equal(sampler_create(&s, (enum sampler_order)order, 4, &e), UTTER_OK);
        struct sampler_params p = sampler_defaults((enum sampler_order)order);
        p.temperature = 0;
        p.cfg_weight = 0;
        int32_t token;
        assert_int_equal(sampler_draw(s, &p, (float[]){1, 3, 3, 2}, NULL, NULL, 0, 0.99, &token, &e), UTTER_OK);
        assert_int_equal(token, 1);
        assert_int_equal(sampler_draw(s, &p, (float[]){1, 3, 3, 2}, NULL, (int32_t[]){1}, 1, 0.99, &token, &e),
                         UTTER_OK);
        assert_int_equal(token, 2); /* the penalty counts */
        sampler_free(&s);
    }
}

static void runs_are_repeatable(void **state)
{
    (void)state;
    int32_t first[GENERATE_MAX_TOKENS];
    const struct generation_options o =
        options_for("A text that is long enough for some hundred tokens of made-up speech.");
    run(silence_on_top, &o);
    const int n = g->n_drawn;
    memcpy(first, g->drawn, (size_t)n * sizeof *first);
    const struct generation_options other = options_for("Another.");
    run(never_ends, &other);
    run(silence_on_top, &o);
    assert_int_equal(g->n_drawn, n);
    assert_memory_equal(first, g->drawn, (size_t)n * sizeof *first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_word_ends_after_seconds), cmocka_unit_test(loops_are_noticed),
        cmocka_unit_test(an_explicit_limit_wins),      cmocka_unit_test(the_network_s_positions_are_a_limit),
        cmocka_unit_test(a_short_result_is_told),      cmocka_unit_test(the_published_rules_hold),
        cmocka_unit_test(bad_logits_are_errors),       cmocka_unit_test(parameters_are_checked),
        cmocka_unit_test(selection_equals_sorting),    cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(temperature_zero_is_greedy),  cmocka_unit_test(runs_are_repeatable),
    };
    return cmocka_run_group_tests_name("generate", tests, setup, teardown);
}
