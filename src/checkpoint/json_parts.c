#include "checkpoint/json_parts.h"

#include <stdbool.h>

#include "base/buf.h"

enum { PART_BYTES = 4096 };

/* The first comma between members behind PART_BYTES of them, or the object's end, or `end`. What is wrong with the text is left to the
 * parser, which sees every byte. */
static const char *part_end(const char *text, const char *end)
{
    bool in_string = false;
    int depth = 0;
    for (const char *p = text; p < end; p++) {
        if (in_string && *p == '\\')
            p++;
        else if (*p == '"')
            in_string = !in_string;
        else if (in_string)
            continue;
        else if (*p == '{' || *p == '[')
            depth++;
        else if (((*p == '}' || *p == ']') && depth-- == 0) || (*p == ',' && depth == 0 && p - text >= PART_BYTES))
            return p;
    }
    return end;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int lines(const char *p, const char *end)
{
    int n = 0;
    for (; p < end; p++) n += *p == '\n';
    return n;
}

/* The members between two places as an object. `stop` is where it ends: a comma, its bracket, or the text's end. */
static json_t *parse(struct buf *part, const char *begin, const char *stop, const char *end, json_error_t *fault)
{
    part->n = 0;
    buf_append(part, "{", 1);
    buf_append(part, begin, (size_t)(stop - begin));
    if (stop < end) buf_append(part, *stop == ',' ? "}" : stop, 1);
    return part->failed ? NULL : json_loadb(part->data, part->n, JSON_REJECT_DUPLICATES, fault);
}

utter_status json_object_parts(const char *text, size_t n, const char *file, const char *what, struct cancel *cancel,
                               json_part_fn *fn, void *user, struct error *e)
{
    const char *const end = text + n, *p = skip_space(text, end); /* at what stands before a part: bracket or comma */
    struct buf part = buf_empty(n + 2);
    json_error_t fault = {.line = 1, .text = "expected a JSON object"};
    bool sound = p < end && *p == '{', more = sound;
    utter_status s = UTTER_OK;
    for (bool first = true; more && (s = cancel_check(cancel, e)) == UTTER_OK; first = false) {
        const char *const stop = part_end(p + 1, end);
        json_t *members = parse(&part, p + 1, stop, end, &fault);
        more = stop < end && *stop == ',';
        sound = members && (json_object_size(members) > 0 || (first && !more)); /* not ",," and not ",}" */
        if (members && !sound) fault = (json_error_t){.line = 1, .text = "expected a member"};
        if (sound) s = fn(user, members, e);
        json_decref(members);
        if (!sound || s != UTTER_OK) break;
        p = stop;
    }
    if (s == UTTER_OK && sound && skip_space(p + 1, end) < end) {
        fault = (json_error_t){.line = 1, .text = "expected nothing behind the object"};
        sound = false;
    }
    if (part.failed)
        s = error_set(e, UTTER_OUT_OF_MEMORY, "%s: %s: no memory", file, what);
    else if (s == UTTER_OK && !sound)
        s = error_set(e, UTTER_MODEL_DAMAGED, "%s: %s: line %d: %s", file, what, lines(text, p) + fault.line,
                      fault.text);
    buf_free(&part);
    return s;
}
