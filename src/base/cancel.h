/*
 * cancel.h - a request to stop that latches.
 *
 * Two sources, equal in effect: cancel_request() from any thread, and a caller-owned byte that any thread may raise. The
 * first poll that sees either latches it for the life of the token: lowering the byte later changes nothing. Polling is
 * two relaxed loads, cheap enough for every tile of every kernel.
 */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct cancel {
    atomic_bool latched;
    _Atomic(const signed char *) flag; /* caller-owned, NULL when none is attached */
};

static inline void cancel_clear(struct cancel *c)
{
    atomic_store_explicit(&c->flag, NULL, memory_order_release);
    atomic_store_explicit(&c->latched, false, memory_order_release);
}

static inline void cancel_request(struct cancel *c) { atomic_store_explicit(&c->latched, true, memory_order_release); }

static inline void cancel_attach_flag(struct cancel *c, const signed char *flag)
{
    atomic_store_explicit(&c->flag, flag, memory_order_release);
}

/* True once a cancel was seen. c may be NULL (work that cannot be cancelled). Any thread. */
static inline bool cancel_poll(struct cancel *c)
{
    if (!c) return false;
    if (atomic_load_explicit(&c->latched, memory_order_acquire)) return true;
    const signed char *flag = atomic_load_explicit(&c->flag, memory_order_acquire);
    if (flag && __atomic_load_n(flag, __ATOMIC_RELAXED) != 0) {
        atomic_store_explicit(&c->latched, true, memory_order_release);
        return true;
    }
    return false;
}

/* Takes a lock that another thread may hold for long. False: cancelled while waiting, the lock is not taken. */
bool cancel_lock(struct cancel *c, pthread_mutex_t *lock);

/* For work that no stream runs: OK, or CANCELLED with a message. */
static inline utter_status cancel_check(struct cancel *c, struct error *e)
{
    return cancel_poll(c) ? error_set(e, UTTER_CANCELLED, "cancelled") : UTTER_OK;
}

#endif
