#!/bin/bash
# Playing without a sound card: ALSA's file device keeps what is played; a PulseAudio daemon of our own with a null sink takes as
# long as loudspeakers would. What is not installed is skipped, visibly.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"
pulse_pid=
trap '[ -z "$pulse_pid" ] || kill $pulse_pid 2>/dev/null; rm -rf "$work"' EXIT
long="This sentence goes on for some time. And another."

"$UTTER" say "Hello." --play --play-device null -s 0 >out 2>err </dev/null || { grep -q "not built in" err && { echo "SKIPPED: built without ALSA"; exit 77; }; }
[ -r /usr/share/alsa/alsa.conf ] || { echo "SKIPPED: no ALSA configuration"; exit 77; }
printf '</usr/share/alsa/alsa.conf>\npcm.kept { type file slave.pcm null file "%s/kept.pcm" format raw }\n' "$work" >alsa.conf
export ALSA_CONFIG_PATH=$work/alsa.conf

begin "what is played is what a file holds"
for mode in off on; do
  run 0 "$UTTER" say "$long" -s 0 --stream $mode -o file.pcm
  run 0 "$UTTER" say "$long" -s 0 --stream $mode --play --play-device kept; says "s of speech, seed 0"
  # ALSA fills its last period with silence
  python3 - file.pcm kept.pcm <<'PY' || flunk "--stream $mode: other samples are played"
import sys
a, b = (open(p, "rb").read() for p in sys.argv[1:3])
sys.exit(not (len(a) > 50000 and b[:len(a)] == a and not any(b[len(a):])))
PY
  rm -f kept.pcm
done

begin "a file and the loudspeaker at once"
run 0 "$UTTER" say "$long" -s 0 --stream on --play --play-device kept -o both.pcm; same file.pcm both.pcm

begin "with a seed, playing does not change the file"
run 0 "$UTTER" say "$long" -s 1 -o alone.pcm
run 0 "$UTTER" say "$long" -s 1 --play --play-device kept -o played.pcm; same alone.pcm played.pcm

begin "a device that is not there"
run 5 "$UTTER" say "Hello." --play --play-device no-such-device; says "no-such-device"

# ---- in real time ----
[ -n "$(command -v pulseaudio)" ] && [ -n "$(find /usr/lib -name 'libasound_module_pcm_pulse.so' 2>/dev/null)" ] || { echo "SKIPPED: cancelling while it plays (no pulseaudio with its ALSA plugin)"; finish; }
export XDG_RUNTIME_DIR=$work/run HOME=$work PULSE_SERVER=unix:$work/pulse
mkdir -m 700 run
pulseaudio -n --daemonize=no --use-pid-file=no --exit-idle-time=-1 --disable-shm=yes --log-target=file:pulse.log \
  -L "module-native-protocol-unix socket=$work/pulse auth-anonymous=1" -L "module-null-sink rate=24000" &
pulse_pid=$!
for i in $(seq 100); do [ -S pulse ] && break; sleep 0.05; done
printf '</usr/share/alsa/alsa.conf>\npcm.!default { type pulse server "unix:%s/pulse" }\nctl.!default { type pulse }\n' "$work" >alsa.conf
run 0 "$UTTER" say "Hello." -s 0
[ -S pulse ] && [ $failures = 0 ] || { echo "SKIPPED: no pulseaudio daemon can run here"; tail -3 pulse.log err; finish; }

begin "Ctrl-C while it plays: what was heard is told, less than what was made, no more than time has passed"
start=$(date +%s.%N)
"$UTTER" say "$long $long $long $long $long" -s 0 >out 2>err </dev/null &
pid=$!
sleep 2
kill -INT $pid; wait $pid; code=$?
passed=$(python3 -c "import time; print(time.time() - $start)")
[ $code = 130 ] || flunk "exit code $code"
awk -v passed="$passed" '/^heard/ { heard = $2; made = $5 } END { exit !(made > 0 && heard <= made && heard <= passed) }' err || flunk "$passed s: $(cat err)"
finish
