#include "text/unicode.h"

#include <utf8proc.h>

utter_status utf8_check(const char *text, size_t n, const char *what, struct error *e)
{
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &cp);
        if (used <= 0)
            return error_set(e, UTTER_INVALID_ARGUMENT, "%s: byte %zu (0x%02X) is not UTF-8", what, at,
                             (unsigned)(unsigned char)text[at]);
        at += (size_t)used;
    }
    return UTTER_OK;
}

int32_t utf8_next(const char *text, size_t n, size_t *at)
{
    if (*at >= n) return -1;
    utf8proc_int32_t cp;
    utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + *at, (utf8proc_ssize_t)(n - *at), &cp);
    *at += used > 0 ? (size_t)used : 1;
    return used > 0 ? cp : 0xFFFD;
}

int32_t utf8_previous(const char *text, size_t *at)
{
    if (*at == 0) return -1;
    size_t end = *at;
    do {
        --*at;
    } while (*at > 0 && ((unsigned char)text[*at] & 0xC0) == 0x80);
    size_t start = *at;
    return utf8_next(text, end, &start);
}

void buf_append_code_point(struct buf *b, int32_t cp)
{
    utf8proc_uint8_t bytes[4];
    buf_append(b, bytes, (size_t)utf8proc_encode_char(cp, bytes));
}

bool unicode_is_space(int32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

bool unicode_is_letter(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_digit(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_mark(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool unicode_is_lower(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_LL;
}

bool unicode_is_upper(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT;
}

bool unicode_has_words(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        int32_t cp = utf8_next(text, n, &at);
        if (unicode_is_letter(cp) || unicode_is_digit(cp)) return true;
    }
    return false;
}
