#!/bin/bash
# utter voice, utter say -v and --ref-audio with the rule-made model: what is made, what is read, and every bad input with its
# own message, exit code, and nothing written.
. "${SOURCE:?run this through ctest}/tests/e2e/lib.sh"
mini=$BUILD/mini
export XDG_DATA_HOME=$work/data
voice() { run "$1" "$UTTER" voice "${@:2}"; }
say() { run "$1" "$UTTER" say -s 0 -m "$mini" -n 4 --cfm-steps 1 -q "Voice." "${@:2}"; }

# recording.py NAME SECONDS [what]: a wav of syllables, or of what is wrong with it
cat >recording.py <<'PY'
import math, struct, sys, wave
name, seconds, what = sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
rate, channels = 16000, 2 if what == "inverted" else 1
def sample(i):
    t = i / rate
    if what == "silence": return 0
    if what == "dc": return 0.3
    return 0.15 * max(0, math.sin(6.2831853 * 4 * t)) * (t % 2 < 1.6) * sum(math.sin(6.2831853 * h * 130 * t) / h for h in range(1, 13))
x = [sample(i) for i in range(int(seconds * rate))]
if what in ("nan", "inf"):
    x[500] = float(what)
    data = struct.pack(f"<{len(x)}f", *x)
    open(name, "wb").write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, rate, rate * 4, 4, 32) + b"data" + struct.pack("<I", len(data)) + data)
else:
    w = wave.open(name, "wb")
    w.setnchannels(channels), w.setsampwidth(2), w.setframerate(rate)
    w.writeframes(b"".join(struct.pack("<h", int(32767 * v)) * 1 + (struct.pack("<h", -int(32767 * v)) if channels == 2 else b"") for v in x))
PY
rec() { python3 recording.py "$@"; }
rec good.wav 2.5; rec short.wav 0.5; rec three.wav 3; rec silence.wav 6 silence; rec dc.wav 6 dc; rec nan.wav 3 nan; rec inf.wav 3 inf; rec inverted.wav 3 inverted
rec one.wav 0.0001

begin "a voice is made, shown, listed and spoken with"
voice 0 make good.wav -m "$mini" --name Alice --consent yes --transcript "la la" --license CC0 --keep-audio -o alice.voice
says "alice.voice: a voice of"; says "audio kept"; absent alice.voice.part
voice 0 show alice.voice; prints Alice; prints "la la"; prints CC0; prints "Turbo and Nano"; prints "audio        kept"
voice 0 show alice.voice --json; [ "$(field out name)" = Alice ] || flunk "name"
voice 0 make good.wav -m "$mini"; exists data/utter/voices/good.voice
voice 0 list; prints good.voice
say 1 -v alice.voice -o a.wav; say 1 -v good -o b.wav; same a.wav b.wav
say 1 --ref-audio good.wav -o c.wav; same a.wav c.wav
say 1 -o own.wav; cmp -s a.wav own.wav && flunk "the voice does not matter"
"$UTTER" say -s 0 -m "$mini" -n 4 --cfm-steps 1 -q "Voice." --ref-audio - -o d.wav <good.wav 2>err; same a.wav d.wav

begin "the same bytes at any number of threads"
voice 0 make good.wav -m "$mini" -t 1 -o t1.voice -q; voice 0 make good.wav -m "$mini" -t 3 -o t3.voice -q; same t1.voice t3.voice

begin "raw: of a recording, and not what the environment calls the raw output of say"
voice 0 make good.wav -m "$mini" --ref-raw -o raw.voice -q; cmp -s t1.voice raw.voice && flunk "--ref-raw does not matter"
voice 0 make good.wav -m "$mini" --raw -o raw2.voice -q; same raw.voice raw2.voice
run 0 env UTTER_REF_RAW=1 "$UTTER" voice make good.wav -m "$mini" -o raw3.voice -q; same raw.voice raw3.voice
run 0 env UTTER_RAW=1 "$UTTER" voice make good.wav -m "$mini" -o t4.voice -q; same t1.voice t4.voice

begin "npy files, there and back"
voice 0 make good.wav -m "$mini" --npy npy
for f in speaker_emb cond_prompt_speech_tokens embedding prompt_token prompt_feat; do exists npy/$f.npy; done
voice 0 show npy; prints "any Chatterbox model"
say 1 -v npy -o n.wav; same a.wav n.wav

begin "a published conds.pt, and a model as a voice"
say 1 -v "$mini/conds.pt" -o p.wav; same own.wav p.wav
say 1 -v "$mini" -o p.wav; same own.wav p.wav

begin "a voice is baked into a model, every other tensor as it was"
run 0 "$UTTER" convert "$mini" -o mini.gguf --type f32 --embedding-type f32 -q
voice 0 bake mini.gguf alice.voice -o baked.gguf; says "Alice built in"
run 1 "$UTTER" say -s 0 -m baked.gguf -n 4 --cfm-steps 1 -q "Voice." -o baked.wav; same a.wav baked.wav
python3 - <<'PY' || flunk "tensors differ"
import struct
def read(path):
    b = open(path, "rb").read()
    at, n_tensors, n_keys = 24, *struct.unpack_from("<QQ", b, 8)
    def string(at):
        n, = struct.unpack_from("<Q", b, at)
        return b[at + 8:at + 8 + n].decode(), at + 8 + n
    size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    def value(at, t):
        if t == 8: return string(at)
        if t == 9:
            e, n = struct.unpack_from("<IQ", b, at)
            at += 12
            for _ in range(n): _, at = value(at, e)
            return None, at
        return b[at:at + size[t]], at + size[t]
    keys = {}
    for _ in range(n_keys):
        k, at = string(at)
        t, = struct.unpack_from("<I", b, at)
        keys[k], at = value(at + 4, t)
    infos = []
    for _ in range(n_tensors):
        name, at = string(at)
        nd, = struct.unpack_from("<I", b, at)
        dims = struct.unpack_from(f"<{nd}Q", b, at + 4)
        t, off = struct.unpack_from("<IQ", b, at + 4 + 8 * nd)
        at += 16 + 8 * nd
        infos.append((off, name, dims, t))
    start = -(-at // 64) * 64
    infos.sort()
    ends = [i[0] for i in infos[1:]] + [len(b) - start]
    return keys, {name: (dims, t, b[start + off:start + end].rstrip(b"\0")) for (off, name, dims, t), end in zip(infos, ends)}
(ka, a), (kb, b) = read("mini.gguf"), read("baked.gguf")
rest = {n for n in a if not n.startswith("conds.")}
assert rest == {n for n in b if not n.startswith("conds.")} and len(rest) > 100
assert all(a[n] == b[n] for n in rest)
assert a["conds.gen.embedding"] != b["conds.gen.embedding"]
assert {k: v for k, v in ka.items() if k != "utter.voice"} == {k: v for k, v in kb.items() if k != "utter.voice"}
PY
voice 2 bake "$mini" alice.voice -o x.gguf; says "utter convert"; absent x.gguf

begin "what cannot be done is refused before the work"
voice 2 make good.wav -m no-such-model --name a/b; says "cannot be the name"
cp good.wav keep.wav; voice 2 make keep.wav -m "$mini" -o keep.wav; says "made from"; same good.wav keep.wav
voice 2 make good.wav -m "$mini" -o -; says "name it"; absent ./-
mkfifo fifo; voice 5 make good.wav -m "$mini" -o fifo; [ -p fifo ] || flunk "the fifo was replaced"
voice 2 bake mini.gguf alice.voice -o mini.gguf; says "made from"
voice 2 list extra; says "extra"

begin "a recording is only checked"
voice 0 check good.wav; prints "recording"; prints "LUFS"; prints "silence"
voice 0 check three.wav --json; python3 -c 'import json; j = json.load(open("out")); assert j["clip_seconds"] > 2.5 and any(f["warning"] and "3" in f["text"] for f in j["findings"])' || flunk "json"
voice 0 check inverted.wav; prints "cancel each other"

begin "bad recordings, each with its message, and no file"
bad() { # FILE TEXT
  voice 4 make "$1" -m "$mini" -o bad.voice; says "$2"; absent bad.voice; absent bad.voice.part
  voice 4 check "$1"; says "$2"
}
: >empty.wav; bad empty.wav "the file is empty"
echo "just text" >text.wav; bad text.wav "it looks like text"
say 4 --ref-audio text.wav -o bad.wav; says "it looks like text"; absent bad.wav
printf '<html><body>Not found</body></html>' >page.mp3; bad page.mp3 "a web page"
printf '\x89PNG\r\n\x1a\n0000000000000000' >picture.wav; bad picture.wav "a PNG picture"
mkdir folder.wav; bad folder.wav "a folder"
bad no-such.wav "No such file"
bad short.wav "0.50 s of sound"
bad one.wav "0.00 s of sound"
bad silence.wav "every sample is 0"
bad dc.wav "a constant"
bad nan.wav "not a number"
bad inf.wav "infinite"
head -c 20000 good.wav >cut.wav; bad cut.wav "0.62 s of sound"
python3 - <<'PY'
b = bytearray(open("good.wav", "rb").read())
b[24:28] = bytes(4); open("zero-hz.wav", "wb").write(b)
b[24:28] = b"\xff" * 4; open("fast.wav", "wb").write(b)
b = bytearray(open("good.wav", "rb").read())
open("header.wav", "wb").write(b[:44])
PY
bad header.wav "0 samples"
voice 4 make zero-hz.wav -m "$mini" -o bad.voice; absent bad.voice
voice 4 make fast.wav -m "$mini" -o bad.voice; absent bad.voice
head -c 70001 good.wav >odd.wav; voice 0 make odd.wav -m "$mini" -o odd.voice; says "ends early"
python3 -c 'f = open("long.wav", "wb"); import struct; n = 12 * 3600 * 16000; f.write(b"RIFF" + struct.pack("<I", 36 + n) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 16000, 1, 8) + b"data" + struct.pack("<I", n)); f.truncate(44 + n)'
bad long.wav "12.0 h long"
voice 4 make long.wav -m "$mini" --start 3600 --duration 10 -o bad.voice; says "a constant"
rm -f long.wav

begin "bad voices"
badvoice() { say 4 -v "$1" -o bad.wav; says "$2"; absent bad.wav; }
badvoice nobody "no voice of this name"
badvoice good.wav "--ref-audio"
badvoice text.wav "text"
head -c 5000 alice.voice >cut.voice; badvoice cut.voice "cut.voice"
python3 - <<'PY'
b = open("alice.voice", "rb").read()
def change(name, old, new): assert old in b; open(name, "wb").write(b.replace(old, new, 1))
change("family.voice", b"chatterbox", b"othervoice")
change("version.voice", b"utter.voice.version\x04\x00\x00\x00\x01", b"utter.voice.version\x04\x00\x00\x00\x09")
change("missing.voice", b"turbo.gen.embedding", b"turbo.gen.emmbeding")
change("shape.voice", b"turbo.gen.embedding\x01\x00\x00\x00\xc0", b"turbo.gen.embedding\x01\x00\x00\x00\xbf")
i = b.index(b"utter.voice.networks") + 32
open("networks.voice", "wb").write(b[:i] + (b"1" if b[i:i + 1] == b"0" else b"0") + b[i + 1:])
PY
badvoice family.voice "a voice for othervoice models"
badvoice version.voice "another version"
badvoice missing.voice "gen.embedding"
badvoice shape.voice "gen.embedding"
cp -r npy npy2; python3 -c 'b = bytearray(open("npy/prompt_token.npy", "rb").read()); b[-4:] = (9999).to_bytes(4, "little"); open("npy2/prompt_token.npy", "wb").write(b)'
badvoice npy2 "not a speech code"
rm npy2/embedding.npy; badvoice npy2 "embedding.npy"

begin "a voice that other networks heard is heard again where its audio was kept"
cp networks.voice fitted.voice
say 1 -v fitted.voice -o f.wav
cmp -s networks.voice fitted.voice && flunk "the fitted voice was not kept"
cp fitted.voice again.voice; say 1 -v again.voice -o g.wav; same f.wav g.wav; same fitted.voice again.voice
voice 0 make good.wav -m "$mini" -o plain.voice -q
python3 -c 'b = open("plain.voice", "rb").read(); i = b.index(b"utter.voice.networks") + 32; open("plain2.voice", "wb").write(b[:i] + (b"1" if b[i:i + 1] == b"0" else b"0") + b[i + 1:])'
badvoice plain2.voice "made with another model"

begin "a model that cannot clone takes its own voice, under any name of its file"
built_in=$SOURCE/voices/heart.gguf; cp "$built_in" copy.gguf
run 0 "$UTTER" say "Mine." -s 0 -q -m "$built_in" -o mine.wav
for v in "$built_in" copy.gguf; do run 0 "$UTTER" say "Mine." -s 0 -q -m "$built_in" -v "$v" -o mine2.wav; same mine.wav mine2.wav; done
run 3 "$UTTER" say "Not mine." -m "$built_in" -v mini.gguf -o no.wav; says "cannot take others"; absent no.wav
badvoice "$built_in" "made with another model"

begin "a model that cannot clone says which can"
run 3 "$UTTER" say "No." --ref-audio good.wav -o no.wav; says "Chatterbox Turbo"; absent no.wav
run 3 "$UTTER" voice make good.wav -o no.voice; says "cannot take others"; absent no.voice

begin "the command line"
voice 2; says "make|list|show|check|bake"
voice 2 mak good.wav; says "mak"
voice 2 make; voice 2 show; voice 2 check; voice 2 bake a b
voice 5 make good.wav -m "$mini" -o no/such/folder/x.voice; says "no/such/folder/x.voice"
say 2 -v alice.voice --ref-audio good.wav -o x.wav; says "either --voice or --ref-audio"
finish
