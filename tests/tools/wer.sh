#!/bin/bash
# wer.sh UTTER [say options] - speaks thirty Harvard sentences (IEEE 1969) and prints pocketsphinx's word error rate.
#
# A development script, outside CI: an old recogniser tells changes of one voice apart, not good voices from bad ones. Needs
# Debian's pocketsphinx, pocketsphinx-en-us and sox. SEEDS="0 1 2" speaks them once for each seed; KEEP=DIR keeps the sound.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
utter=${1:?usage: wer.sh UTTER [say options]}
shift
model=/usr/share/pocketsphinx/model/en-us
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for seed in ${SEEDS:-0}; do
  sound=${KEEP:+$KEEP/seed-$seed}
  sound=${sound:-$work/sound-$seed}
  mkdir -p "$sound" "$work/16k"
  # Exit code 1 tells of a sentence that met the token limit; its sound counts like any other.
  "$utter" say "$@" --seed "$seed" --quiet -f "$here/harvard.txt" -d "$sound" || [ $? = 1 ]
  for f in "$sound"/*.wav; do sox "$f" -r 16000 -b 16 "$work/16k/$(basename "$f")" pad 0.2 0.2 2>/dev/null; done
  (cd "$work/16k" && printf '%s\n' *.wav | sed 's/\.wav$//') >"$work/names"
  pocketsphinx_batch -hmm $model/en-us -lm $model/en-us.lm.bin -dict $model/cmudict-en-us.dict -ctl "$work/names" -cepdir "$work/16k" \
    -cepext .wav -adcin yes -adchdr 44 -hyp "$work/heard" -logfn /dev/null >/dev/null 2>&1
  # The heard lines end in " (NAME SCORE)"; words with a variant number such as "a(2)" lose it.
  sed -E 's/ *\([^ ()]+ -?[0-9]+\)$//; s/\([0-9]+\)//g' "$work/heard" >"$work/words"
  awk -v seed="$seed" '
    function words(s, w) { s = tolower(s); gsub(/-/, " ", s); gsub(/[^a-z'"'"' ]/, " ", s); gsub(/ '"'"'|'"'"' /, " ", s); return split(s, w, " ") }
    function distance(a, n, b, m,   i, j, d, p, t) {
      for (j = 0; j <= m; j++) d[j] = j
      for (i = 1; i <= n; i++) {
        p = d[0]; d[0] = i
        for (j = 1; j <= m; j++) {
          t = d[j]; d[j] = p + (a[i] != b[j])
          if (t + 1 < d[j]) d[j] = t + 1
          if (d[j - 1] + 1 < d[j]) d[j] = d[j - 1] + 1
          p = t
        }
      }
      return d[m]
    }
    NR == FNR { said[NR] = $0; next }
    { n = words(said[FNR], a); m = words($0, b); e = distance(a, n, b, m); errors += e; total += n; clean += e == 0 }
    END { printf "seed %s: WER %.1f %% (%d errors in %d words, %d of %d sentences without one)\n", seed, 100 * errors / total, errors, total, clean, FNR }
  ' "$here/harvard.txt" "$work/words"
  rm -rf "$work/16k"
done
