/* Runs a fuzz target over files and the files of folders: saved inputs as an ordinary test. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_inputs;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 1;
    uint8_t *data = malloc(1 << 20);
    const size_t n = fread(data, 1, 1 << 20, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* of the very size, so that a byte too far is seen */
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    free(data);
    n_inputs++;
    return 0;
}

static int run_path(const char *path)
{
    DIR *folder = opendir(path);
    int failures = 0;
    if (!folder) return run_file(path);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failures += run_file(name);
    }
    closedir(folder);
    return failures;
}

int main(int argc, char **argv)
{
    int failures = 0;
    for (int i = 1; i < argc; i++) failures += run_path(argv[i]);
    printf("%d inputs\n", n_inputs);
    return failures > 0 || n_inputs == 0;
}
