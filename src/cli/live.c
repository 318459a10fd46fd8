#include "cli/live.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/input.h"
#include "cli/report.h"
#include "text/split.h"
#include "text/unicode.h"

struct live {
    struct live_options o;
    int fd;
    bool follows; /* a regular file: its end is not the end */
    bool ended;   /* no more bytes will come */
    char *bytes;  /* read and not handed out; [taken, n) after an utterance was */
    size_t n, capacity, taken;
    int idle_ms;
};

utter_status live_open(struct live **out, const struct live_options *o, struct error *e)
{
    *out = NULL;
    struct live *l = mem_calloc(1, sizeof *l);
    if (!l) return error_set(e, UTTER_OUT_OF_MEMORY, "no memory to follow %s", o->path);
    l->o = *o;
    l->fd = strcmp(o->path, "-") == 0 ? STDIN_FILENO : open(o->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (l->fd < 0 || fstat(l->fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        const char *why = l->fd < 0 ? strerror(errno) : "is a folder";
        live_close(&l);
        return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", o->path, why);
    }
    l->follows = S_ISREG(st.st_mode) && l->fd != STDIN_FILENO;
    *out = l;
    return UTTER_OK;
}

void live_close(struct live **live)
{
    struct live *l = *live;
    if (!l) return;
    if (l->fd > STDIN_FILENO) close(l->fd);
    mem_free(l->bytes);
    mem_free(l);
    *live = NULL;
}

/* ---- reading ---- */

/* At the end of a file that is followed: begins again where it was cut short, and goes over to the file that took its name, as
 * rotated logs do. */
static void look_for_new_file(struct live *l)
{
    struct stat st, named;
    if (fstat(l->fd, &st) != 0) return;
    if (stat(l->o.path, &named) == 0 && S_ISREG(named.st_mode) &&
        (named.st_ino != st.st_ino || named.st_dev != st.st_dev)) {
        const int fd = open(l->o.path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        close(l->fd);
        l->fd = fd;
        report_note("%s is another file now: reading that", l->o.path);
    } else if (st.st_size < lseek(l->fd, 0, SEEK_CUR)) {
        lseek(l->fd, 0, SEEK_SET);
        report_note("%s was cut short: reading from its beginning", l->o.path);
    }
}

/* Waits up to LIVE_POLL_MS for bytes; returns how many came, 0 for none yet or the end, -1 for an error. */
static ssize_t read_some(struct live *l)
{
    if (l->follows) {
        const ssize_t got = read(l->fd, l->bytes + l->n, l->capacity - l->n);
        if (got == 0) {
            look_for_new_file(l);
            poll(NULL, 0, LIVE_POLL_MS);
        }
        return got < 0 && errno == EINTR ? 0 : got;
    }
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    const int ready = poll(&p, 1, LIVE_POLL_MS);
    if (ready <= 0) return ready < 0 && errno != EINTR ? -1 : 0;
    const ssize_t got = read(l->fd, l->bytes + l->n, l->capacity - l->n);
    if (got == 0) l->ended = true;
    return got < 0 && errno == EINTR ? 0 : got;
}

static utter_status fill(struct live *l, struct error *e)
{
    enum { ROOM = 4096 };
    if (l->capacity - l->n < ROOM) {
        if (l->n > INPUT_MAX_BYTES)
            return error_set(e, UTTER_INPUT_UNREADABLE, "%s: a sentence of more than %d bytes", l->o.path,
                             INPUT_MAX_BYTES);
        char *grown = mem_realloc(l->bytes, l->capacity + 4 * ROOM);
        if (!grown) return error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for the text", l->o.path);
        l->bytes = grown;
        l->capacity += 4 * ROOM;
    }
    const ssize_t got = read_some(l);
    if (got < 0) return error_set(e, UTTER_INPUT_UNREADABLE, "%s: %s", l->o.path, strerror(errno));
    l->n += (size_t)got;
    l->idle_ms = got > 0 ? 0 : l->idle_ms + LIVE_POLL_MS;
    return UTTER_OK;
}

/* ---- what is whole ---- */

/* The bytes that are whole UTF-8: an unfinished character at the end waits, bad bytes become '?'. */
static size_t settle_utf8(struct live *l)
{
    size_t at = 0;
    while (at < l->n) {
        const unsigned char c = (unsigned char)l->bytes[at];
        const size_t length = c < 0x80                ? 1
                              : c >= 0xF0 && c < 0xF5 ? 4
                              : c >= 0xE0 && c < 0xF0 ? 3
                              : c >= 0xC2 && c < 0xE0 ? 2
                                                      : 0;
        const size_t left = l->n - at;
        size_t good = 1;
        while (good < length && good < left && ((unsigned char)l->bytes[at + good] & 0xC0) == 0x80) good++;
        if (length > 0 && good == left && good < length && !l->ended) return at;
        const bool valid = length > 0 && good == length && utf8_check(l->bytes + at, length, "", NULL) == UTTER_OK;
        if (!valid) l->bytes[at] = '?';
        at += valid ? length : 1;
    }
    return at;
}

/* A line that is the end marker: everything from it on is cut off. */
static void look_for_marker(struct live *l)
{
    const char *marker = l->o.eof_marker;
    const size_t m = marker ? strlen(marker) : 0;
    for (size_t line = 0; m > 0 && line < l->n;) {
        const char *newline = memchr(l->bytes + line, '\n', l->n - line);
        const size_t end = newline ? (size_t)(newline - l->bytes) : l->n;
        const size_t length = end > line && l->bytes[end - 1] == '\r' ? end - line - 1 : end - line;
        if (length == m && memcmp(l->bytes + line, marker, m) == 0 && (newline || l->ended)) {
            l->n = line;
            l->ended = true;
            l->follows = false;
            return;
        }
        line = end + 1;
    }
}

static bool ends_like_a_sentence(const char *text, size_t n)
{
    while (n > 0 && strchr(" \t\r\n\"')]", text[n - 1])) n--;
    return n > 0 && text[n - 1] && strchr(".!?:;", text[n - 1]);
}

/* How many bytes make the next utterance; 0: wait. */
static size_t next_length(const struct live *l, size_t n)
{
    if (l->o.by_line) {
        const char *newline = memchr(l->bytes, '\n', n);
        return newline ? (size_t)(newline - l->bytes) + 1 : l->ended ? n : 0;
    }
    const bool settled = l->ended || (l->idle_ms >= LIVE_IDLE_MS && ends_like_a_sentence(l->bytes, n));
    return text_first_sentence(l->bytes, n, !settled);
}

utter_status live_next(struct live *l, const char **text, size_t *n, struct error *e)
{
    if (l->taken > 0) memmove(l->bytes, l->bytes + l->taken, l->n - l->taken);
    l->n -= l->taken;
    l->taken = 0;
    for (;;) {
        if (l->o.interrupt && __atomic_load_n(l->o.interrupt, __ATOMIC_RELAXED))
            return error_set(e, UTTER_CANCELLED, "cancelled");
        look_for_marker(l);
        const size_t whole = settle_utf8(l);
        const size_t length = whole > 0 ? next_length(l, whole) : 0;
        if (length > 0) {
            l->taken = length;
            *text = l->bytes;
            *n = length;
            return UTTER_OK;
        }
        if (l->ended) return UTTER_DONE;
        const utter_status s = fill(l, e);
        if (s != UTTER_OK) return s;
    }
}
