#!/bin/bash
# What is installed is whole: the command finds its voice, examples build and run against library and header, Python speaks.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"
prefix=$work/usr

begin "install"
run 0 cmake --install "$BUILD" --prefix "$prefix"
lib=$(dirname "$(find "$prefix" -name libutter.so)")
for f in bin/utter include/utter.h share/man/man1/utter.1 share/utter/voices; do [ -e "$prefix/$f" ] || flunk "$f is not installed"; done
export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig
objdump -p "$lib/libutter.so" | grep 'SONAME *libutter.so.0' >/dev/null || flunk "soname"

begin "the installed command speaks, wherever it was put"
run 0 "$prefix/bin/utter" models; prints "$prefix/share/utter/voices"
run 0 "$prefix/bin/utter" say "Hello." -s 0 -o hello.wav; exists hello.wav

begin "the examples build against the installed library and run"
cp -r "$SOURCE/examples" examples
run 0 make -C examples CC="$CC" CFLAGS="-O1 -Wall -Wextra -Werror $SANITIZE"
run 0 examples/say "Hello."
[ "$(wc -c <out)" -gt 40000 ] || flunk "say wrote $(wc -c <out) bytes"
python3 - <<'PY' || flunk "example and command give different samples"
import array, wave
f = array.array("f", open("out", "rb").read())
w = wave.open("hello.wav"); h = array.array("h", w.readframes(w.getnframes()))
assert len(f) == len(h) and max(abs(round(a * 32768) - b) for a, b in zip(f, h)) == 0
PY
run 0 examples/worker 0; prints "cancelled:"
run 0 examples/worker 120; prints "cancelled:"

begin "Python"
if [ -z "$SANITIZE" ]; then # a sanitized library needs a sanitized interpreter
  export PYTHONPATH=$SOURCE/bindings/python PYTHONDONTWRITEBYTECODE=1 UTTER_LIBRARY=$lib/libutter.so
  cat >sizes.c <<'C'
#include <stdio.h>
#include <utter.h>
int main(void)
{
    printf("%zu %zu %zu %zu\n", sizeof(utter_model_options), sizeof(utter_model_info), sizeof(utter_request), sizeof(utter_progress));
    return 0;
}
C
  run 0 "$CC" -I"$prefix/include" sizes.c -o sizes
  export SIZES=$(./sizes) MINI=$BUILD/mini
  run 0 python3 examples/stream.py; prints "s of speech"
  run 0 python3 "$SOURCE/tests/e2e/binding.py"
fi
finish
