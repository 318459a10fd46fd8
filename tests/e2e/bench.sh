#!/bin/bash
# utter bench: every part runs on the rule-made model and reports; no time decides anything.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"

begin "every part reports"
run 0 "$UTTER" bench load s3gen hift -m "$BUILD/mini" --runs 1
for part in load s3gen hift; do prints "$part"; done

begin "cancel reports every stage, by the call and by the flag, and what listening costs"
run 0 "$UTTER" bench cancel -m "$BUILD/mini" --samples 4
for stage in load voice prompt decode encoder "flow step 1 of 2" "flow step 2 of 2" vocoder "a sentence" "cost of listening"; do prints "$stage"; done
run 0 "$UTTER" bench cancel -m "$BUILD/mini" --samples 6 --stage encoder --json
[ "$(python3 -c 'import json; r = json.load(open("out"))["results"]; print(len(r), r[0]["name"], r[0]["by_call"] > 0, r[0]["by_flag"] > 0, r[0]["max_ms"] >= r[0]["median_ms"] >= 0)')" = "1 encoder True True True" ] || flunk "$(cat out)"
run 2 "$UTTER" bench cancel -m "$BUILD/mini" --stage nothing; says "nothing"

begin "the report as JSON"
run 0 "$UTTER" bench load t3 -m "$BUILD/mini" --runs 3 --json; prints '"median_ms"'; prints '"read_bytes"'; prints "sampled"

begin "an unknown part is a usage error"
run 2 "$UTTER" bench nothing; says "nothing"
finish
