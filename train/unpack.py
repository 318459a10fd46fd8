"""Turn a voice file back into what the trainings save, so that they can begin with it.

  python unpack.py ../voices/heart.gguf --out DIR       # DIR/t3.pt, DIR/flow.pt, DIR/hift.pt

What export.py changes (--sharpen, --gain) is taken back. The tokenizer is not in a voice file, so a new one has other codes:
what belongs to codes (the tables and the head of T3, the flow's table) is written all the same, and left out by those who read it.
"""
import argparse
import os
import struct

import numpy as np
import torch

import common as C


def read_gguf(path):
    """name -> array; Q8_0, F16, F32 and I64 only."""
    b = open(path, "rb").read()
    at = 24

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, b, at)
        at += struct.calcsize("<" + fmt)
        return v[0]

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return b[at - n:at].decode()

    def value(t):
        if t == 8:
            return string()
        if t == 9:
            et, n = take("I"), take("Q")
            return [value(et) for _ in range(n)]
        return take("BbHhIifBsQqd"[t] if t != 7 else "B")

    n_tensors, n_meta = struct.unpack_from("<QQ", b, 8)
    meta = {}
    for _ in range(n_meta):
        k = string()
        meta[k] = value(take("I"))
    info = []
    for _ in range(n_tensors):
        name = string()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        info.append((name, shape, take("I"), take("Q")))
    align = meta.get("general.alignment", 32)
    base, out = (at + align - 1) // align * align, {}
    for name, shape, kind, off in info:
        n = int(np.prod(shape))
        if kind == 8:
            q = np.frombuffer(b, np.dtype([("d", "<f2"), ("q", "i1", 32)]), n // 32, base + off)
            x = q["d"].astype(np.float32)[:, None] * q["q"].astype(np.float32)
        else:
            x = np.frombuffer(b, {0: "<f4", 1: "<f2", 27: "<i8"}[kind], n, base + off)
        out[name] = x.reshape(shape)
    return out


def fill(m, have, prefix):
    """The module's state, its tensors taken from `have`; convolutions lie there as [taps, out, in], without weight norm."""
    kinds, sd = dict(m.named_modules()), m.state_dict()
    for k, v in sd.items():
        layer, _, leaf = k.rpartition(".")
        norm = layer.endswith(".parametrizations.weight")
        name = layer[:-len(".parametrizations.weight")] if norm else layer
        x = have.get(prefix + (name + ".weight" if norm else k))
        if x is None:
            continue
        x, kind = torch.from_numpy(np.array(x, np.float32 if v.is_floating_point() else x.dtype)), type(kinds.get(name)).__name__
        if norm or leaf == "weight":
            if "ConvTranspose" in kind and x.dim() == 3:
                x = x.permute(2, 1, 0)
            elif "Conv" in kind and x.dim() == 3:
                x = x.permute(1, 2, 0)
            elif kind == "Conv1D":                         # GPT-2's, which is stored the other way round
                x = x.T
        if norm and leaf == "original0":
            x = x.flatten(1).norm(dim=1)
        sd[k] = x.reshape(v.shape).contiguous().clone()
    return sd


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("voice")
    ap.add_argument("--out", required=True)
    ap.add_argument("--sharpen", type=float, default=1.6)
    ap.add_argument("--gain", type=float, default=1.26)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    have = read_gguf(a.voice)
    for name, m, prefix in (("t3", C.build_t3(), "t3."), ("flow", C.build_flow(), "s3gen.flow."), ("hift", C.build_hift(), "s3gen.mel2wav.")):
        sd = fill(m, have, prefix)
        if name == "t3":
            sd["speech_head.weight"] /= a.sharpen
            sd["speech_head.bias"] /= a.sharpen
        if name == "hift":
            sd["conv_post.bias"][:9] -= np.log(a.gain)
        C.save(os.path.join(a.out, name + ".pt"), sd)
        print(name, len(sd), "tensors,", sum(1 for k in have if k.startswith(prefix)), "in the voice file")


if __name__ == "__main__":
    main()
