#!/bin/bash
# The shared library exports the functions of utter.h, which src/exports.txt lists, and nothing else.
set -euo pipefail
nm -D --defined-only "$LIBUTTER" | awk '$2 ~ /[A-Z]/ {print $3}' | grep -v -E '^(__asan_|__tsan_|__ubsan_|__sanitizer_|_init$|_fini$)' | sort >exported.txt
diff <(sort "$SOURCE/src/exports.txt") exported.txt || { echo "src/exports.txt (<) and the library (>) differ"; exit 1; }
diff <(grep -oE '\butter_[a-z0-9_]+\(' <(sed -n '/^UTTER_API/{:next;/;/!{N;b next};p}' "$SOURCE/include/utter.h") | tr -d '(' | sort -u) exported.txt ||
  { echo "utter.h (<) and the library (>) differ"; exit 1; }
