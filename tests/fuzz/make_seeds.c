/* make-seeds FOLDER: writes the seeds of the three model fuzzers, small files that open, into FOLDER/{safetensors,gguf,torch}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/bytes.h"

static const char *folder;

static void save(struct bytes *b, const char *kind, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, name);
    bytes_write(b, path);
    free(b->data);
    *b = (struct bytes){0};
}

static void safetensors_seeds(void)
{
    static const char *const headers[][2] = {
        {"t3", "{\"__metadata__\":{\"format\":\"pt\"},"
               "\"tfmr.h.0.attn.c_attn.weight\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
               "\"speech_emb.weight\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]}}"},
        {"weight-norm",
         "{\"mel2wav.ups.0.parametrizations.weight.original0\":{\"dtype\":\"F32\",\"shape\":[2,1,1],\"data_offsets\":["
         "0,8]},"
         "\"mel2wav.ups.0.parametrizations.weight.original1\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[8,"
         "24]},"
         "\"mel2wav.conv_pre.weight_g\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[24,28]},"
         "\"mel2wav.conv_pre.weight_v\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[28,32]}}"},
        {"integers", "{\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":"
                     "[1,1,2,4],\"data_offsets\":[8,16]}}"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct bytes b = {0};
        bytes_text(&b, headers[i][1]);
        bytes_uint(&b, 0xFF, 1);
        bytes_count(&b, 32);
        save(&b, "safetensors", headers[i][0]);
    }
    struct bytes whole = {0};
    bytes_uint(&whole, 0xFF, 1);
    bytes_safetensors(&whole, strlen(headers[2][1]), headers[2][1], 16);
    save(&whole, "safetensors", "whole");
}

static void put_tokenizer(struct bytes *b)
{
    bytes_gguf_key(b, "tokenizer.ggml.model", 8);
    bytes_gguf_string(b, "gpt2");
    bytes_gguf_key(b, "tokenizer.ggml.tokens", 9);
    bytes_uint(b, 8, 4);
    bytes_uint(b, 3, 8);
    bytes_gguf_string(b, "a");
    bytes_gguf_string(b, "b");
    bytes_gguf_string(b, "ab");
    bytes_gguf_key(b, "tokenizer.ggml.merges", 9);
    bytes_uint(b, 8, 4);
    bytes_uint(b, 1, 8);
    bytes_gguf_string(b, "a b");
    bytes_gguf_key(b, "tokenizer.ggml.token_type", 9);
    bytes_uint(b, 5, 4);
    bytes_uint(b, 3, 8);
    for (int i = 0; i < 3; i++) bytes_uint(b, 1, 4);
}

static void gguf_seeds(void)
{
    struct bytes b = {0};
    bytes_gguf(&b, 3, 6);
    bytes_gguf_key(&b, "general.architecture", 8);
    bytes_gguf_string(&b, "chatterbox");
    put_tokenizer(&b);
    bytes_gguf_key(&b, "chatterbox.layer_norm_eps", 6);
    bytes_uint(&b, 0x3727C5AC, 4);
    bytes_gguf_tensor(&b, "model/h0/attn/c_attn/w", 2, (const uint64_t[]){32, 3}, 8, 0);
    bytes_gguf_tensor(&b, "chatterbox/speech_emb", 2, (const uint64_t[]){4, 2}, 1, 128);
    bytes_gguf_tensor(&b, "chatterbox/builtin/cond_prompt_speech_tokens", 1, (const uint64_t[]){2}, 26, 160);
    bytes_pad(&b, 32);
    bytes_count(&b, 168);
    save(&b, "gguf", "port-t3");
    bytes_gguf(&b, 4, 2);
    bytes_gguf_key(&b, "general.architecture", 8);
    bytes_gguf_string(&b, "chatterbox-s3gen");
    bytes_gguf_key(&b, "s3gen.meanflow", 7);
    bytes_uint(&b, 1, 1);
    bytes_gguf_tensor(&b, "cfm/mid_blocks/0/1/0/attn1/to_q/weight", 2, (const uint64_t[]){32, 1}, 2, 0);
    bytes_gguf_tensor(&b, "flow/encoder/up_block0/ff/w1/w", 2, (const uint64_t[]){32, 1}, 6, 32);
    bytes_gguf_tensor(&b, "hift/ups/0/weight", 3, (const uint64_t[]){2, 1, 2}, 0, 64);
    bytes_gguf_tensor(&b, "s3gen/builtin/embedding", 1, (const uint64_t[]){2}, 0, 96);
    bytes_pad(&b, 32);
    bytes_count(&b, 104);
    save(&b, "gguf", "port-s3gen");
    bytes_gguf(&b, 2, 4);
    bytes_gguf_key(&b, "utter.format_version", 4);
    bytes_uint(&b, 1, 4);
    bytes_gguf_key(&b, "general.alignment", 4);
    bytes_uint(&b, 64, 4);
    bytes_gguf_key(&b, "utter.can_clone", 7);
    bytes_uint(&b, 0, 1);
    bytes_gguf_key(&b, "numbers", 9);
    bytes_uint(&b, 10, 4);
    bytes_uint(&b, 1, 8);
    bytes_uint(&b, 7, 8);
    bytes_gguf_tensor(&b, "s3gen.flow.input_embedding.weight", 3, (const uint64_t[]){2, 1, 2}, 0, 0);
    bytes_gguf_tensor(&b, "t3.tfmr.h.0.mlp.c_fc.weight", 2, (const uint64_t[]){4, 2}, 30, 64);
    bytes_pad(&b, 64);
    bytes_count(&b, 80);
    save(&b, "gguf", "ours");
}

static void torch_seeds(void)
{
    static const uint8_t numbers[64];
    static const uint16_t shape[] = {2, 4}, contiguous[] = {4, 1}, transposed[] = {1, 2};
    struct bytes b = {0}, pickle = {0};
    bytes_pickle_begin(&pickle);
    bytes_pickle_tensor(&pickle, "flow.input_embedding.weight", "FloatStorage", "0", 16, 4, 2, shape, contiguous);
    bytes_pickle_tensor(&pickle, "b", "BFloat16Storage", "0", 32, 0, 2, shape, transposed);
    bytes_pickle_tensor(&pickle, "c", "LongStorage", "0", 8, 1, 0, shape, contiguous);
    bytes_pickle_end(&pickle);
    const struct zip_member members[] = {
        {"m/data.pkl", pickle.data, pickle.n}, {"m/data/0", numbers, 64}, {"m/byteorder", "little", 6}};
    bytes_zip(&b, members, 3);
    save(&b, "torch", "archive");
    save(&pickle, "torch", "pickle");
    /* A protocol 4 dict in a dict, with memo, list, numbers and nothing. */
    static const char other[] =
        "\x80\x04\x95\0\0\0\0\0\0\0\0}\x94\x8c\2t3\x94}\x94(\x8c\1x\x94N\x8c\1y\x94](K\1M\2\0J\3\0\0\0\x8a\2\1\1"
        "G?\xf0\0\0\0\0\0\0\x88\x89"
        "e\x8c\1z\x94h\2us.";
    bytes_put(&b, other, sizeof other - 1);
    save(&b, "torch", "protocol-4");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make-seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    safetensors_seeds();
    gguf_seeds();
    torch_seeds();
    return 0;
}
