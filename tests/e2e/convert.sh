#!/bin/bash
# utter convert and utter inspect from the command line, on the mini model: same sound from the f32 file, types, exit codes.
set -euo pipefail
model=$BUILD/mini
rm -rf convert && mkdir convert && cd convert
fail() { echo "$1"; exit 1; }
# code EXPECTED WORD COMMAND...: the command's exit code, and a word of what it says
code() {
  local expected=$1 word=$2 got=0
  shift 2
  "$@" >out.txt 2>&1 || got=$?
  [ "$got" = "$expected" ] || { cat out.txt; fail "exit $got, expected $expected: $*"; }
  grep -q -e "$word" out.txt || { cat out.txt; fail "nothing about '$word': $*"; }
}

code 0 'tensors' "$UTTER" convert "$model" -o f32.gguf --type f32 --name mini --languages en,de
[ ! -e f32.gguf.part ] || fail "a part file is left"
for m in "$model" f32.gguf; do
  "$UTTER" say -m "$m" -s 5 -n 6 -q "One." -o say.wav || [ $? = 1 ] # the mini model always runs into the limit
  mv say.wav "$(basename "$m").wav"
done
cmp mini.wav f32.gguf.wav || fail "the f32 file sounds different from its folder"

code 0 'general.name *"mini"' "$UTTER" inspect f32.gguf
code 0 '"de"' "$UTTER" inspect f32.gguf
code 0 'variant: small; parts: t3 s3gen' "$UTTER" inspect "$model"
code 1 '"variant": "small"' "$UTTER" say -m "$model" -s 5 -n 6 "One." --json -o json.wav
code 3 'empty' "$UTTER" say -m "" "One." -o no.wav
"$UTTER" inspect --json f32.gguf >f32.json
python3 -c 'import json; j = json.load(open("f32.json")); assert j["format"] == "gguf (utter)" and len(j["tensors"]) > 500' ||
  fail "inspect --json is not what it should be"

code 0 'q8_0' "$UTTER" convert "$model" -o small.gguf --type q4_0 --no-clone
code 0 'clones voices: no' "$UTTER" inspect small.gguf
[ "$(stat -c %s small.gguf)" -lt "$(stat -c %s f32.gguf)" ] || fail "q4_0 is not smaller than f32"

# The ggml port's pair: either half speaks when the other lies beside it, and says what it misses when not.
mkdir port alone
"$BUILD/tests/tools/utter-portfile" "$model" port/t3.gguf port/s3gen.gguf q5_0
for half in t3 s3gen; do
  "$UTTER" say -m port/$half.gguf -s 5 -n 6 -q "One." -o $half.wav || [ $? = 1 ]
done
cmp t3.wav s3gen.wav || fail "the pair sounds different from its other end"
cp port/t3.gguf alone
code 3 '--s3gen' "$UTTER" say -m alone/t3.gguf "One." -o x.wav
code 0 't3 s3gen' "$UTTER" inspect alone/t3.gguf --s3gen port/s3gen.gguf
code 0 'tensors' "$UTTER" convert port/s3gen.gguf -o port.gguf --type q8_0

# What goes wrong: the code, the file's name, and the old output untouched.
cp f32.gguf old.gguf
head -c 100000 f32.gguf >cut.gguf
code 3 'cut.gguf' "$UTTER" inspect cut.gguf
code 3 'cut.gguf' "$UTTER" convert cut.gguf -o old.gguf
code 3 'cut.gguf' "$UTTER" say -m cut.gguf "One." -o x.wav
code 3 'nothing.gguf' "$UTTER" inspect nothing.gguf
mkfifo pipe
code 3 'pipe' "$UTTER" inspect pipe
echo '<html>' >page.safetensors
code 3 'web page' "$UTTER" inspect page.safetensors
code 5 'none/x.gguf' "$UTTER" convert "$model" -o none/x.gguf
mkfifo fifo; code 5 'no regular file' "$UTTER" convert "$model" -o fifo; [ -p fifo ] || { echo "the fifo was replaced"; exit 1; }
code 2 'name it' "$UTTER" convert "$model" -o -; [ ! -e ./- ] || { echo "a file called -"; exit 1; }
code 2 'made from' "$UTTER" convert f32.gguf -o f32.gguf
(ulimit -f 100 && code 5 'old.gguf' "$UTTER" convert "$model" -o old.gguf)
cmp f32.gguf old.gguf || fail "a failed conversion touched its output"
[ ! -e old.gguf.part ] || fail "a failed conversion left its part file"
code 2 'type' "$UTTER" convert "$model" -o x.gguf --type q3_k
code 2 'convert' "$UTTER" convert "$model"
code 2 'inspect' "$UTTER" inspect
