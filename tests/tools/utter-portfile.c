/*
 * utter-portfile FOLDER T3.gguf S3GEN.gguf TYPE - the ggml port's pair of files from a published folder (see portfile.h).
 */
#include <stdio.h>
#include <string.h>

#include "tools/portfile.h"

int main(int argc, char **argv)
{
    struct error e;
    for (int t = 0; argc == 5 && t < DTYPE_COUNT; t++) {
        if (strcmp(dtype_name((enum dtype)t), argv[4]) != 0) continue;
        if (portfile_write(argv[1], argv[2], argv[3], (enum dtype)t, &e) == UTTER_OK) return 0;
        fprintf(stderr, "utter-portfile: %s\n", e.text);
        return 1;
    }
    fprintf(stderr, "usage: utter-portfile FOLDER T3.gguf S3GEN.gguf f32|f16|q8_0|q5_0|q4_0\n");
    return 2;
}
