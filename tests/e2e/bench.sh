#!/bin/bash
# utter bench: every part runs on the rule-made model and reports; no time decides anything.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"

begin "every part reports"
run 0 "$UTTER" bench load s3gen hift -m "$BUILD/mini" --runs 1
for part in load s3gen hift; do prints "$part"; done

begin "the report as JSON"
run 0 "$UTTER" bench load t3 -m "$BUILD/mini" --runs 3 --json; prints '"median_ms"'; prints '"read_bytes"'; prints "sampled"

begin "an unknown part is a usage error"
run 2 "$UTTER" bench nothing; says "nothing"
finish
