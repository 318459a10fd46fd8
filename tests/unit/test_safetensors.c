/* checkpoint: safetensors files and published folders, sound and hostile. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "test.h"

static char folder[] = "utter-test-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ & 3];
    snprintf(p, sizeof *path, "%s/%s", folder, name);
    return p;
}

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* A safetensors file of this header and n_data bytes 0, 1, 2, ... */
static size_t make(char *out, const char *header, uint64_t header_bytes, size_t n_data)
{
    const size_t n = strlen(header);
    memcpy(out, &header_bytes, 8);
    memcpy(out + 8, header, n);
    for (size_t i = 0; i < n_data; i++) out[8 + n + i] = (char)i;
    return 8 + n + n_data;
}

static void write_safetensors(const char *name, const char *header, size_t n_data)
{
    char data[4096];
    write_file(name, data, make(data, header, strlen(header), n_data));
}

static const char t3_header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                "\"tfmr.wpe.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                "\"speech_head.bias\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[24,34]},"
                                "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[34,42]}}";

static struct checkpoint *open_sound(const char *name)
{
    struct checkpoint *ck;
    struct error e = {""};
    if (checkpoint_open(&ck, in_folder(name), NULL, NULL, &e) != UTTER_OK) fail_msg("%s", e.text);
    return ck;
}

static void reads_a_file(void **state)
{
    (void)state;
    write_safetensors("a.safetensors", t3_header, 42);
    struct checkpoint *ck = open_sound("a.safetensors");
    assert_string_equal(checkpoint_format(ck), "safetensors");
    assert_int_equal(checkpoint_tensors(ck), 3);
    const struct tensor *t = checkpoint_find(ck, "t3.tfmr.wpe.weight");
    assert_non_null(t);
    assert_int_equal(t->type, DTYPE_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(((const unsigned char *)t->data)[23], 23);
    assert_int_equal(checkpoint_find(ck, "t3.speech_head.bias")->n_bytes, 10);
    assert_int_equal(checkpoint_find(ck, "t3.count")->n_dims, 0);
    assert_null(checkpoint_find(ck, "t3.nothing"));
    assert_string_equal(checkpoint_meta(ck, "format")->as.string, "pt");
    assert_string_equal(checkpoint_file_of(ck, "t3.nothing"), in_folder("a.safetensors"));
    checkpoint_close(&ck);
    checkpoint_close(&ck);
}

static void opening_can_be_cancelled(void **state)
{
    (void)state;
    struct checkpoint *ck;
    struct error e = {""};
    struct cancel cancel = {0};
    write_safetensors("a.safetensors", t3_header, 42);
    assert_int_equal(checkpoint_open(&ck, in_folder("a.safetensors"), NULL, &cancel, &e), UTTER_OK);
    checkpoint_close(&ck);
    cancel_request(&cancel);
    assert_int_equal(checkpoint_open(&ck, in_folder("a.safetensors"), NULL, &cancel, &e), UTTER_CANCELLED);
    assert_null(ck);
}

static void reads_a_folder_of_what_is_there(void **state)
{
    (void)state;
    mkdir(in_folder("model"), 0700);
    write_safetensors("model/t3_turbo_v1.safetensors", t3_header, 42);
    struct checkpoint *ck = open_sound("model");
    assert_string_equal(checkpoint_format(ck), "published folder");
    assert_int_equal(checkpoint_tensors(ck), 3);
    checkpoint_close(&ck);
    write_safetensors("model/ve.safetensors",
                      "{\"lstm.weight_ih_l0\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    write_file("model/vocab.json", "{}", 2);
    ck = open_sound("model/");
    assert_non_null(checkpoint_find(ck, "ve.lstm.weight_ih_l0"));
    assert_non_null(checkpoint_find(ck, "t3.count"));
    size_t n = 0;
    assert_memory_equal(checkpoint_side_file(ck, "vocab.json", &n), "{}", 2);
    assert_int_equal(n, 2);
    assert_null(checkpoint_side_file(ck, "merges.txt", &n));
    checkpoint_close(&ck);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_file),
        cmocka_unit_test(opening_can_be_cancelled),
        cmocka_unit_test(reads_a_folder_of_what_is_there),
    };
    const int failed = cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed;
}
