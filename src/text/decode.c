#include "text/decode.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/unicode.h"

static int32_t utf16_unit(const char *bytes, size_t at, bool big)
{
    const unsigned char a = (unsigned char)bytes[at], b = (unsigned char)bytes[at + 1];
    return big ? a << 8 | b : b << 8 | a;
}

static utter_status append_utf16(struct buf *b, const char *bytes, size_t n, bool big, const char *name,
                                 struct error *e)
{
    for (size_t at = 2; at < n; at += 2) {
        int32_t cp = at + 1 < n ? utf16_unit(bytes, at, big) : 0xD800;
        if (cp >= 0xD800 && cp < 0xDC00 && at + 3 < n) {
            const int32_t low = utf16_unit(bytes, at + 2, big);
            if (low >= 0xDC00 && low < 0xE000) {
                cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
                at += 2;
            }
        }
        if (cp >= 0xD800 && cp < 0xE000)
            return error_set(e, UTTER_INPUT_UNREADABLE, "%s: byte %zu is not UTF-16 (half of a pair)", name, at);
        buf_append_code_point(b, cp);
    }
    return UTTER_OK;
}

utter_status text_decode(char **out, size_t *out_n, const char *bytes, size_t n, const char *name, struct error *e)
{
    *out = NULL;
    struct buf b = buf_empty(2 * n + 1);
    const bool little = n >= 2 && memcmp(bytes, "\xFF\xFE", 2) == 0, big = n >= 2 && memcmp(bytes, "\xFE\xFF", 2) == 0;
    utter_status s = UTTER_OK;
    if (little || big) {
        s = append_utf16(&b, bytes, n, big, name, e);
    } else {
        const size_t mark = n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        s = utf8_check(bytes, n, name, e) == UTTER_OK ? UTTER_OK : UTTER_INPUT_UNREADABLE;
        if (s == UTTER_OK) buf_append(&b, bytes + mark, n - mark);
    }
    *out_n = b.n;
    if (s == UTTER_OK && !(*out = buf_take(&b)))
        s = error_set(e, UTTER_OUT_OF_MEMORY, "%s: no memory for the text", name);
    buf_free(&b);
    return s;
}
