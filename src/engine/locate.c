#include "engine/locate.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static bool exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static bool is_model_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(d));)
        found = strncmp(entry->d_name, "t3_", 3) == 0 && ends_with(entry->d_name, ".safetensors");
    closedir(d);
    return found;
}

static bool add(struct located_models *m, const char *path, const char *origin)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->models[i].path, path) == 0) return true;
    struct located_model *grown = mem_realloc(m->models, (m->count + 1) * sizeof *grown);
    if (!grown) return false;
    m->models = grown;
    const char *slash = strrchr(path, '/');
    struct located_model *new = &grown[m->count];
    *new = (struct located_model){mem_strdup(slash && slash[1] ? slash + 1 : path), mem_strdup(path), origin};
    if (!new->name || !new->path) {
        mem_free(new->name);
        mem_free(new->path);
        return false;
    }
    static const char *const extensions[] = {".gguf", ".voice"};
    for (size_t i = 0; i < 2; i++)
        if (ends_with(new->name, extensions[i])) new->name[strlen(new->name) - strlen(extensions[i])] = '\0';
    m->count++;
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_model(const char *path)
{
    return ends_with(path, ".gguf") ? is_file(path) : is_model_folder(path);
}
static bool is_voice(const char *path)
{
    return ends_with(path, ".voice") && is_file(path);
}

static bool add_folder(struct located_models *m, const char *folder, const char *origin,
                       bool (*wanted)(const char *path))
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, by_name);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        const char *name = entries[i]->d_name;
        const bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
        if (ok && fits && name[0] != '.' && wanted(path)) ok = add(m, path, origin);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return ok;
}

/* The folder of the file that this code was loaded from: the command or the shared library. */
static bool own_folder(char out[PATH_MAX])
{
    Dl_info info;
    if (!dladdr((const void *)(size_t)locate_models, &info) || !info.dli_fname) return false;
    /* For the program itself the name is what the shell typed; ask the kernel instead. */
    char *real = strchr(info.dli_fname, '/') ? realpath(info.dli_fname, out) : NULL;
    if (!real) real = realpath("/proc/self/exe", out);
    char *slash = real ? strrchr(out, '/') : NULL;
    if (slash) *slash = '\0';
    return slash != NULL;
}

static bool add_built_in(struct located_models *m)
{
    static const char *const beside[] = {"voices", "../share/utter/voices", "../../share/utter/voices"};
    char own[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof beside / sizeof beside[0] && own_folder(own); i++) {
        snprintf(path, sizeof path, "%s/%s", own, beside[i]);
        if (realpath(path, real)) ok = add_folder(m, real, "built in", is_model);
    }
    return ok && add_folder(m, UTTER_DATA_FOLDER "/voices", "built in", is_model);
}

/* $XDG_DATA_HOME/utter/`leaf`. False when there is no home. */
static bool user_folder(char path[PATH_MAX], const char *leaf)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data) return snprintf(path, PATH_MAX, "%s/utter/%s", data, leaf) < PATH_MAX;
    return home && *home && snprintf(path, PATH_MAX, "%s/.local/share/utter/%s", home, leaf) < PATH_MAX;
}

static bool add_user(struct located_models *m)
{
    char path[PATH_MAX];
    return !user_folder(path, "models") || add_folder(m, path, "user", is_model);
}

utter_status locate_models(struct located_models *out, struct error *e)
{
    *out = (struct located_models){0};
    const char *chosen = getenv("UTTER_MODEL");
    if ((!chosen || !exists(chosen) || add(out, chosen, "environment")) && add_built_in(out) && add_user(out))
        return UTTER_OK;
    located_models_free(out);
    return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to list the models");
}

void located_models_free(struct located_models *m)
{
    for (size_t i = 0; i < m->count; i++) {
        mem_free(m->models[i].name);
        mem_free(m->models[i].path);
    }
    mem_free(m->models);
    *m = (struct located_models){0};
}

utter_status locate_model(char **out, const char *path_or_name, struct error *e)
{
    *out = NULL;
    if (path_or_name && !*path_or_name)
        return error_set(e, UTTER_MODEL_NOT_FOUND,
                         "the name of the model is empty: leave it out for the default model");
    const char *wanted = path_or_name ? path_or_name : getenv("UTTER_MODEL");
    const char *path = wanted && exists(wanted) ? wanted : NULL;
    struct located_models all;
    utter_status s = locate_models(&all, e);
    if (s != UTTER_OK) return s;
    for (size_t i = 0; !path && i < all.count; i++)
        if (!wanted || !*wanted || strcmp(wanted, all.models[i].name) == 0) path = all.models[i].path;
    if (path)
        s = (*out = mem_strdup(path)) ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a path");
    else if (wanted && *wanted)
        s = error_set(e, UTTER_MODEL_NOT_FOUND,
                      "%s: no such file, folder or model name (utter models lists what is found)", wanted);
    else
        s = error_set(
            e, UTTER_MODEL_NOT_FOUND,
            "no model: the built-in voice was not found beside the program nor in %s/voices; name one with -m",
            UTTER_DATA_FOLDER);
    located_models_free(&all);
    return s;
}

/* ---- voices --------------------------------------------------------------------------------------------------------- */

utter_status locate_voices(struct located_models *out, struct error *e)
{
    char path[PATH_MAX];
    *out = (struct located_models){0};
    if (!user_folder(path, "voices") || add_folder(out, path, "user", is_voice)) return UTTER_OK;
    located_models_free(out);
    return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to list the voices");
}

utter_status locate_voice(char **out, const char *path_or_name, struct error *e)
{
    char folder[PATH_MAX], path[PATH_MAX + 512];
    const char *found = exists(path_or_name) ? path_or_name : NULL;
    if (!found && !strchr(path_or_name, '/') && user_folder(folder, "voices")) {
        snprintf(path, sizeof path, "%s/%.500s.voice", folder, path_or_name);
        if (exists(path)) found = path;
    }
    if (!found)
        return error_set(e, UTTER_INPUT_UNREADABLE,
                         "%s: no such voice file, and `utter voice list` knows no voice of this name", path_or_name);
    *out = mem_strdup(found);
    return *out ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a path");
}

utter_status locate_new_voice(char **out, const char *name, struct error *e)
{
    char path[PATH_MAX], file[PATH_MAX + 512];
    if (strchr(name, '/') || name[0] == '.' || !name[0])
        return error_set(e, UTTER_INVALID_ARGUMENT,
                         "\"%s\" cannot be the name of a voice's file; choose another with --name", name);
    if (!user_folder(path, "voices"))
        return error_set(e, UTTER_OUTPUT_UNWRITABLE, "there is no home folder to keep voices in; name a file with -o");
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) { /* every folder on the way */
        if (slash) *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return error_set(e, UTTER_OUTPUT_UNWRITABLE, "%s: %s", path, strerror(errno));
        if (!slash) break;
        *slash = '/';
    }
    snprintf(file, sizeof file, "%s/%.500s.voice", path, name);
    *out = mem_strdup(file);
    return *out ? UTTER_OK : error_set(e, UTTER_OUT_OF_MEMORY, "no memory for a path");
}
