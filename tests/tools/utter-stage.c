/*
 * utter-stage - replays a reference file through one part of the engine (see docs/testing.md).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/stages/stage.h"

static const char *const level_names[] = {"auto", "scalar", "avx2", "avx512", "neon"};

static int usage(void)
{
    fprintf(stderr, "usage: utter-stage --checkpoint FOLDER --stage NAME --in FILE --out FILE\n"
                    "                   [--cpu LEVEL] [--threads N] [--precision f32|fast]\nstages:");
    for (const struct stage *s = stages; s->name; s++) fprintf(stderr, " %s", s->name);
    fprintf(stderr, "\n");
    return 2;
}

static bool level_from_name(const char *name, enum cpu_level *level)
{
    for (int i = 0; i < 5; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum cpu_level)i;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"checkpoint", required_argument, NULL, 'c'}, {"stage", required_argument, NULL, 's'},
        {"in", required_argument, NULL, 'i'},         {"out", required_argument, NULL, 'o'},
        {"cpu", required_argument, NULL, 'l'},        {"threads", required_argument, NULL, 't'},
        {"precision", required_argument, NULL, 'p'},  {0}};
    struct stage_settings settings = {0};
    const char *in_path = NULL, *out_path = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (c) {
        case 'c':
            settings.checkpoint = optarg;
            break;
        case 's':
            settings.stage = optarg;
            break;
        case 'i':
            in_path = optarg;
            break;
        case 'o':
            out_path = optarg;
            break;
        case 't':
            settings.device.n_threads = atoi(optarg);
            break;
        case 'p':
            settings.device.precision = strcmp(optarg, "fast") == 0 ? PRECISION_FAST : PRECISION_F32;
            break;
        case 'l':
            if (!level_from_name(optarg, &settings.device.level)) return usage();
            break;
        default:
            return usage();
        }
    if (optind != argc || !settings.checkpoint || !settings.stage || !in_path || !out_path) return usage();

    struct reffile in = {0}, out = {0};
    struct error e = {""};
    utter_status status = reffile_read(&in, in_path, &e);
    if (status == UTTER_OK) status = stage_run(&settings, &in, &out, &e);
    if (status == UTTER_OK) status = reffile_write(&out, out_path, &e);
    reffile_free(&in);
    reffile_free(&out);
    if (status == UTTER_OK) return 0;
    fprintf(stderr, "utter-stage: %s\n", e.text);
    return 1;
}
