"""Sizes, the official modules at those sizes, the teacher's corpus on the GPU, and helpers that all trainings share."""
import importlib.util
import json
import os
import re
import sys
import time
import types

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils._python_dispatch

SIZES = dict(t3_dim=384, t3_layers=7, t3_positions=1024, text_vocab=512, enc_dim=256, enc_ff=704, enc_blocks=2,
             cfm_ch=192, cfm_heads=3, cfm_blocks=1, cfm_mid=2, hift_ch=256, tok_state=384, tok_layers=4)
if os.environ.get("VOICE_SIZES"):                      # e.g. {"t3_dim": 128, "t3_layers": 2} for a quick test
    SIZES.update(json.loads(os.environ["VOICE_SIZES"]))

V, START, STOP, SIL = 6561, 6561, 6562, 4299           # speech codes, start, stop, the official code of silence
PROMPT = 16                                            # tokens of the voice before the text that T3 sees: always as many
N_PHONES = 178                                         # the teacher's phoneme alphabet; 0 is a pause
SIL_DIGITS = torch.tensor([(SIL // 3 ** i) % 3 - 1 for i in range(8)]).float()


# ------------------------------------------------------------------ the official modules

def _import_networks_only():
    """Let `chatterbox.models...` be imported without the package's own start page, which wants much more."""
    if "chatterbox" not in sys.modules:
        m = types.ModuleType("chatterbox")
        m.__path__ = list(importlib.util.find_spec("chatterbox").submodule_search_locations)
        sys.modules["chatterbox"] = m
    if importlib.util.find_spec("omegaconf") is None and "omegaconf" not in sys.modules:
        o = types.ModuleType("omegaconf")
        o.DictConfig = lambda d: d
        sys.modules["omegaconf"] = o


_import_networks_only()


def build_t3(d=SIZES, dropout=0.1):
    from chatterbox.models.t3 import T3, llama_configs
    from chatterbox.models.t3.modules.t3_config import T3Config
    cfg = dict(llama_configs.GPT2_MEDIUM_CONFIG)
    cfg.update(n_embd=d["t3_dim"], hidden_size=d["t3_dim"], n_head=d["t3_dim"] // 64, n_layer=d["t3_layers"],
               vocab_size=d["text_vocab"], n_positions=d["t3_positions"], n_ctx=d["t3_positions"],
               bos_token_id=d["text_vocab"] - 1, eos_token_id=d["text_vocab"] - 1, attn_pdrop=dropout, embd_pdrop=dropout,
               resid_pdrop=dropout, activation_function="gelu_pytorch_tanh", attn_implementation="sdpa")
    llama_configs.LLAMA_CONFIGS["small"] = cfg
    hp = T3Config(text_tokens_dict_size=d["text_vocab"])
    hp.llama_config_name = "small"
    hp.speech_tokens_dict_size = V + 2
    hp.input_pos_emb = None
    hp.speech_cond_prompt_len = 375
    hp.use_perceiver_resampler = False
    hp.emotion_adv = False
    return T3(hp)


def build_flow(d=SIZES):
    from chatterbox.models.s3gen import s3gen as S
    from chatterbox.models.s3gen.transformer.upsample_encoder import PreLookaheadLayer, Upsample1D
    c = d["enc_dim"]
    enc = S.UpsampleConformerEncoder(
        output_size=c, attention_heads=c // 64, linear_units=d["enc_ff"], num_blocks=d["enc_blocks"], input_layer="linear",
        pos_enc_layer_type="rel_pos_espnet", selfattention_layer_type="rel_selfattn", input_size=c, use_cnn_module=False,
        macaron_style=False, dropout_rate=0.0, positional_dropout_rate=0.0, attention_dropout_rate=0.0)
    enc.pre_lookahead_layer = PreLookaheadLayer(channels=c, pre_lookahead_len=3)
    enc.up_layer = Upsample1D(channels=c, out_channels=c, stride=2)
    est = S.ConditionalDecoder(in_channels=320, out_channels=80, causal=True, channels=[d["cfm_ch"]], dropout=0.0,
                               attention_head_dim=64, n_blocks=d["cfm_blocks"], num_mid_blocks=d["cfm_mid"],
                               num_heads=d["cfm_heads"], act_fn="gelu", meanflow=True)
    dec = S.CausalConditionalCFM(spk_emb_dim=80, cfm_params=S.CFM_PARAMS, estimator=est)
    return S.CausalMaskedDiffWithXvec(input_size=c, encoder=enc, decoder=dec)


def build_hift(d=SIZES):
    from chatterbox.models.s3gen import s3gen as S
    return S.HiFTGenerator(
        sampling_rate=24000, base_channels=d["hift_ch"], upsample_rates=[8, 5, 3], upsample_kernel_sizes=[16, 11, 7],
        source_resblock_kernel_sizes=[7, 7, 11], source_resblock_dilation_sizes=[[1, 3, 5]] * 3,
        f0_predictor=S.ConvRNNF0Predictor(cond_channels=d["hift_ch"]))


def build_tokenizer(d=SIZES):
    from chatterbox.models.s3tokenizer import s3tokenizer as ST
    import s3tokenizer.model_v2 as mv2
    cfg = mv2.ModelConfig(n_audio_state=d["tok_state"], n_audio_head=d["tok_state"] // 64, n_audio_layer=d["tok_layers"])
    t = ST.S3Tokenizer("speech_tokenizer_v2_25hz", cfg)
    cfg.n_codebook_size = 3 ** 8
    t.config = cfg
    t.encoder = mv2.AudioEncoderV2(cfg.n_mels, cfg.n_audio_state, cfg.n_audio_head, cfg.n_audio_layer, 2, False)
    t.quantizer = mv2.FSQVectorQuantization(cfg.n_audio_state, cfg.n_codebook_size)
    return t


def build_s3gen(d=SIZES):
    from chatterbox.models.s3gen import s3gen as S
    m = S.S3Token2Wav(meanflow=True)
    m.flow, m.mel2wav, m.tokenizer = build_flow(d), build_hift(d), build_tokenizer(d)
    return m


def build_speaker_nets(seed=1):
    """The two speaker encoders. They are not trained: their weights are a fixed random draw."""
    from chatterbox.models.voice_encoder import VoiceEncoder
    from chatterbox.models.s3gen.xvector import CAMPPlus
    torch.manual_seed(seed)
    return VoiceEncoder().eval(), CAMPPlus(memory_efficient=False).eval()


def speaker_vectors(device="cpu"):
    """The one voice's two speaker vectors: fixed draws. T3 and the flow see them with noise and learn to ignore them."""
    g = torch.Generator().manual_seed(1)
    emb = F.normalize(torch.randn(1, 256, generator=g).abs(), dim=1)   # VoiceEncoder's are non-negative, of unit length
    return emb.to(device), torch.randn(1, 192, generator=g).to(device)


def count(m):
    return sum(p.numel() for p in m.parameters())


# ------------------------------------------------------------------ text

def punc_norm(text):
    """The official tidying of Turbo's text, for the characters that our sentences have."""
    text = " ".join(text.split())
    if not text:
        return text
    text = text[0].upper() + text[1:]
    for a, b in (("\u2026", ", "), (":", ","), ("\u2014", "-"), ("\u2013", "-"), (" ,", ","), ("\u201c", '"'), ("\u201d", '"'),
                 ("\u2018", "'"), ("\u2019", "'")):
        text = text.replace(a, b)
    text = text.rstrip(" ")
    return text if text.endswith((".", "!", "?", "-", ",")) else text + "."


PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_chars():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    m, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in m:
            m[b] = chr(256 + n)
            n += 1
    return m


class BPE:
    """GPT-2's byte-level BPE for plain ASCII text (the same ids as the transformers library gives)."""

    def __init__(self, folder):
        self.vocab = json.load(open(os.path.join(folder, "vocab.json")))
        lines = open(os.path.join(folder, "merges.txt")).read().split("\n")[1:]
        self.rank = {tuple(x.split()): i for i, x in enumerate(lines) if x}
        self.bytes, self.cache = byte_chars(), {}

    def piece(self, s):
        if s not in self.cache:
            w = [self.bytes[b] for b in s.encode()]
            while len(w) > 1:
                r, i = min((self.rank.get((w[i], w[i + 1]), 1 << 30), i) for i in range(len(w) - 1))
                if r == 1 << 30:
                    break
                a, b, out, k = w[i], w[i + 1], [], 0
                while k < len(w):
                    if k + 1 < len(w) and w[k] == a and w[k + 1] == b:
                        out.append(a + b)
                        k += 2
                    else:
                        out.append(w[k])
                        k += 1
                w = out
            self.cache[s] = [self.vocab[x] for x in w]
        return self.cache[s]

    def __call__(self, text):
        return [i for p in PIECES.findall(text) for i in self.piece(p)]


def read_tsv(path):
    return dict(line.rstrip("\n").split("\t")[:2] for line in open(path) if "\t" in line)


# ------------------------------------------------------------------ features

_cache = {}


def _mel_basis(device, n_mels, sr, n_fft, fmax):
    key = (str(device), n_mels, sr, n_fft, fmax)
    if key not in _cache:
        import librosa
        b = librosa.filters.mel(sr=sr, n_fft=n_fft, n_mels=n_mels, fmin=0, fmax=fmax)
        _cache[key] = torch.from_numpy(b).float().to(device), torch.hann_window(n_fft, device=device)
    return _cache[key]


def mel80(y):
    """The flow's mel (chatterbox.models.s3gen.utils.mel.mel_spectrogram without its range check): (B, 80, samples / 480)."""
    basis, win = _mel_basis(y.device, 80, 24000, 1920, 8000)
    y = F.pad(y[:, None], (720, 720), mode="reflect")[:, 0]
    s = torch.stft(y, 1920, 480, window=win, center=False, return_complex=True)
    s = torch.sqrt(torch.view_as_real(s).pow(2).sum(-1) + 1e-9)
    return torch.log((basis @ s).clamp(min=1e-5))


def log_mel_128(tok, wav):
    """S3Tokenizer.log_mel_spectrogram before its ceiling (which is taken for each utterance apart): log10."""
    st = torch.stft(wav, 400, 160, window=tok.window.to(wav.device), return_complex=True)
    return torch.clamp(tok._mel_filters.to(wav.device) @ st[..., :-1].abs() ** 2, min=1e-10).log10()


# ------------------------------------------------------------------ corpus

def part_paths(folder, parts):
    """Paths of finished parts; waits for those still being spoken."""
    for p in parts:
        base = os.path.join(folder, f"part{p:03d}")
        while not os.path.exists(base + ".npz"):
            time.sleep(0.3)
        yield base


class Corpus:
    """Utterances one after the other, in units of tokens (40 ms): 960 samples at 24 kHz, 2 mel frames, 4 log-mel frames.

    Utterances begin and end in silence, so features are computed over the joined sound of many."""

    def __init__(self, folder, parts, device, want=("mel",), seconds=150, quiet=False):
        import torchaudio
        t0 = time.time()
        tok = build_tokenizer().to(device) if "logmel" in want else None
        keep = {k: [] for k in ("mel", "mel2", "logmel", "wav", "phone", "f0")}
        self.device, self.ids, self.len, self.tail = device, [], [], []
        for base in part_paths(folder, parts):
            z = np.load(base + ".npz")
            pcm, ln = np.fromfile(base + ".pcm", np.int16), z["len"].astype(np.int64)
            twin = np.fromfile(base + ".twin.pcm", np.int16) if "mel2" in want else None
            off = np.concatenate([[0], np.cumsum(ln)])
            self.ids += z["ids"].tolist()
            self.len += ln.tolist()
            self.tail += z["tail"].tolist()
            if "phone" in want:
                keep["phone"].append(torch.from_numpy(z["phone"]).view(-1, 2))
            if "f0" in want:
                keep["f0"].append(torch.from_numpy(z["f0"].astype(np.float32)).view(-1, 2))
            if not {"wav", "mel", "mel2", "logmel"} & set(want):
                continue
            a = 0
            while a < len(ln):
                b = min(len(ln), int(np.searchsorted(off, off[a] + seconds * 25)) + 1)
                n = int(off[b] - off[a])
                w = torch.from_numpy(pcm[off[a] * 960:off[b] * 960]).to(device)
                if "wav" in want:
                    keep["wav"].append(w.view(n, 960))
                w = w.float()[None] / 32768
                if "mel" in want:
                    keep["mel"].append(mel80(w)[0].T.reshape(n, 160).half())
                if "mel2" in want:
                    x = torch.from_numpy(twin[off[a] * 960:off[b] * 960]).to(device).float()[None] / 32768
                    keep["mel2"].append(mel80(x)[0].T.reshape(n, 160).half())
                if "logmel" in want:
                    w16 = torchaudio.functional.resample(w, 24000, 16000)
                    x = log_mel_128(tok, w16)[0].T.reshape(n, 512)
                    utt = torch.repeat_interleave(torch.arange(b - a, device=device), torch.from_numpy(ln[a:b]).to(device))
                    top = torch.full((b - a,), -10.0, device=device).scatter_reduce(0, utt, x.amax(1), "amax")
                    keep["logmel"].append(((torch.maximum(x, top[utt][:, None] - 8) + 4) / 4).half())
                a = b
        for k, v in keep.items():
            if v:
                setattr(self, k, torch.cat(v).to(device))
        self.off = np.concatenate([[0], np.cumsum(self.len)])
        self.n = int(self.off[-1])
        if quiet:
            return
        print(f"corpus: {len(self.ids)} utterances, {self.n / 25 / 3600:.2f} h, read in {time.time() - t0:.1f} s", flush=True)

    @staticmethod
    def cut(x, starts, length):
        return x[starts[:, None] + torch.arange(length, device=starts.device)[None]]


# ------------------------------------------------------------------ training helpers

class Clock:
    """Learning rate by wall time: warm up, hold, then fall to a hundredth at the end. `until` is a time of day (time.time())."""

    def __init__(self, until, lr, warm=300, decay_from=0.5):
        self.t0, self.s, self.lr, self.warm, self.df = time.time(), max(5.0, until - time.time()), lr, warm, decay_from

    def frac(self):
        return (time.time() - self.t0) / self.s

    def rate(self, step):
        f = self.frac()
        k = 1.0 if f < self.df else max(0.01, (1 - f) / (1 - self.df))
        return self.lr * min(1.0, (step + 1) / self.warm) * k

    def over(self):
        return self.frac() >= 1


def to_half(sd):
    return {k: (v.half() if v.dtype == torch.float32 else v).cpu().contiguous() for k, v in sd.items()}


def to_float(sd):
    return {k: (v.float() if v.is_floating_point() else v) for k, v in sd.items()}


def load(path, device="cpu"):
    return to_float(torch.load(path, map_location=device))


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.3)
    return path


def save(path, obj):
    torch.save(obj, path + ".tmp")
    os.replace(path + ".tmp", path)


class EMA:
    def __init__(self, m, decay=0.999):
        self.d, self.p = decay, [p for p in m.parameters() if p.requires_grad]
        self.s = [p.detach().clone() for p in self.p]

    def update(self, step):
        d = min(self.d, (1 + step) / (10 + step))
        torch._foreach_mul_(self.s, d)
        torch._foreach_add_(self.s, [p.detach() for p in self.p], alpha=1 - d)

    def swap(self):
        for p, s in zip(self.p, self.s):
            t = p.data.clone()
            p.data.copy_(s)
            s.copy_(t)


def setup():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def amp(dev):
    """bf16 on the GPU. The cache of cast weights stays off: a weight first cast under no_grad would carry no gradient."""
    return torch.autocast(dev.type, torch.bfloat16, enabled=dev.type == "cuda", cache_enabled=False)


class Adam:
    """AdamW whose learning rate is a tensor, so that a captured step sees it change."""

    def __init__(self, groups, betas=(0.9, 0.98), wd=0.01, device="cpu", eps=1e-8):
        groups = groups if isinstance(groups, list) and isinstance(groups[0], dict) else [{"params": list(groups), "weight_decay": wd}]
        cuda = torch.device(device).type == "cuda"
        self.lr = torch.tensor(0.0, device=device)
        kw = dict(fused=True, capturable=True) if cuda else {}
        self.norm, self.left = torch.tensor(100.0, device=device), torch.tensor(0.0, device=device)      # the usual norm; steps left out
        self.o = torch.optim.AdamW(groups, lr=self.lr if cuda else 1e-3, betas=betas, weight_decay=wd, eps=eps, **kw)

    def rate(self, v):
        if self.lr.is_cuda:
            self.lr.fill_(v)
        for g in self.o.param_groups:
            if torch.is_tensor(g["lr"]):
                if g["lr"] is not self.lr:
                    g["lr"].fill_(v)
            else:
                g["lr"] = v

    def step(self, loss, params=None, clip=1.0, guard=0.0):
        self.o.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, clip) if clip else None
        if guard:                                          # a gradient so many times as long as usual changes nothing
            ok = (norm < guard * self.norm).float()
            self.left.add_(1 - ok)
            self.norm.mul_(0.99).add_(torch.where(ok > 0, norm, guard * self.norm), alpha=0.01)
            for p in params:
                if p.grad is not None:
                    p.grad.nan_to_num_(0.0, 0.0, 0.0).mul_(ok)
            if self.lr.is_cuda:
                self.lr.mul_(ok)
                for g in self.o.param_groups:
                    if g["lr"] is not self.lr:
                        g["lr"].mul_(ok)
            elif not _Capturable.on and not ok:
                self.rate(0.0)
        if not _Capturable.on:                             # the CPU's AdamW does read values
            self.o.step()


class _Capturable(torch.utils._python_dispatch.TorchDispatchMode):
    """Complains about what a CUDA graph cannot record: reading a value, or a shape that depends on one."""
    on = False
    BAD = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "equal.default")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(b in str(func) for b in self.BAD):
            import traceback
            raise RuntimeError(f"{func} cannot be recorded:\n" + "".join(traceback.format_stack(limit=12)))
        return func(*args, **(kwargs or {}))


def capture(fns, modules, opts, name):
    """Record each step function as a CUDA graph (about four times faster for small networks). Weights stay as they were.

    A step function takes no arguments, reads and writes only tensors that live outside, and never looks at a value.
    If recording fails, the program starts again without graphs."""
    if os.environ.get("VOICE_CHECK"):                      # rehearsal without a GPU: would these steps record?
        _Capturable.on = True
        with _Capturable():
            for k, f in fns.items():
                f()
        _Capturable.on = False
        print(f"{name}: {len(fns)} steps look at no value", flush=True)
    if not torch.cuda.is_available() or os.environ.get("VOICE_EAGER"):
        return dict(fns)
    t0 = time.time()
    kept = [{k: v.clone() for k, v in m.state_dict().items()} for m in modules]
    old = [{id(p): {k: v.clone() for k, v in s.items() if torch.is_tensor(v)} for p, s in o.o.state.items()} for o in opts]
    try:
        for o in opts:
            o.rate(0.0)
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for f in fns.values():
                for _ in range(3):
                    f()
        torch.cuda.current_stream().wait_stream(s)
        torch.cuda.synchronize()
        out, pool = {}, None
        for k, f in fns.items():
            for o in opts:
                o.o.zero_grad(set_to_none=True)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, pool=pool, capture_error_mode="thread_local"):
                f()
            pool = g.pool()
            out[k] = g.replay
            out[k, "kept"] = g, f                          # f holds tensors that the graph reads: it must live as long
        for o in opts:
            o.rate(1e-4)
        first = next(p for p in modules[0].parameters() if p.dim() > 1 and p.requires_grad)
        before = first.detach().clone()
        for k in fns:
            out[k]()
        torch.cuda.synchronize()
        moved = (first.detach() - before).abs().max().item()
        assert moved > 0, "captured steps do not train"
    except Exception as e:                                 # a failed capture leaves the process in a bad state: begin again
        print(f"{name}: no graphs ({repr(e)[:300]}), starting again without", flush=True)
        os.environ["VOICE_EAGER"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    with torch.no_grad():
        for m, k in zip(modules, kept):
            for n, v in m.state_dict().items():
                v.copy_(k[n])
        for o, was in zip(opts, old):
            for p, st in o.o.state.items():
                for n, v in st.items():
                    if torch.is_tensor(v):
                        v.copy_(was[id(p)][n]) if id(p) in was else v.zero_()
    print(f"{name}: {len(fns)} steps captured in {time.time() - t0:.1f} s, moved {moved:.1e}", flush=True)
    return out


def sync(dev, step, every=10):
    """Now and then wait for the device, so that the clock does not run ahead of it."""
    if dev.type == "cuda" and step % every == 0:
        torch.cuda.current_stream().synchronize()
