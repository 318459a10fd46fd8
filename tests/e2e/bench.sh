#!/bin/bash
# utter bench: every part runs on the rule-made model and reports; no time decides anything.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"

begin "every part reports"
run 0 "$UTTER" bench load t3 s3gen hift -m "$BUILD/mini" --runs 1
for part in load t3 s3gen hift; do prints "$part"; done
prints "a token"

begin "the report as JSON"
run 0 "$UTTER" bench load -m "$BUILD/mini" --runs 3 --json; prints '"median_ms"'; prints '"read_bytes"'

begin "an unknown part is a usage error"
run 2 "$UTTER" bench nothing; says "nothing"
finish
