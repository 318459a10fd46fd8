/* Voice files: GGUF with notes and conditionals. The magic is put there, so that no run is lost on it. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "chatterbox/voice_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 4) return 0;
    uint8_t *copy = malloc(n); /* of the very size, so that a byte too far is seen */
    if (!copy) return 0;
    memcpy(copy, data, n);
    memcpy(copy, "GGUF", 4);
    struct checkpoint *ck;
    struct voice v = {0};
    struct error e = {""};
    if (checkpoint_open_memory(&ck, copy, n, "fuzz", &e) == UTTER_OK) {
        if (voice_read(&v, ck, &e) == UTTER_OK) {
            for (int r = 0; r < VOICE_N_RULES; r++) /* what is accepted keeps the rules */
                if (v.conds[r].n_prompt_tokens && conds_check(&v.conds[r], "fuzz", &e) != UTTER_OK) abort();
            voice_free(&v);
        } else if (!strstr(e.text, "fuzz"))
            abort(); /* every message names the file */
        checkpoint_close(&ck);
    }
    free(copy);
    return 0;
}
