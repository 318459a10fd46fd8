#!/bin/bash
# The rooms of src/ stand in one order; a file includes only from its own room and those before it.
set -uo pipefail
rooms=(base device nn checkpoint audio text chatterbox qwen3_tts engine server cli)
declare -A place
for i in "${!rooms[@]}"; do place[${rooms[$i]}]=$i; done
bad=0
while IFS=: read -r file line include; do
  room=${file#"$SOURCE"/src/} room=${room%%/*}
  other=${include#*\"} other=${other%%\"*}
  case $other in utter.h) continue ;; */*) ;; *) echo "$file:$line: $include names no room"; bad=1; continue ;; esac
  other=${other%%/*}
  if [ -z "${place[$room]:-}" ] || [ -z "${place[$other]:-}" ]; then
    echo "$file:$line: room $room or $other is not in the list"; bad=1
  elif [ "${place[$other]}" -gt "${place[$room]}" ]; then
    echo "$file:$line: $room may not include from $other"; bad=1
  elif [ "$room $other" = "qwen3_tts chatterbox" ]; then
    echo "$file:$line: the model families do not know each other"; bad=1
  fi
done < <(grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$SOURCE/src")
exit $bad
