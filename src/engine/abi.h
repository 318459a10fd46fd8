/*
 * abi.h - structs that cross the API: older and newer callers (see the top of utter.h).
 */
#ifndef ENGINE_ABI_H
#define ENGINE_ABI_H

#include "base/error.h"

/* Lays the caller's struct over `known`, which holds the defaults in `known_size` bytes. Both start with struct_size; `known`
 * keeps its own. */
utter_status abi_read(void *known, size_t known_size, const void *from, const char *what, struct error *e);

/* Fills `size` bytes of the caller's, who may know fewer fields or more, with the defaults, and says the size in struct_size. */
void abi_init(void *to, size_t size, const void *defaults, size_t known_size);

/* Copies as much of `known` as the caller has room for. The caller's struct_size stays. False when it is not set. */
bool abi_write(void *to, const void *known, size_t known_size);

#endif
