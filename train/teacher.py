"""The teacher speaks: sentences -> 24 kHz audio, phoneme and pitch of each 20 ms, cut to whole tokens (40 ms).

  python teacher.py --data DIR --parts 128 --jobs 28           # DIR/text.tsv -> DIR/partNNN.{pcm,npz}
  ... --twins 24      the first 24 parts also as partNNN.twin.pcm: the same speech with the noise drawn anew
  python teacher.py --data DIR --text heldout.tsv --wavs WAVS   # each sentence as a wav file
  python teacher.py --data DIR --text heldout.tsv --parts 1 --name held   # DIR/held000.{pcm,npz}

The teacher is the package `hibari-tts` (voice "heart", 24 kHz, distilled from Kokoro-82M; Apache 2.0, weights inside the
wheel). It is about a hundred times faster than real time on one core. Its network also has durations inside, which we ask for.
"""
import argparse
import multiprocessing as mp
import os
import time
import wave

import numpy as np

GAIN, DITHER = 1.6, 1e-4               # about -23 dBFS; a hiss at -80 dBFS in place of digital silence
LEAD, TAIL = 2, 8                      # tokens of silence kept before the first and after the last sound, at most
STRESS, LONG = "\u02c8\u02cc", "\u02d0\u02b0\u02b2\u0303"

_tts = None


def tts():
    global _tts
    if _tts is None:
        import onnx
        import onnxruntime as ort
        from hibari import Hibari
        h = Hibari()
        m = onnx.load(h.model_path)
        clip = [n for n in m.graph.node if n.op_type == "Clip" and n.input[0].endswith("Round_output_0")][0].output[0]
        cast = [n for n in m.graph.node if n.op_type == "Cast" and n.input[0] == clip]
        out = [n.output[0] for n in cast if any(k.op_type == "CumSum" and k.input[0] == n.output[0] for k in m.graph.node)][0]
        m.graph.output.append(onnx.helper.make_tensor_value_info(out, onnx.TensorProto.INT64, None))
        so = ort.SessionOptions()
        so.intra_op_num_threads = so.inter_op_num_threads = 1
        so.log_severity_level = 3
        h.sess = ort.InferenceSession(m.SerializeToString(), so, providers=["CPUExecutionProvider"])
        _tts = h
    return _tts


def speak(text, rng, twin=None):
    """(samples float32 in whole tokens, phone id of each 20 ms, pitch of each 20 ms, silent tokens at the end) or None.

    With a second generator `twin` a fifth value: the same speech, its noise (breath, hiss, the rough part of consonants) drawn
    from that one."""
    from hibari import dsp
    h = tts()
    ys, ends, labels, pitch, t, zs = [], [], [], [], 0, []
    for ps in h.phonemize(text):
        ps = "".join(c for c in ps if c in h.vocab)
        if not ps:
            return None
        o = h.sess.run(None, {"ids": np.array([h.ids(ps)]), "speed": np.ones(1, np.float32)})
        dur = o[6].ravel()
        lab = []
        for c in ps:
            lab.append(0 if c in ",.!?;:\u2014\u2026\"()\u201c\u201d " else h.vocab[c])
        for i, c in enumerate(ps):                         # stress marks go with the sound they mark, length marks with the one before
            if c in STRESS and i + 1 < len(ps):
                lab[i] = lab[i + 1]
            elif c in LONG and i:
                lab[i] = lab[i - 1]
            elif c == " " and 0 < i < len(ps) - 1 and dur[i + 1] < 6:      # no pause between words
                lab[i] = lab[i + 1] if ps[i + 1] not in STRESS or i + 2 >= len(ps) else h.vocab[ps[i + 2]]
        y = dsp.synth(*[x[0] for x in o[:6]], rng)
        ends.append(t + np.cumsum(dur) * 600)
        labels.append(np.array([0, *lab, 0]))
        pitch.append(o[5][0])
        ys.append(y)
        if twin is not None:
            zs.append(dsp.synth(*[x[0] for x in o[:6]], twin))
        t += len(y)
    if not ys:
        return None
    y, ends, labels, f0 = np.concatenate(ys) * GAIN, np.concatenate(ends), np.concatenate(labels), np.concatenate(pitch)
    if not np.isfinite(y).all():
        return None
    n = len(y) // 960
    e = np.sqrt((y[:n * 960].reshape(n, 960) ** 2).mean(1))
    loud = np.flatnonzero(e > 10 ** (-55 / 20))
    if len(loud) == 0:
        return None
    a, b = max(0, loud[0] - LEAD), min(n, loud[-1] + 1 + TAIL)
    y = y[a * 960:b * 960] + rng.standard_normal((b - a) * 960, dtype=np.float32) * DITHER
    at = (np.arange(2 * a, 2 * b) * 480 + 240)
    ph = labels[np.minimum(np.searchsorted(ends, at, side="right"), len(labels) - 1)].astype(np.uint8)
    p = f0[np.minimum((at / 300).round().astype(int), len(f0) - 1)]
    ph[np.repeat(e[a:b] < 1e-3, 2)] = 0                    # silence, whatever the alphabet says
    out = np.clip(y, -1, 1), ph, np.where(p > 45, p, 0).astype(np.float32), b - loud[-1] - 1
    if twin is None:
        return out
    z = np.concatenate(zs)[a * 960:b * 960] * GAIN + twin.standard_normal((b - a) * 960, dtype=np.float32) * DITHER
    return *out, np.clip(z, -1, 1)


def write(path, x, sr=24000):
    with wave.open(path, "wb") as w:
        w.setnchannels(1); w.setsampwidth(2); w.setframerate(sr)
        w.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())


def part(job):
    rows, base, seed, twins = job
    if os.path.exists(base + ".npz"):
        return 0.0
    rng, twin = np.random.default_rng(seed), np.random.default_rng(seed + 100000) if twins else None
    ids, ln, tail, ph, f0 = [], [], [], [], []
    with open(base + ".pcm", "wb") as f, open(base + ".twin.pcm" if twins else os.devnull, "wb") as f2:
        for i, text in rows:
            try:
                r = speak(text, rng, twin)
            except Exception as e:                         # one odd sentence must not end a part
                print("teacher:", i, repr(text), repr(e)[:100], flush=True)
                continue
            if r is None or not 8 <= len(r[0]) // 960 <= 900:
                continue
            f.write((r[0] * 32767).astype("<i2").tobytes())
            if twins:
                f2.write((r[4] * 32767).astype("<i2").tobytes())
            ids.append(int(i.lstrip("hd"))); ln.append(len(r[0]) // 960); tail.append(r[3]); ph.append(r[1]); f0.append(r[2])
    np.savez(base + ".tmp.npz", ids=np.array(ids, np.int32), len=np.array(ln, np.int32), tail=np.array(tail, np.int16),
             phone=np.concatenate(ph), f0=np.concatenate(f0).astype(np.float16))
    os.replace(base + ".tmp.npz", base + ".npz")
    return sum(ln) / 25


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--text", default="text.tsv")
    ap.add_argument("--name", default="part")
    ap.add_argument("--parts", type=int, default=128)
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--limit", type=int, default=0)
    ap.add_argument("--twins", type=int, default=0)
    ap.add_argument("--wavs")
    a = ap.parse_args()
    rows = [l.rstrip("\n").split("\t")[:2] for l in open(os.path.join(a.data, a.text))]
    rows = rows[:a.limit] if a.limit else rows
    if a.wavs:
        os.makedirs(a.wavs, exist_ok=True)
        for i, t in rows:
            write(os.path.join(a.wavs, i + ".wav"), speak(t, np.random.default_rng(0))[0])
        return
    t0 = time.time()
    jobs = [(rows[k::a.parts], os.path.join(a.data, f"{a.name}{k:03d}"), k, k < a.twins) for k in range(a.parts)]
    with mp.get_context("fork").Pool(a.jobs) as p:
        s = 0.0
        for k, x in enumerate(p.imap(part, jobs)):
            s += x
            if k % 16 == 0 or k == a.parts - 1:
                print(f"teacher: {k + 1} parts, {s / 3600:.2f} h in {time.time() - t0:.0f} s", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
