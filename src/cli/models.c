/*
 * models.c - `utter models`: the models that can be named without a path, and where they lie.
 */
#include "cli/cli.h"

#include <jansson.h>
#include <sys/stat.h>

#include "engine/locate.h"

struct settings {
    bool json;
};

static const struct option options[] = {
    {"--json", NULL, OPTION_SWITCH, offsetof(struct settings, json), .help = "List as JSON."}, {0}};

static void print_json(const struct located_models *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", all->models[i].name, "path",
                                              all->models[i].path, "origin", all->models[i].origin, "default", i == 0));
    json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct words rest;
    int code;
    if (!options_parse(self, &s, &rest, argc, argv, &code)) return code;
    if (rest.count > 0) {
        report_error("models takes no argument: %s", rest.word[0]);
        return EXIT_USAGE;
    }
    struct error error;
    struct located_models all;
    const utter_status status = locate_models(&all, &error);
    if (status != UTTER_OK) {
        report_error("%s", error.text);
        return exit_code_of(status);
    }
    if (s.json)
        print_json(&all);
    else
        for (size_t i = 0; i < all.count; i++)
            printf("%s %-20s %-12s %s\n", i == 0 ? "*" : " ", all.models[i].name, all.models[i].origin,
                   all.models[i].path);
    if (all.count == 0) report_note("no models found");
    located_models_free(&all);
    return EXIT_OK;
}

const struct command command_models = {
    .name = "models",
    .summary = "list the models that are found, and where",
    .synopsis = "",
    .description =
        "Models are looked for in $UTTER_MODEL, in the voices that came with the program, and in "
        "$XDG_DATA_HOME/utter/models (~/.local/share/utter/models). The one marked * is used when no -m is given.",
    .options = options,
    .run = run,
};
