#!/bin/bash
# utter say with the rule-made model, whose sentences always meet the token limit (exit code 1 with a sound file), and with the
# built-in voice, whose sentences end by themselves.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"
mini=$BUILD/mini
say() { run "$1" "$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 "${@:2}"; }
hello() { run "$1" "$UTTER" say -s 0 "${@:2}"; } # the built-in voice

begin "a sentence with the built-in voice, from any folder"
hello 0 "Hello." -o hello.wav
says "hello.wav:"; says "seed 0"
awk -v s="$(wav_seconds hello.wav)" 'BEGIN { exit !(s > 0.4 && s < 5) }' || flunk "hello.wav lasts $(wav_seconds hello.wav) s"
absent hello.wav.part

begin "the same bytes at 1, 2 and 3 threads and from run to run"
for t in 1 2 3; do hello 0 "Hello." -t $t -o t$t.wav; same hello.wav t$t.wav; done

begin "the published folder and the f32 file made from it speak alike"
run 0 "$UTTER" convert "$mini" -o mini.gguf --type f32 --embedding-type f32 -q
say 1 "Same file." -o folder.wav
run 1 "$UTTER" say -m mini.gguf -s 0 -n 4 --cfm-steps 1 "Same file." -o gguf.wav
same folder.wav gguf.wav

begin "a limit that ended a sentence is told"
says "the token limit ended a sentence"
[ "$(wav_seconds gguf.wav)" = 0.28 ] || flunk "4 tokens and 3 of silence last $(wav_seconds gguf.wav) s"

begin "formats by extension and by name"
for f in wav flac opus ogg mp3 pcm; do say 1 "Format." -o x.$f; exists x.$f; done
say 1 "Format." -o x --format flac; [ "$(head -c 4 x)" = fLaC ] || flunk "not flac"
say 1 "Format." -o y.wav --format wav24; python3 -c 'import wave; assert wave.open("y.wav").getsampwidth() == 3' || flunk "not 24 bits"

begin "a pipe gets the samples of the file"
"$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 "Format." -o - 2>err | cat >pipe.pcm
same x.pcm pipe.pcm
tail -c +45 x.wav | cmp -s - x.pcm || flunk "wav and pcm hold different samples"
"$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 "Format." -o - --format wav 2>err | cat >pipe.wav
[ "$(grep -c RIFF pipe.wav)" = 1 ] || flunk "not one RIFF"
tail -c +45 pipe.wav | cmp -s - x.pcm || flunk "a wav pipe holds other samples"

begin "every format: the bytes of a pipe are the file's, apart from lengths in headers, whole and in chunks"
for mode in off on; do
  for f in pcm wav flac ogg opus mp3; do
    say 1 "Every format there is." -n 30 --stream $mode -o file.$f
    "$UTTER" say -m "$mini" -s 0 -n 30 --cfm-steps 1 "Every format there is." --stream $mode --format $f -o - 2>err | cat >pipe.$f
    python3 - file.$f pipe.$f $f <<'PY' || flunk "$f, --stream $mode"
import sys
a, b = (open(p, "rb").read() for p in sys.argv[1:3])
header = {"wav": 44, "flac": 42, "mp3": 4096}.get(sys.argv[3], 0)  # a Xing frame and STREAMINFO hold lengths
sys.exit(not (len(a) == len(b) > 2000 and a[header:] == b[header:]))
PY
  done
done

begin "a pipe is streamed when no seed wants the bytes of a file"
text="Its first words can be heard before its last ones are made."
"$UTTER" say "$text" -o - --json 2>err | cat >auto.pcm
seed=$(python3 -c 'import json; t = open("err").read(); print(json.JSONDecoder().raw_decode(t[t.index("{"):])[0]["seed"])')
run 0 "$UTTER" say "$text" -s "$seed" -o whole.pcm
"$UTTER" say "$text" -s "$seed" -o - -q | cat >seeded.pcm; same whole.pcm seeded.pcm
[ "$(stat -c %s auto.pcm)" = "$(stat -c %s whole.pcm)" ] || flunk "lengths"
cmp -s auto.pcm whole.pcm && flunk "it was not streamed"

begin "text from a file, standard input, after --"
echo "Format." >text.txt
say 1 -f text.txt -o f.pcm; same x.pcm f.pcm
"$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 -q -o s.pcm <text.txt; same x.pcm s.pcm
say 1 -o d.pcm -- "Format."; same x.pcm d.pcm
printf '\xef\xbb\xbfFormat.\n' >bom.txt; say 1 -f bom.txt -o b.pcm; same x.pcm b.pcm
printf 'Format.\n' | iconv -f UTF-8 -t UTF-16 >utf16.txt; say 1 -f utf16.txt -o u.pcm; same x.pcm u.pcm

begin "blank lines do not end the input"
printf 'one\n\ntwo\nthree' >lines.txt
say 1 -f lines.txt -o lines.wav --json
[ "$(field out utterances)" = 1 ] || flunk "utterances"
say 1 "one" -o one.wav
awk -v a="$(wav_seconds lines.wav)" -v b="$(wav_seconds one.wav)" 'BEGIN { exit !(a > 1.9 * b) }' || flunk "only $(wav_seconds lines.wav) s"
say 1 -f lines.txt -d . -q; exists 0001.wav; absent 0002.wav; exists 0003.wav; exists 0004.wav

begin "nothing to speak"
for t in '...' '   ' $'\n\n\t' '。。。！？' $'\u200b\u200b' '"'; do say 4 -p "$t" -o none.wav; says "nothing"; absent none.wav; absent none.wav.part; done
say 4 "" -o none.wav; says "nothing"; absent none.wav
say 4 -f /dev/null -o none.wav; absent none.wav
printf '***\n...\n' >stars.txt; mkdir none; say 4 -f stars.txt -d none; says "nothing"; [ -z "$(ls none)" ] || flunk "files of nothing"

begin "bad input"
say 4 -f no-such-file -o x.wav; says "no-such-file"
say 4 -f . -o x.wav
printf 'M\xfcller' >latin1.txt; say 4 -f latin1.txt -o x.wav; says "UTF-8"

begin "reports"
say 1 "Report." -o r.wav --json --timings
[ "$(field out seed)" = 0 ] || flunk "seed"
[ "$(field out tokens)" = 4 ] || flunk "tokens"
[ "$(field out truncated)" = True ] || flunk "truncated"
[ "$(field out samples)" = 6720 ] || flunk "samples"
says "first sound"
say 1 "Report." -o r.wav -q; silent
say 1 "Report." -o a.wav -s -1 --json; seed=$(field out seed)
say 1 "Report." -o b.wav -s "$seed"; same a.wav b.wav

begin "seeds 1, 1, 2, none, none: same, same, another; without one every run is another and tells its seed"
for i in 1 2 3 4 5; do
  case $i in 1 | 2) seed="-s 1" ;; 3) seed="-s 2" ;; *) seed= ;; esac
  run 1 "$UTTER" say -m "$mini" -n 4 --cfm-steps 1 $seed "Seeds." -o seed$i.wav --json; cp out out$i; says "seed $(field out seed)"
done
same seed1.wav seed2.wav
for pair in "1 3" "1 4" "4 5"; do set -- $pair; cmp -s seed$1.wav seed$2.wav && flunk "runs $1 and $2 are the same"; done
run 1 "$UTTER" say -m "$mini" -n 4 --cfm-steps 1 -s "$(field out4 seed)" "Seeds." -o again.wav; same seed4.wav again.wav
run 1 "$UTTER" say -m "$mini" -n 4 --cfm-steps 1 "Seeds." -d . --json; run 1 "$UTTER" say -m "$mini" -n 4 --cfm-steps 1 "Seeds." -s "$(field out seed)" -o one.wav; same 0001.wav one.wav
say 1 "Report." -o c.wav -s 5; cmp -s a.wav c.wav && flunk "the seed does not matter"

begin "outputs that cannot be written"
say 5 "Full." -o /dev/full; says "/dev/full: No space left"
say 5 "Folder." -o no/such/folder/x.wav; says "no/such/folder/x.wav"
say 5 "Folder." -o . --format wav
(ulimit -f 8; "$UTTER" say -m "$mini" -n 20 --cfm-steps 1 "Limit." -o limit.wav >out 2>err); [ $? = 5 ] || flunk "a file limit"
says "File too large"; absent limit.wav; absent limit.wav.part

say 5 "Folder." -d no/such/folder; [ "$(wc -l <err)" = 1 ] || flunk "more than one message"

begin "links are followed, long names fit, what is called .part stays, extensions are those of players"
mkdir there; ln -s there/target.pcm link.pcm; echo old >there/target.pcm
say 1 "Format." -o link.pcm; [ -L link.pcm ] || flunk "the link was replaced"; same x.pcm there/target.pcm
long=$(printf 'n%.0s' $(seq 250)).pcm; say 1 "Format." -o "$long"; same x.pcm "$long"
echo mine >x.pcm.part; say 1 "Format." -o x.pcm; [ "$(cat x.pcm.part)" = mine ] || flunk "x.pcm.part is gone"; absent x.pcm.2.part
for f in vorbis:ogg wav24:wav raw:pcm; do say 1 "Format." -d there --format ${f%:*}; exists there/0001.${f#*:}; done

begin "two runs with one output: each leaves a whole file"
"$UTTER" say -m "$mini" -n 30 --cfm-steps 1 -p "$(yes 'Another sentence.' | head -200)" -o both.wav 2>err &
pid=$!
for i in $(seq 200); do [ "$(stat -c %s both.wav.part 2>/dev/null || echo 0)" -gt 20000 ] && break; sleep 0.05; done
say 1 "Format." -o both.wav; [ "$(wav_seconds both.wav)" = "$(wav_seconds x.wav)" ] || flunk "the second file is not whole"
kill -INT $pid; wait $pid; [ $? = 130 ] || flunk "the first failed"
awk -v s="$(wav_seconds both.wav)" 'BEGIN { exit !(s > 0.3) }' || flunk "the first file is not whole"
[ -z "$(ls both.wav.*part 2>/dev/null)" ] || flunk "a .part was left"

begin "a stop does not wait for a reader: of a stalled pipe, or one that is not there"
mkfifo stalled unread
ends_with() { # CODE PID: within 5 s
  for i in $(seq 100); do kill -0 $2 2>/dev/null || break; sleep 0.05; done
  kill -KILL $2 2>/dev/null && flunk "it did not end"
  wait $2; [ $? = $1 ] || flunk "exit code"
}
exec 7<>stalled
"$UTTER" say -m "$mini" -n 100 --cfm-steps 1 -p "$(yes 'Another sentence.' | head -20)" -o stalled --raw 2>err &
pid=$!; sleep 2; kill -INT $pid; ends_with 130 $pid; exec 7<&-
"$UTTER" say -m "$mini" "Hello." -o unread --raw 2>err &
pid=$!; sleep 0.5; kill -INT $pid; ends_with 130 $pid

begin "two signals for one stop, and a hang-up, keep what was spoken"
for signals in "TERM TERM" HUP; do
  "$UTTER" say -m "$mini" -n 30 --cfm-steps 1 -p "$(yes 'Another sentence.' | head -200)" -o twice.wav 2>err &
  pid=$!
  for i in $(seq 200); do [ "$(stat -c %s twice.wav.part 2>/dev/null || echo 0)" -gt 20000 ] && break; sleep 0.05; done
  for s in $signals; do kill -$s $pid 2>/dev/null; done
  ends_with 130 $pid; exists twice.wav; absent twice.wav.part; rm -f twice.wav
done

begin "closed standard files are no others"
"$UTTER" say -m "$mini" --input-file - -o closed.wav 2>err <&-; [ $? = 4 ] || flunk "a closed standard input"
"$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 -q "Format." -o closed.pcm <&- >&- 2>&-; same x.pcm closed.pcm

begin "a reader that leaves ends the run quietly"
"$UTTER" say -m "$mini" -n 30 --cfm-steps 1 -q "One. Two. Three. Four." -o - 2>err | head -c 1000 >head.pcm
codes=("${PIPESTATUS[@]}")
[ "${codes[0]}" = 0 ] || flunk "exit code ${codes[0]}"
silent
[ "$(stat -c %s head.pcm)" = 1000 ] || flunk "1000 bytes"

begin "a slow reader gets everything"
"$UTTER" say -m "$mini" -s 0 -n 4 --cfm-steps 1 "Format." -o - 2>err | (sleep 1; cat) >slow.pcm; same x.pcm slow.pcm

begin "a terminal is refused sound"
if command -v script >/dev/null; then
  script -qec "'$UTTER' say -m '$mini' hello -o -" /dev/null >out 2>&1 </dev/null; [ $? = 2 ] || flunk "not refused"
  prints "standard output is a terminal"
fi

begin "Ctrl-C keeps what was spoken"
"$UTTER" say -m "$mini" -n 30 --cfm-steps 1 -p "$(yes 'Another sentence.' | head -200)" -o cut.wav 2>err &
pid=$!
for i in $(seq 200); do [ "$(stat -c %s cut.wav.part 2>/dev/null || echo 0)" -gt 20000 ] && break; sleep 0.05; done
kill -INT $pid; wait $pid; code=$?
[ $code = 130 ] || flunk "exit code $code"
exists cut.wav; absent cut.wav.part
awk -v s="$(wav_seconds cut.wav)" 'BEGIN { exit !(s > 0.3) }' || flunk "cut.wav"

begin "a killed run leaves a .part that plays"
"$UTTER" say -m "$mini" -n 30 --cfm-steps 1 -p "$(yes 'Another sentence.' | head -200)" -o dead.wav 2>err &
pid=$!
for i in $(seq 200); do [ "$(stat -c %s dead.wav.part 2>/dev/null || echo 0)" -gt 20000 ] && break; sleep 0.05; done
kill -KILL $pid; wait $pid 2>/dev/null
absent dead.wav
awk -v s="$(wav_seconds dead.wav.part)" 'BEGIN { exit !(s > 0.3) }' || flunk "dead.wav.part"

begin "models that are none"
mkfifo fifo; : >empty; echo "hello, I am a text" >text; mkdir folder; head -c 100000 /dev/urandom >noise.gguf
head -c 3000000 "$mini/t3_turbo_v1.safetensors" >cut.safetensors
for m in fifo empty text folder noise.gguf cut.safetensors no-such-model /dev/null; do
  run 3 timeout 5 "$UTTER" say -m $m "hello" -o m.wav; says "$m"; absent m.wav
done

finish
