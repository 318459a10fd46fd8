#include "engine/locate.h"

#include <dirent.h>
#include <dlfcn.h>
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
    if (ends_with(new->name, ".gguf")) new->name[strlen(new->name) - strlen(".gguf")] = '\0';
    m->count++;
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool add_folder(struct located_models *m, const char *folder, const char *origin)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, by_name);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        const char *name = entries[i]->d_name;
        const bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
        if (ok && fits && name[0] != '.' && (ends_with(name, ".gguf") ? is_file(path) : is_model_folder(path)))
            ok = add(m, path, origin);
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
        if (realpath(path, real)) ok = add_folder(m, real, "built in");
    }
    return ok && add_folder(m, UTTER_DATA_FOLDER "/voices", "built in");
}

static bool add_user(struct located_models *m)
{
    char path[PATH_MAX];
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data)
        snprintf(path, sizeof path, "%s/utter/models", data);
    else if (home && *home)
        snprintf(path, sizeof path, "%s/.local/share/utter/models", home);
    else
        return true;
    return add_folder(m, path, "user");
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
    const char *wanted = path_or_name && *path_or_name ? path_or_name : getenv("UTTER_MODEL");
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
