/*
 * pool.h - a fixed set of worker threads that share out tiles.
 *
 * One pool per model. Work is n_tiles independent tiles; which thread runs a tile never changes what it computes, so
 * results do not depend on the number of threads. Every worker polls the cancel token before every tile; when it fires,
 * no further tile starts and pool_run returns after all workers have parked.
 *
 * A child that fork() makes while no job runs may go on with the pool: it has no workers there, and does all the work itself.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/cancel.h"
#include "base/error.h"

enum { POOL_MAX_THREADS = 256 };

struct pool;

/* n_threads counts the caller: 1 makes no thread at all. 1 to POOL_MAX_THREADS. */
utter_status pool_create(struct pool **out, int n_threads, struct error *e);
void pool_destroy(struct pool **pool); /* no pool_run may be running */
int pool_threads(const struct pool *pool);

typedef void pool_tile_fn(void *arg, int tile, int worker); /* worker: 0 .. threads - 1, for per-thread scratch */

/* Runs every tile, or stops early: returns false when `cancel` fired (some tiles may not have run). Callers on several
 * threads take turns. Blocks until no worker touches `arg` any more. */
bool pool_run(struct pool *pool, struct cancel *cancel, int n_tiles, pool_tile_fn *fn, void *arg);

/* The same, but a worker begins with tiles that lie one after the other, its share, and goes on to other shares when it is
 * done: each reads one stretch of memory from end to end, which memory in huge pages rewards. */
bool pool_run_in_shares(struct pool *pool, struct cancel *cancel, int n_tiles, pool_tile_fn *fn, void *arg);

/* Lends the last worker out: it runs fn(arg) once, however long that takes, while the others go on with jobs, and then comes
 * back to the jobs by itself. False when there is none to lend: a pool of one thread, or lent to another caller; fn does not
 * run then. Who borrowed it waits for the end of fn with pool_take_back before anything that fn uses goes away. */
bool pool_lend(struct pool *pool, void (*fn)(void *), void *arg);
void pool_take_back(struct pool *pool);

#endif
