#!/bin/bash
# The public header compiles alone as C99 and C++, pedantically; every other header compiles alone as C11.
set -uo pipefail
bad=0
for language in "c -std=c99" "c -std=c11" "c++ -std=c++11"; do
  "$CC" -x $language -Wall -Wextra -pedantic -Werror -fsyntax-only "$SOURCE/include/utter.h" || { echo "utter.h as $language"; bad=1; }
done
while read -r header; do
  "$CC" -std=c11 -D_GNU_SOURCE -x c -Wall -Wextra -Wno-unused-function -Werror -fsyntax-only -I"$SOURCE/include" -I"$SOURCE/src" "$header" ||
    { echo "$header does not compile alone"; bad=1; }
done < <(find "$SOURCE/src" -name '*.h')
exit $bad
