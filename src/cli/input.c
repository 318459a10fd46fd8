#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "text/unicode.h"

static utter_status from_utf16(char **text, size_t *n, char *bytes, size_t n_bytes, const char *where, struct error *e)
{
    const size_t room = n_bytes * 2 + 1; /* 2 bytes become at most 3 */
    char *out = mem_alloc(room);
    iconv_t cd = iconv_open("UTF-8", "UTF-16");
    utter_status s = UTTER_OK;
    if (!out || cd == (iconv_t)-1) s = error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory to convert UTF-16", where);
    char *in = bytes, *to = out;
    size_t left = n_bytes, room_left = room - 1;
    if (s == UTTER_OK && iconv(cd, &in, &left, &to, &room_left) == (size_t)-1)
        s = error_set(e, UTTER_INPUT_UNREADABLE, "%s: byte %zu is not UTF-16", where, n_bytes - left);
    if (cd != (iconv_t)-1) iconv_close(cd);
    mem_free(bytes);
    if (s != UTTER_OK) {
        mem_free(out);
        return s;
    }
    *to = '\0';
    *text = out;
    *n = (size_t)(to - out);
    return UTTER_OK;
}

utter_status input_to_utf8(char **text, size_t *n, char *bytes, size_t n_bytes, const char *where, struct error *e)
{
    *text = NULL;
    *n = 0;
    if (n_bytes >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0))
        return from_utf16(text, n, bytes, n_bytes, where, e);
    if (n_bytes >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) memmove(bytes, bytes + 3, n_bytes -= 3);
    bytes[n_bytes] = '\0';
    if (utf8_check(bytes, n_bytes, where, e) != UTTER_OK) {
        mem_free(bytes);
        return UTTER_INPUT_UNREADABLE;
    }
    *text = bytes;
    *n = n_bytes;
    return UTTER_OK;
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
