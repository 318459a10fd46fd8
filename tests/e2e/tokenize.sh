#!/bin/bash
# utter tokenize: a folder of tokenizer files, the same pieces from every entry point, exit codes.
set -euo pipefail
utter=$UTTER gpt2=$SOURCE/tests/golden/gpt2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tokenize: $*" >&2; exit 1; }

expected="$(printf "%6d  '%s'\n" 15496 Hello 995 ' world' 13 .)"
[ "$("$utter" tokenize -m "$gpt2" Hello world)" = "$expected" ] || fail "other tokens"
[ "$("$utter" tokenize -m "$gpt2" --no-norm --json 'é')" = '{"text":"é","ids":[2634],"pieces":["é"]}' ] || fail "other JSON"

# 3,000 characters by argument, file and standard input
text="$(for _ in $(seq 60); do printf 'Dr. Lee paid 3.50 dollars, and then he went home. '; done)"
printf '%s' "$text" > "$work/text"
"$utter" tokenize -m "$gpt2" --split --json "$text" > "$work/argument"
"$utter" tokenize -m "$gpt2" --split --json -f "$work/text" > "$work/file"
"$utter" tokenize -m "$gpt2" --split --json < "$work/text" > "$work/stdin"
"$utter" tokenize -m "$gpt2" --split --json - < "$work/text" > "$work/dash"
for way in file stdin dash; do cmp "$work/argument" "$work/$way" || fail "other pieces by $way"; done
[ "$(grep -o first_byte "$work/argument" | wc -l)" = 60 ] || fail "not 60 pieces"

check_exit() {
    local wanted=$1 code=0
    shift
    "$utter" "$@" > /dev/null 2> "$work/message" || code=$?
    [ "$code" = "$wanted" ] || fail "utter $* ended with $code, expected $wanted: $(cat "$work/message")"
    [ "$wanted" = 0 ] || [ -s "$work/message" ] || fail "utter $* says nothing"
}
check_exit 0 tokenize -m "$gpt2" hi
check_exit 2 tokenize --no-such-option hi
check_exit 3 tokenize -m "$work/none" hi
check_exit 3 tokenize -m "$work" hi
check_exit 4 tokenize -m "$gpt2" --split '...'
check_exit 4 tokenize -m "$gpt2" -f "$work/none"
printf 'M\374ller' > "$work/latin1"
check_exit 4 tokenize -m "$gpt2" -f "$work/latin1"
grep -q 'byte 1 (0xFC)' "$work/message" || fail "no position of the bad byte"
