#!/bin/bash
# utter bench: every part runs on the rule-made model and reports; no time decides anything.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"

begin "every part reports"
run 0 "$UTTER" bench load s3gen hift -m "$BUILD/mini" --runs 1
for part in load s3gen hift; do prints "$part"; done

begin "the first sound"
run 0 "$UTTER" bench first -m "$BUILD/mini" --runs 1; prints "2 steps, whole prompt"; prints "1 step, 50 of its tokens"; prints "of which tokens"

begin "cancel reports every stage, by the call and by the flag, and what listening costs"
run 0 "$UTTER" bench cancel -m "$BUILD/mini" --samples 2
for stage in load voice prompt decode encoder "flow step 1 of 2" "flow step 2 of 2" vocoder "a sentence" "cost of listening"; do prints "$stage"; done
run 0 "$UTTER" bench cancel -m "$BUILD/mini" --samples 6 --stage encoder --json
[ "$(python3 -c 'import json; r = json.load(open("out"))["results"]; print(len(r), r[0]["name"], r[0]["by_call"] > 0, r[0]["by_flag"] > 0, r[0]["max_ms"] >= r[0]["median_ms"] >= 0)')" = "1 encoder True True True" ] || flunk "$(cat out)"
run 2 "$UTTER" bench cancel -m "$BUILD/mini" --stage nothing; says "nothing"

begin "voice reports every stage of a made-up recording and of a file"
run 0 "$UTTER" bench voice -m "$BUILD/mini" --runs 2
for stage in "clean the clip" "features" "speech tokens" "x-vector" "speaker embedding" "recording to voice"; do prints "$stage"; done
run 1 "$UTTER" say -m "$BUILD/mini" --seed 1 "One two three four five six seven." -o spoken.wav # rule-made weights know no end
run 0 "$UTTER" bench voice -m "$BUILD/mini" --runs 1 --recording spoken.wav --json; prints '"recording to voice"'
run 4 "$UTTER" bench voice -m "$BUILD/mini" --runs 1 --recording nowhere.wav; says "nowhere.wav"

begin "precision reports every network"
run 0 "$UTTER" bench precision -m "$BUILD/mini" --json
python3 - <<'EOF' || flunk "$(cat out)"
import json
results = {r["name"]: r["value"] for r in json.load(open("out"))["results"]}
for name in ("t3: cosine of the logits, least", "encoder, to the mel: log-mel cosine", "cfm: log-mel cosine", "vocoder: log-mel cosine", "voice: cosine of the x-vector", "voice: cosine of the speaker"):
    assert 0.99 < results[name] < 1.000001, name
assert results["voice: same speech tokens"] == 100
EOF
begin "comparisons that were not built in say so"
"$UTTER" bench kernels --runs 1 --vs-openblas >out 2>err || says "UTTER_BENCH_OPENBLAS"
"$UTTER" bench kernels --runs 1 --vs-onednn >out 2>err || says "UTTER_BENCH_ONEDNN"

begin "the report as JSON"
run 0 "$UTTER" bench load t3 -m "$BUILD/mini" --runs 3 --json; prints '"median_ms"'; prints '"read_bytes"'; prints "sampled"

begin "an unknown part is a usage error"
run 2 "$UTTER" bench nothing; says "nothing"
finish
