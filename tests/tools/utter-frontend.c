/*
 * utter-frontend - a recording through the front ends of voice cloning, into a safetensors file (see frontend.h).
 */
#include <stdio.h>

#include "tools/frontend.h"

int main(int argc, char **argv)
{
    struct reffile out = {0};
    struct error e = {""};
    if (argc != 3) {
        fprintf(stderr, "usage: utter-frontend RECORDING OUT.safetensors\n");
        return 2;
    }
    utter_status s = frontend_run(&out, argv[1], &e);
    if (s == UTTER_OK) s = reffile_write(&out, argv[2], &e);
    reffile_free(&out);
    if (s != UTTER_OK) fprintf(stderr, "utter-frontend: %s\n", e.text);
    return s == UTTER_OK ? 0 : 1;
}
