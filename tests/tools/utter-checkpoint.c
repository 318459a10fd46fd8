/*
 * utter-checkpoint SPEC.json OUT.safetensors - a checkpoint of any size from a list of its tensors (see hashfill.h).
 */
#include <stdio.h>

#include "tools/hashfill.h"

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: utter-checkpoint SPEC.json OUT.safetensors\n");
        return 2;
    }
    struct error e;
    if (hashfill_checkpoint(argv[1], argv[2], &e) != UTTER_OK) {
        fprintf(stderr, "utter-checkpoint: %s\n", e.text);
        return 1;
    }
    return 0;
}
