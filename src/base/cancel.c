#include "base/cancel.h"

#include <time.h>

bool cancel_lock(struct cancel *c, pthread_mutex_t *lock)
{
    enum { LOOK_EVERY_NS = 500000 };
    while (!cancel_poll(c)) {
        if (pthread_mutex_trylock(lock) == 0) return true;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until); /* the clock of pthread_mutex_timedlock */
        until.tv_nsec += LOOK_EVERY_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        if (pthread_mutex_timedlock(lock, &until) == 0) return true;
    }
    return false;
}
