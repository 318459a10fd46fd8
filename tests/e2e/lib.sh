# What the command-line tests share. `run CODE COMMAND...` runs a command with stdout in ./out and stderr in ./err and checks
# its exit code; `says TEXT` and `prints TEXT` check what stderr and stdout hold. A failure is told and counted; `finish` ends.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0
case_name=

flunk() { echo "FAIL [$case_name]: $*"; failures=$((failures + 1)); }
begin() { case_name=$1; }
run() {
  local want=$1 got
  shift
  "$@" >out 2>err </dev/null
  got=$?
  [ $got = "$want" ] || { flunk "exit code $got, expected $want: $*"; sed 's/^/    /' err | head -5; }
}
says() { grep -qF -- "$1" err || { flunk "stderr lacks '$1'"; sed 's/^/    /' err | head -5; }; }
prints() { grep -qF -- "$1" out || { flunk "stdout lacks '$1'"; sed 's/^/    /' out | head -5; }; }
silent() { [ ! -s err ] || { flunk "stderr is not empty"; sed 's/^/    /' err | head -5; }; }
same() { cmp -s "$1" "$2" || flunk "$1 and $2 differ"; }
exists() { [ -s "$1" ] || flunk "$1 is missing or empty"; }
absent() { [ ! -e "$1" ] || flunk "$1 is there"; }
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; } # FILE KEY
wav_seconds() { python3 -c 'import sys, wave; w = wave.open(sys.argv[1]); assert w.getframerate() == 24000 and w.getnchannels() == 1; print(w.getnframes() / 24000)' "$1"; }
finish() {
  [ $failures = 0 ] || { echo "$failures failures"; exit 1; }
  exit 0
}
