#include "engine/abi.h"

#include <string.h>

static uint32_t struct_size(const void *s)
{
    uint32_t size;
    memcpy(&size, s, sizeof size);
    return size;
}

utter_status abi_read(void *known, size_t known_size, const void *from, const char *what, struct error *e)
{
    const uint32_t size = struct_size(from);
    if (size <= sizeof size)
        return error_set(e, UTTER_INVALID_ARGUMENT, "%s: struct_size is %u; fill the struct with its _init function",
                         what, size);
    for (size_t i = known_size; i < size; i++)
        if (((const unsigned char *)from)[i])
            return error_set(e, UTTER_INVALID_ARGUMENT,
                             "%s: byte %zu of %u is set, but this library (version %s) knows only %zu", what, i, size,
                             utter_version(), known_size);
    const size_t n = size < known_size ? size : known_size;
    memcpy((char *)known + sizeof size, (const char *)from + sizeof size, n - sizeof size);
    return UTTER_OK;
}

void abi_init(void *to, size_t size, const void *defaults, size_t known_size)
{
    const uint32_t struct_size = (uint32_t)size;
    if (!to || size < sizeof struct_size || size > UINT32_MAX) return;
    memset(to, 0, size);
    memcpy(to, defaults, size < known_size ? size : known_size);
    memcpy(to, &struct_size, sizeof struct_size);
}

bool abi_write(void *to, const void *known, size_t known_size)
{
    const uint32_t size = struct_size(to);
    if (size <= sizeof size) return false;
    const size_t n = size < known_size ? size : known_size;
    memcpy((char *)to + sizeof size, (const char *)known + sizeof size, n - sizeof size);
    memset((char *)to + n, 0, size - n);
    return true;
}
