#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

void error_text(struct error *e, const char *format, ...)
{
    if (!e) return;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
}

const char *utter_status_text(utter_status status)
{
    switch (status) {
#define X(name, number, text)                                                                                          \
    case UTTER_##name: return text;
        UTTER_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

#define STRING(x) #x
#define VERSION(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

const char *utter_version(void)
{
    return VERSION(UTTER_VERSION_MAJOR, UTTER_VERSION_MINOR, UTTER_VERSION_PATCH);
}
