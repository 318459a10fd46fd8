#!/bin/bash
# Live input: growing files, pipes, markers, Ctrl-C.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"
live() { "$UTTER" say -m "$BUILD/mini" -n 1 --cfm-steps 1 --json "$@"; }

begin "fifty sentences, 20 ms apart, by another process: fifty utterances, none lost"
: >grows.txt
(for i in $(seq 50); do
   # Some without a space after the stop, some broken in the middle, as another program would write them.
   case $((i % 3)) in 0) printf 'This is sentence %d.' "$i" ;; 1) printf 'This is sentence %d. ' "$i" ;; 2) printf 'This is '; sleep 0.005; printf 'sentence %d.\n' "$i" ;; esac
   sleep 0.02
 done; printf '\nEND\n') >>grows.txt &
live --input-file grows.txt --input-eof-marker END -o live.wav >out 2>err
[ "$(field out utterances)" = 50 ] || { flunk "$(field out utterances) utterances"; cat err; }
[ "$(field out samples)" = $((50 * 4 * 960)) ] || flunk "$(field out samples) samples"
wait

begin "a pipe ends by itself; what cannot be spoken is dropped with a notice"
printf 'One.\n***\nTwo! Three' | live --input-file - -o pipe.wav >out 2>err
[ "$(field out utterances)" = 3 ] || flunk "$(field out utterances) utterances"

begin "by line"
printf 'One. Still one.\n\n...\nTwo\n' | live --input-file - --input-by-line -o line.wav >out 2>err
[ "$(field out utterances)" = 2 ] || flunk "$(field out utterances) utterances"
says "nothing to speak"

begin "Ctrl-C while waiting ends at once"
echo "First." >waits.txt
"$UTTER" say -m "$BUILD/mini" -n 1 --cfm-steps 1 --input-file waits.txt -o waits.wav >out 2>err &
pid=$!
for i in $(seq 200); do [ "$(stat -c %s waits.wav.part 2>/dev/null || echo 0)" -gt 5000 ] && break; sleep 0.05; done
kill -INT $pid; wait $pid; code=$?
[ $code = 130 ] || flunk "exit code $code"
grep -qx 'utter: ' err && flunk "an empty message"
exists waits.wav

begin "a file that is cut short or replaced is read on"
live_size() { for i in $(seq 200); do [ "$(stat -c %s cutoff.wav.part 2>/dev/null || echo 0)" -ge $1 ] && return; sleep 0.05; done; flunk "not spoken: $1 bytes"; }
sentence=$((4 * 960 * 2))
printf 'This is the first sentence of them.\n' >log.txt
live --input-file log.txt --input-eof-marker END -o cutoff.wav >out 2>err &
pid=$!
live_size $sentence; printf 'Second.\n' >log.txt # shorter than what was read
live_size $((2 * sentence)); printf 'Third.\nEND\n' >new.txt; mv new.txt log.txt
for i in $(seq 100); do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
kill -KILL $pid 2>/dev/null && flunk "the end marker was not seen"
wait $pid
[ "$(field out utterances)" = 3 ] || flunk "$(field out utterances) utterances"
says "cut short"; says "another file"

begin "nothing to speak is no success, and leaves no file"
for text in '***\n' ''; do
  printf "$text" | live --input-file - -o none.wav >out 2>err; [ $? = 4 ] || flunk "not 4"
  says "nothing to speak"; absent none.wav
done

begin "an input that is not there"
run 4 "$UTTER" say -m "$BUILD/mini" --input-file no/such -o x.wav; says "no/such"
run 4 "$UTTER" say -m "$BUILD/mini" --input-file . -o x.wav
finish
