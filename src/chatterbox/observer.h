/*
 * observer.h - a look at the values inside a network while it runs.
 *
 * Tests and the stage runner compare them with the official implementation's. Networks call observe() where the
 * reference has a name; without an observer that costs one test of a pointer.
 */
#ifndef CHATTERBOX_OBSERVER_H
#define CHATTERBOX_OBSERVER_H

#include <stdarg.h>
#include <stdio.h>

#include "device/device.h"

struct observer {
    /* `value` is valid during the call only; read it with stream_read on the stream that runs the network. */
    void (*see)(void *user, const char *name, struct array value);
    void *user;
};

__attribute__((format(printf, 3, 4))) static inline void observe(const struct observer *o, struct array value,
                                                                 const char *name_format, ...)
{
    if (!o) return;
    char name[96];
    va_list args;
    va_start(args, name_format);
    vsnprintf(name, sizeof name, name_format, args);
    va_end(args);
    o->see(o->user, name, value);
}

#endif
