#!/bin/bash
# The command line itself: help, unknown words, values out of range, environment variables.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"

begin "help goes to stdout"
run 0 "$UTTER" --help; prints "Commands:"; silent
run 0 "$UTTER" say --help; prints "--top-k"; silent
run 0 "$UTTER" say -h; prints "Usage: utter say"; silent
run 0 "$UTTER" help say; prints "--top-k"; silent
run 0 "$UTTER" --version; prints "utter 0."; silent
run 2 "$UTTER"; says "Usage:"

begin "every command has help"
for c in $("$UTTER" --help | sed -n '/^Commands:/,/^$/p' | awk '/^  /{print $1}'); do
  run 0 "$UTTER" "$c" --help; prints "Usage: utter $c"
done

begin "unknown words name the nearest"
run 2 "$UTTER" sya; says "did you mean say?"
run 2 "$UTTER" say --outputt x hello; says "unknown option --outputt; did you mean --output?"; [ "$(wc -l <err)" = 1 ] || flunk "more than one line"
run 2 "$UTTER" say --zzzzzzzzzz hello; says "see utter say --help"

begin "values are checked"
run 2 "$UTTER" say --threads 0 hello; says "--threads: '0' is not a whole number in 1..256"
run 2 "$UTTER" say -t -1 hello; says "-t: '-1'"
run 2 "$UTTER" say -t 10000 hello; says "'10000'"
run 2 "$UTTER" say --top-p nan hello; says "--top-p: 'nan' is not a number in 1e-06..1"
for v in 0 1e-7 1.01; do run 2 "$UTTER" say --top-p $v hello; says "--top-p: '$v'"; done
for n in 0 1002; do run 2 "$UTTER" say -n $n hello; says "-n: '$n' is not a whole number in 1..1001"; done
run 2 "$UTTER" say --temp 1e400 hello; says "--temp"
run 2 "$UTTER" say --seed 7x hello; says "--seed: '7x'"
run 2 "$UTTER" say --stream maybe hello; says "is not one of off|on|auto"
run 2 "$UTTER" say --json=1 hello; says "--json takes no value"
run 2 "$UTTER" say hello -o; says "needs a value"
run 2 "$UTTER" say -o a.wav -d . hello; says "either --output or --output-dir"
run 2 "$UTTER" say -f a.txt hello; says "more than one text"
for o in "--ref-start 1" "--ref-duration 3" "--ref-start 0 -v none"; do run 2 "$UTTER" say $o hello -o x.wav; says "need --ref-audio"; done
for o in "-o x.wav" "-d ."; do run 2 "$UTTER" say --play-device null $o hello; says "--play-device needs --play"; done
run 2 "$UTTER" say -o x.doc hello; says "x.doc: the name does not say the format"

begin "the environment sets options, the command line wins"
run 2 env UTTER_THREADS=none "$UTTER" say hello; says "UTTER_THREADS: 'none'"
run 3 env UTTER_MODEL=/no/such "$UTTER" say hello -o x.wav; says "/no/such"
run 0 env UTTER_MODEL= "$UTTER" tokenize hello

for e in "UTTER_PROMPT=a -p b" "UTTER_FILE=a b" "UTTER_OUTPUT=a.wav -d . b" "UTTER_VOICE=none --ref-audio none b"; do
  run 3 env ${e%% *} "$UTTER" say -m /no/such ${e#* } -d .; says "/no/such"
done
run 3 env UTTER_REF_START=1 UTTER_REF_DURATION=3 UTTER_PLAY_DEVICE=null "$UTTER" say -m /no/such -o x.wav hello; says "/no/such" # habits, no mistakes
for off in false no OFF 0 ''; do run 3 env UTTER_PLAY=$off "$UTTER" say -m /no/such -o x.wav hello; says "/no/such"; done

begin "what is printed must arrive, or its reader have had enough"
for c in "--help" "--version" "say --help" "models --json" "inspect $BUILD/mini" "tokenize -m $BUILD/mini hello"; do
  "$UTTER" $c >/dev/full 2>err; code=$?
  [ $code = 5 ] || flunk "$c to a full disk: exit code $code"; says "standard output: No space left"
done
"$UTTER" --man 2>err | head -c 1 >out; [ "${PIPESTATUS[0]}" = 0 ] || flunk "a reader that left"
silent

begin "models"
run 0 env UTTER_MODEL= XDG_DATA_HOME="$work/data" "$UTTER" models
mkdir -p data/utter/models/mine && touch data/utter/models/mine/t3_turbo_v1.safetensors
run 0 env XDG_DATA_HOME="$work/data" "$UTTER" models; prints "mine"; prints "$work/data/utter/models/mine"
run 0 env XDG_DATA_HOME="$work/data" "$UTTER" models --json; python3 -m json.tool out >/dev/null || flunk "not JSON"

begin "the man page names every option of say"
"$UTTER" --man >utter.1
for o in $("$UTTER" say --help | grep -oE '^ +(-., |    )--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+'); do
  grep -qF -- "${o//-/\\-}" utter.1 || flunk "$o is not in the man page"
done
finish
