#!/usr/bin/env python3
"""mini_model.py UTTER_CHECKPOINT GOLDEN_DIR OUT_DIR - makes a whole tiny Chatterbox Turbo folder whose weights are a rule.

Its speech is noise, but lengths, rates, determinism, memory, streaming and errors can all be checked with it. The networks
come from GOLDEN_DIR/chatterbox-mini's lists through utter-checkpoint, the tokenizer from GOLDEN_DIR/mini-tokenizer, and
conds.pt is written here as torch.save would (a zip with a pickle), without torch. OUT_DIR-mute is a second model
that stops before it says anything, OUT_DIR-stumbling a third that fails at every piece with a Q.
"""
import array, collections, io, json, math, os, pickle, shutil, subprocess, sys, types, zipfile

PROMPT_TOKENS = 12      # of the flow; 25 a second
T3_TOKENS = 20
T3_WIDTH = 128
STOP_SPEECH = 6562


def fake_torch():
    """Modules and names that pickle writes into the file; nobody imports torch."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    def rebuild(*_):
        return None
    rebuild.__module__, rebuild.__name__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    torch._utils = utils
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    return torch


class Tensor:
    def __init__(self, shape, values, code):
        self.shape, self.data, self.is_float = shape, array.array(code, values), code == "f"
        assert len(self.data) == math.prod(shape)

    def __reduce__(self):
        strides, n = [], 1
        for s in reversed(self.shape):
            strides.insert(0, n)
            n *= s
        return (sys.modules["torch._utils"]._rebuild_tensor_v2,
                (Storage(self), 0, tuple(self.shape), tuple(strides), False, collections.OrderedDict()))


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


def save(path, value):
    torch, storages = fake_torch(), []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, Storage):
                return None
            storages.append(obj.tensor.data)
            kind = torch.FloatStorage if obj.tensor.is_float else torch.LongStorage
            return ("storage", kind, str(len(storages) - 1), "cpu", len(obj.tensor.data))

    pickled = io.BytesIO()
    Pickler(pickled, 2).dump(value)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("conds/data.pkl", pickled.getvalue())
        for i, data in enumerate(storages):
            z.writestr(f"conds/data/{i}", data.tobytes())
        z.writestr("conds/version", "3\n")


def conds():
    def wave(n, scale, offset=0.0):
        return [offset + scale * math.sin(0.7 * i + 0.1 * (i % 17)) for i in range(n)]

    speaker = wave(256, 1.0)
    norm = math.sqrt(sum(v * v for v in speaker))
    return {
        "t3": {"speaker_emb": Tensor((1, 256), [v / norm for v in speaker], "f"), "clap_emb": None,
               "cond_prompt_speech_tokens": Tensor((1, T3_TOKENS), [(i * 331 + 7) % 6561 for i in range(T3_TOKENS)], "q"),
               "cond_prompt_speech_emb": None, "emotion_adv": Tensor((1, 1, 1), [0.5], "f")},
        "gen": {"prompt_token": Tensor((1, PROMPT_TOKENS), [(i * 577 + 3) % 6561 for i in range(PROMPT_TOKENS)], "q"),
                "prompt_token_len": Tensor((1,), [PROMPT_TOKENS], "q"),
                "prompt_feat": Tensor((1, 2 * PROMPT_TOKENS, 80), wave(160 * PROMPT_TOKENS, 2.0, -5.0), "f"),
                "prompt_feat_len": None, "embedding": Tensor((1, 192), wave(192, 1.0), "f")},
    }


def main(utter_checkpoint, golden, out):
    os.makedirs(out, exist_ok=True)
    for spec in ("t3_turbo_v1", "s3gen_meanflow", "ve"):
        subprocess.run([utter_checkpoint, f"{golden}/chatterbox-mini/spec-{spec}.json", f"{out}/{spec}.safetensors"],
                       check=True, stdout=subprocess.DEVNULL)
    for name in os.listdir(f"{golden}/mini-tokenizer"):
        if name != "README.md":
            shutil.copyfile(f"{golden}/mini-tokenizer/{name}", f"{out}/{name}")
    save(f"{out}/conds.pt", conds())
    with open(f"{out}/vocab.json", encoding="utf-8") as f:
        q = json.load(f)["Q"]
    changed(out, out + "-mute", "speech_head.bias", STOP_SPEECH, 1e6)  # so sure of the stop token
    changed(out, out + "-stumbling", "text_emb.weight", q * T3_WIDTH, math.nan)


def changed(model, out, tensor, index, value):
    """The same model with one other value in T3."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(model):
        shutil.copyfile(f"{model}/{name}", f"{out}/{name}")
    with open(f"{out}/t3_turbo_v1.safetensors", "r+b") as f:
        n = int.from_bytes(f.read(8), "little")
        begin = json.loads(f.read(n))[tensor]["data_offsets"][0]
        f.seek(8 + n + begin + 4 * index)
        f.write(array.array("f", [value]).tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
