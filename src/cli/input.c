#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/report.h"
#include "text/decode.h"

utter_status input_to_utf8(char **text, size_t *n, char *bytes, size_t n_bytes, const char *where, struct error *e)
{
    const utter_status s = text_decode(text, n, bytes, n_bytes, where, e);
    mem_free(bytes);
    return s;
}

/* Reads to the end; the buffer has room for a terminator. */
static utter_status read_all(char **bytes, size_t *n, int fd, const char *where, struct error *e)
{
    size_t capacity = 1 << 16;
    *n = 0;
    *bytes = mem_alloc(capacity);
    while (*bytes) {
        const ssize_t got = read(fd, *bytes + *n, capacity - *n - 1);
        if (got < 0 && errno == EINTR) return error_set(e, UTTER_CANCELLED, "%s: interrupted", where);
        if (got < 0) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", where, strerror(errno));
        if (got == 0) return UTTER_OK;
        *n += (size_t)got;
        if (*n > INPUT_MAX_BYTES)
            return error_set(e, UTTER_INPUT_UNREADABLE, "%s: more than %d bytes of text", where, INPUT_MAX_BYTES);
        if (capacity - *n > 1) continue;
        char *grown = mem_realloc(*bytes, capacity *= 2);
        if (!grown) break;
        *bytes = grown;
    }
    return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to read it", where);
}

utter_status input_read(char **text, size_t *n, const char *path, struct error *e)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    const char *where = is_stdin ? "standard input" : path;
    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    *text = NULL;
    if (fd < 0) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", where, strerror(errno));
    char *bytes = NULL;
    size_t n_bytes = 0;
    const utter_status s = read_all(&bytes, &n_bytes, fd, where, e);
    if (!is_stdin) close(fd);
    if (s == UTTER_OK) return input_to_utf8(text, n, bytes, n_bytes, where, e);
    mem_free(bytes);
    return s;
}

utter_status input_words(char **text, size_t *n, const char *file, const struct words *words, struct error *e)
{
    const bool is_stdin = words->count == 0 || (words->count == 1 && strcmp(words->word[0], "-") == 0);
    if (!file && is_stdin && isatty(STDIN_FILENO)) report_note("reading text from the terminal; Ctrl-D ends it");
    if (file || is_stdin) return input_read(text, n, file ? file : "-", e);
    struct buf b = buf_empty(INPUT_MAX_BYTES);
    for (int i = 0; i < words->count; i++) {
        if (i > 0) buf_append_string(&b, " ");
        buf_append_string(&b, words->word[i]);
    }
    const size_t length = b.n;
    char *joined = buf_take(&b);
    buf_free(&b);
    if (!joined) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory for the text");
    return input_to_utf8(text, n, joined, length, "the text", e);
}
