"""Train T3 (text -> speech tokens) as a next-token model.

  python train_t3.py --data DIR --out DIR2 --until TIME

A row is [speaker][prompt tokens][text][start][speech ... stop], as T3.prepare_input_embeds lays it out for the GPT-2
backbone; only speech positions have a loss. The prompt is a cut of 16 tokens of another utterance: the one voice needs none to be
known by, and with a fixed length the text always begins at the same position. A fifth of the rows joins two to eight
sentences. Silence after the last word is cut to three tokens, so that a sentence ends soon and always alike.
The sentences are those of the token files in DIR2/tok, whichever are there: the processes that make the batches look again every
20 seconds, so that new ones come in without a stop. Sentences that text.tsv does not have are the new ones (more.tsv): all of them come as
often, from when they are there, and those of text.tsv at most as often (--old-share).
Against breaking: the scores of attention are bounded, a step whose gradient is four times as long as usual is left out, and when
the held-out loss rises by 0.03 the last good weights come back, with half the rate.
Two helps that are thrown away afterwards: heads that name the phoneme now and some tokens ahead (they teach where in the
text the voice is), and a pull of the logits' logsumexp to zero, so that a repetition penalty (which scales logits) bends
a confident choice little.
"""
import argparse
import glob
import multiprocessing as mp
import os
import queue
import shutil
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import common as C

AHEAD = (0, 2, 4, 7, 11)
END, BETWEEN = 3, 7                    # silent tokens kept after the last sentence of a row, and between sentences
SHARE = 0.75                           # of the positions of a batch that can have a loss
PEAK = 300.0                           # bound on a head's attention scores: the last layer had grown to 10,000, which bf16 cannot tell apart
LENGTHS = (64, 80, 96, 112, 128, 160, 192, 240, 320, 448, 640, 960)


def forward(m, x, p, peaks=None):
    """GPT-2 as transformers runs it for inputs_embeds without a mask (checked against it), without its bookkeeping.

    The list `peaks` gets for each layer what no score of a head exceeds."""
    t = m.tfmr
    x = F.dropout(x + t.wpe.weight[:x.shape[1]], p, t.training)
    for b in t.h:
        y = b.ln_1(x)
        q, k, v = torch.addmm(b.attn.c_attn.bias, y.flatten(0, 1), b.attn.c_attn.weight).view(*y.shape[:2], 3, -1, 64).permute(2, 0, 3, 1, 4)
        if peaks is not None:
            peaks.append(torch.mul(*(torch.linalg.vector_norm(t.detach(), dim=-1, dtype=torch.float32).amax((0, 2)) for t in (q, k))) / 8)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p if t.training else 0.0)
        y = y.transpose(1, 2).flatten(2)
        y = torch.addmm(b.attn.c_proj.bias, y.flatten(0, 1), b.attn.c_proj.weight).view(x.shape)
        x = x + F.dropout(y, p, t.training)
        y = b.ln_2(x)
        y = F.gelu(torch.addmm(b.mlp.c_fc.bias, y.flatten(0, 1), b.mlp.c_fc.weight), approximate="tanh")
        y = torch.addmm(b.mlp.c_proj.bias, y, b.mlp.c_proj.weight).view(x.shape)
        x = x + F.dropout(y, p, t.training)
    return t.ln_f(x)


def hold_key_biases(m):
    """The key biases to 0, and kept there. A bias of the keys adds the same to all scores of a query, which the soft-max takes
    out: its gradient is nothing but rounding, and Adam makes full steps of it (they had walked to 11)."""
    D = m.dim
    for b in m.tfmr.h:
        with torch.no_grad():
            b.attn.c_attn.bias[D:2 * D] = 0
        b.attn.c_attn.bias.register_hook(lambda g: torch.cat([g[:D], torch.zeros_like(g[D:2 * D]), g[2 * D:]]))


@torch.no_grad()
def bound_scores(m, peaks):
    """Shorter queries for heads whose scores may exceed the bound: they had grown without end and made T3 break."""
    for b, s in zip(m.tfmr.h, peaks):
        f = (PEAK / s).clamp(max=1).repeat_interleave(64)
        b.attn.c_attn.weight[:, :m.dim].mul_(f)
        b.attn.c_attn.bias[:m.dim].mul_(f)


class Texts(dict):
    """The tokens of every sentence, at the beginning of a row and after another sentence; made when they are asked for."""

    def __init__(self, folder):
        self.bpe, self.raw = C.BPE(folder), {}
        for name in ("text.tsv", "more.tsv"):
            if os.path.exists(os.path.join(folder, name)):
                self.raw.update(C.read_tsv(os.path.join(folder, name)))

    def __missing__(self, i):
        t = C.punc_norm(self.raw[str(i)])
        self[i] = np.array(self.bpe(t), np.int16), np.array(self.bpe(" " + t), np.int16)
        return self[i]


class Rows:
    """Sentences with their tokens: of the files that are named, or of all in OUT/tok, where look() finds those that have come since."""

    def __init__(self, a, text, *names):
        self.a, self.texts, self.tokens = a, text, a.tokens
        self.files, self.rng, self.looked = set(), np.random.default_rng(3), 0.0
        self.tok, self.phone, self.off = np.zeros(0, np.int16), np.zeros(0, np.int16), np.zeros(1, np.int64)
        self.len, self.tail = np.zeros(0, np.int32), np.zeros(0, np.int16)
        self.ids, self.text, self.spaced, self.hold, self.n = [], [], [], [], 0
        self.train, self.old = np.zeros(0, np.int64), np.zeros(0, bool)        # rows to train on; which of them are of text.tsv
        if names:
            self.add([os.path.join(a.out, n) for n in names])

    def look(self):
        """The rows that have come, to train on."""
        self.looked, n = time.time(), len(self.train)
        new = sorted(set(f for f in glob.glob(os.path.join(self.a.out, "tok", "*.npz")) if ".tmp." not in f) - self.files)
        if new:
            self.add(new)
        return self.train[n:]

    def add(self, files):
        zs = [dict(np.load(f)) for f in files]
        train, old, n = [self.train], [self.old], self.n
        for f, z in zip(files, zs):
            ids = z["ids"].tolist()
            self.ids += ids
            for i in ids:
                x, y = self.texts[i]
                self.text.append(x)
                self.spaced.append(y)
            held = np.array([i % self.a.hold == 0 for i in ids]) | (os.path.basename(f) == getattr(self.a, "hold_part", ""))
            self.hold += (n + np.flatnonzero(held)).tolist()     # rows kept for the validation loss
            train.append(n + np.flatnonzero(~held))
            old.append(z["ids"][~held] < getattr(self.a, "new_from", 0))
            n += len(ids)
        self.files.update(files)
        self.n, self.train, self.old = n, np.concatenate(train), np.concatenate(old)
        self.tok = np.concatenate([self.tok, *[z["tok"].astype(np.int16) for z in zs]])
        self.phone = np.concatenate([self.phone, *[z["phone"][:, 1].astype(np.int16) if "phone" in z else np.full(len(z["tok"]), -100, np.int16) for z in zs]])
        self.len, self.tail = np.concatenate([self.len, *[z["len"] for z in zs]]), np.concatenate([self.tail, *[z["tail"] for z in zs]])
        self.off = np.concatenate([[0], np.cumsum(self.len, dtype=np.int64)])

    def speech(self, i, rest):
        n = self.len[i] - max(0, int(self.tail[i]) - rest)
        return slice(self.off[i], self.off[i] + n)

    def row(self, group):
        r, prompt = self.rng, C.PROMPT
        o = int(r.integers(0, len(self.tok) - prompt))
        text = np.concatenate([self.spaced[i] if k else self.text[i] for k, i in enumerate(group)])
        cuts = [self.speech(i, END if k == len(group) - 1 else BETWEEN) for k, i in enumerate(group)]
        return (self.tok[o:o + prompt], text, np.concatenate([self.tok[c] for c in cuts]), np.concatenate([self.phone[c] for c in cuts]))

    def batches(self):
        """For ever: rows put into the smallest length that holds them; a batch leaves when it is full."""
        r, wait, todo, k = self.rng, {L: [] for L in LENGTHS}, np.zeros(0, np.int64), 0
        while True:
            if time.time() - self.looked > 20:
                todo, k = r.permutation(np.concatenate([todo[k:], self.look()])), 0
            if k == len(todo):                             # a pass: all new rows, and a share of the old ones
                old = self.train[self.old]
                todo, k = r.permutation(np.concatenate([self.train[~self.old], r.permutation(old)[:int(np.ceil(len(old) * self.a.old_share))]])), 0
            u = r.random()
            n = 1 if u < 0.8 else int(r.integers(2, 6)) if u < 0.98 else int(r.integers(6, 9))
            row = self.row(todo[k:k + n])
            k = min(k + n, len(todo))
            size = len(row[0]) + len(row[1]) + len(row[2]) + 1
            L = next((L for L in LENGTHS if size <= L), None)
            if L is None:
                continue
            wait[L].append(row)
            if len(wait[L]) == self.tokens // L:
                yield L, wait[L]
                wait[L] = []

    def arrays(self, L, rows, noise=0.0):
        r, B = self.rng, len(rows)
        base = C.V + 2                                     # text ids come after the speech ids in the joint table
        ids = r.integers(0, C.V, (B, L)).astype(np.int16)  # what stands behind a row's end is seen by nothing
        free = []
        pos, tgt, aux = [], [], []
        for b, (p, x, s, ph) in enumerate(rows):
            n, m = len(p) + len(x), len(s)
            ids[b, :len(p)] = p
            ids[b, len(p):n] = x + base
            ids[b, n] = C.START
            inp = s.copy()
            if noise > 0:
                hit = r.random(m) < noise
                inp[hit] = np.where(r.random(hit.sum()) < 0.5, r.integers(0, C.V, hit.sum()), self.tok[r.integers(0, len(self.tok), hit.sum())])
            ids[b, n + 1:n + 1 + min(m, L - n - 1)] = inp[:L - n - 1]
            q = min(m + 1, L - n)
            free.append(b * L + np.arange(C.PROMPT))
            pos.append(b * L + n + np.arange(q))
            tgt.append(np.append(s, C.STOP)[:q])
            au = np.full((q, len(AHEAD)), -100, np.int16)
            for k, d in enumerate(AHEAD):
                e = min(q, m - d)
                if e > 0:
                    au[:e, k] = ph[d:d + e]
            aux.append(au)
        pos, tgt, aux = np.concatenate(pos), np.concatenate(tgt), np.concatenate(aux)
        K = int(SHARE * B * L)                             # a fixed number of positions with a loss
        if len(pos) > K:
            keep = r.permutation(len(pos))[:K]
            pos, tgt, aux = pos[keep], tgt[keep], aux[keep]
        pad = K - len(pos)                                 # the rest point to prompts, each to another: a gradient that is summed
        pos = np.concatenate([pos, np.resize(np.concatenate(free), pad)])           # into one place by thousands takes its time
        return (ids, pos.astype(np.int32), np.pad(tgt, (0, pad), constant_values=-100).astype(np.int16),
                np.pad(aux, ((0, pad), (0, 0)), constant_values=-100).astype(np.int16))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--until", type=float, required=True, help="time of day at which to end (time.time())")
    ap.add_argument("--tokens", type=int, default=40000, help="positions a batch")
    ap.add_argument("--lr", type=float, default=8e-4)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--feeders", type=int, default=2, help="processes that make batches, 120 a second each")
    ap.add_argument("--decay-from", type=float, default=0.1)
    ap.add_argument("--noise", type=float, default=0.07, help="share of speech inputs that are wrong")
    ap.add_argument("--hold", type=int, default=521, help="every so manieth sentence is held out")
    ap.add_argument("--hold-part", default="", help="a file of tok/ that is held out whole, and judged apart: part000.npz")
    ap.add_argument("--start-rows", type=int, default=20000, help="sentences to begin with")
    ap.add_argument("--old-share", type=float, default=1.0, help="of the sentences of text.tsv in a pass")
    ap.add_argument("--warm", type=int, default=400, help="steps in which the rate rises")
    ap.add_argument("--settle", type=int, default=3000, help="steps in which the loss may rise: a high rate does that to weights that were annealed")
    ap.add_argument("--every", type=int, default=1000, help="steps between two looks at the held-out loss")
    ap.add_argument("--save", type=float, default=120, help="seconds between two saves")
    a = ap.parse_args()
    with open(os.path.join(a.data, "text.tsv")) as f:
        a.new_from = sum(1 for _ in f)
    dev = C.setup()
    torch.manual_seed(0)
    m = C.build_t3(dropout=a.dropout).to(dev).train()
    m.tfmr.wte.requires_grad_(False)
    m.text_head.requires_grad_(False)
    heads = nn.Linear(m.dim, len(AHEAD) * C.N_PHONES).to(dev)
    for e in (m.text_emb, m.speech_emb, m.tfmr.wpe):       # the default draw of an embedding would drown the positions
        nn.init.normal_(e.weight, std=0.05)
    path, full = os.path.join(a.out, "t3.pt"), os.path.join(a.out, "t3-resume.pt")
    params = [p for p in list(m.parameters()) + list(heads.parameters()) if p.requires_grad]
    opt = C.Adam([{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}], device=dev)
    step = 0
    if os.path.exists(full):
        s = torch.load(full, map_location=dev)
        m.load_state_dict(s["m"]); heads.load_state_dict(s["h"])
        step = s["step"]
        print("t3 goes on from step", step, flush=True)
    elif os.path.exists(path):
        m.load_state_dict(C.load(path, dev))
        print("t3 goes on from", path, flush=True)
    hold_key_biases(m)
    spk = C.speaker_vectors(dev)[0]
    rows = Rows(a, Texts(a.data))
    while rows.n < a.start_rows:
        time.sleep(0.5)
        rows.look()
    print(f"t3 {C.count(m) / 1e6:.1f} M parameters, {rows.n} rows, {len(rows.hold)} of them held out", flush=True)

    ready = queue.Queue(6)                                 # batches in memory that the device can fetch by itself

    def feed(rows, q, seed):
        rows.rng = np.random.default_rng(seed)
        for L, b in rows.batches():
            q.put((L, rows.arrays(L, b, noise=a.noise)))

    def pin(q):
        while True:
            L, arr = q.get()
            arr = [torch.from_numpy(x) for x in arr]
            ready.put((L, [x.pin_memory() for x in arr] if dev.type == "cuda" else arr))

    def feeders(rows, seed):
        q = mp.get_context("fork").Queue(24)
        ps = [mp.get_context("fork").Process(target=feed, args=(rows, q, seed + k), daemon=True) for k in range(a.feeders)]
        for p in ps:
            p.start()
        threading.Thread(target=pin, args=(q,), daemon=True).start()
        return ps

    stat, buf = torch.zeros(5, device=dev), {}
    for L in LENGTHS:
        B = a.tokens // L
        K = int(SHARE * B * L)
        buf[L] = [torch.zeros(B, L, dtype=torch.int16, device=dev), torch.zeros(K, dtype=torch.int32, device=dev),
                  torch.full((K,), -100, dtype=torch.int16, device=dev), torch.full((K, len(AHEAD)), -100, dtype=torch.int16, device=dev)]

    def loss_of(ids, pos, tgt, aux, train=True):
        ids, pos, tgt, aux = (x.long() for x in (ids, pos, tgt, aux))
        with C.amp(dev):
            e = F.embedding(ids, torch.cat([m.speech_emb.weight, m.text_emb.weight]))
            s = spk.expand(len(ids), -1)
            if train:
                s = s + 0.3 * torch.randn_like(s) * s.std()
            x = torch.cat([m.cond_enc.spkr_enc(s)[:, None].to(e.dtype), e], 1)
            peaks = [] if train else None
            h = forward(m, x, a.dropout, peaks)[:, 1:]
            hs = h.reshape(-1, m.dim).index_select(0, pos)
            lg = m.speech_head(hs).float()
            ah = heads(hs).float().view(-1, C.N_PHONES) if train else None
        ok = (tgt >= 0).float()
        n = ok.sum().clamp(min=1)
        lse = torch.logsumexp(lg, -1)
        ce = ((lse - lg.gather(1, tgt.clamp(min=0)[:, None])[:, 0]) * ok).sum() / n
        if not train:
            return ce, ((lg.argmax(-1) == tgt).float() * ok).sum() / n, (lse.abs() * ok).sum() / n
        au = aux.flatten()                                 # old rows may come without phonemes: the mean of none is not 0
        la = F.cross_entropy(ah, au, ignore_index=-100, reduction="sum") / (au >= 0).float().sum().clamp(min=1)
        return ce, la, ((lse ** 2) * ok).sum() / n, peaks

    def step_of(L):
        def f():
            ce, la, z2, peaks = loss_of(*buf[L])
            opt.step(ce + 0.3 * la + 0.002 * z2, params, guard=4.0)
            bound_scores(m, peaks)
            with torch.no_grad():
                top = torch.stack([p.max() for p in peaks]).max()
                stat.mul_(0.98).add_(torch.stack([ce.detach(), la.detach(), z2.detach(), top, torch.ones_like(ce)]), alpha=0.02)
        return f

    def fill(L, arr):
        for t, x in zip(buf[L], arr):
            t.copy_(x, non_blocking=True)

    for L in LENGTHS:                                      # something sensible to record the steps with
        short = [i for i in rows.train[:4000] if C.PROMPT + len(rows.text[i]) + rows.len[i] < L] or rows.train
        fill(L, [torch.from_numpy(x) for x in rows.arrays(L, [rows.row([short[k % len(short)]]) for k in range(a.tokens // L)])])
    run = C.capture({L: step_of(L) for L in LENGTHS}, [m, heads], [opt], "t3")
    feeding = feeders(rows, 1000 * step)

    def held(rows):
        out = []
        for lo, L in zip(LENGTHS[1:7], LENGTHS[2:8]):
            rs = [r for r in (rows.row([i]) for i in rows.hold) if lo <= sum(map(len, r[:3])) < L][:128]
            if rs:
                out.append([torch.from_numpy(x).to(dev) for x in rows.arrays(L, rs)])
        return out

    val, part = {}, os.path.join("tok", a.hold_part)
    clock, seen, saved, numbered = C.Clock(a.until, a.lr, warm=a.warm, decay_from=a.decay_from), 0, time.time(), len(glob.glob(os.path.join(a.out, "t3-[0-9]*.pt")))
    ema, best, ce, kept, less = C.EMA(m, 0.999), float("inf"), float("inf"), None, 1.0

    def tensors():
        return [*m.state_dict().values(), *heads.state_dict().values(), *ema.s, *(v for s in opt.o.state.values() for v in s.values() if torch.is_tensor(v))]

    def validate():
        """Held-out loss, old and new sentences apart; good weights are kept, bad ones replaced by those."""
        nonlocal best, kept, less
        if "old" not in val:
            rows.look()
            rows.hold = [i for i in rows.hold if rows.ids[i] < a.new_from]
        for k, there, rs in (("old", rows.hold, lambda: rows), ("new", a.hold_part and os.path.exists(os.path.join(a.out, part)), lambda: Rows(a, rows.texts, part))):
            if k not in val and there:
                val[k], best = held(rs()), float("inf")
        m.eval()
        ema.swap()
        with torch.no_grad():
            r = {k: [torch.stack(list(x)).mean().item() for x in zip(*[loss_of(*b, train=False) for b in v])] for k, v in val.items() if v}
        ema.swap()
        m.train()
        ce = sum(x[0] for x in r.values()) / max(1, len(r))
        v = (stat / stat[4].clamp(min=1e-6)).tolist()
        said = ", ".join(f"{k} ce {x[0]:.3f} acc {x[1]:.3f}" for k, x in r.items())
        print(f"t3 {step} {clock.frac() * clock.s:.0f}s rows seen {seen} train ce {v[0]:.3f} phones {v[1]:.3f} z {v[2]:.3f} scores {v[3]:.0f} | held-out {said} | "
              f"lr {clock.rate(step - first) * less:.2e} norm {opt.norm.item():.2f} left out {opt.left.item():.0f} queue {ready.qsize()}", flush=True)
        with torch.no_grad():
            if ce < best or step - first < a.settle:
                best, kept = ce, [t.clone() for t in tensors()]
            elif not ce < best + 0.03 and kept:            # it has begun to break
                for t, k in zip(tensors(), kept):
                    t.copy_(k)
                less *= 0.5
                print(f"t3 {step}: back to the weights of {best:.3f}, at half the rate", flush=True)
        return ce

    def put():
        """The running mean of the weights, by number and as t3.pt."""
        nonlocal numbered
        if not ce < best + 0.01:
            return
        numbered += 1
        ema.swap()
        C.save(os.path.join(a.out, f"t3-{numbered:02d}.pt"), C.to_half(m.state_dict()))
        ema.swap()
        shutil.copy(os.path.join(a.out, f"t3-{numbered:02d}.pt"), path + ".tmp")
        os.replace(path + ".tmp", path)
        print(f"t3 {step}: saved as {numbered}, held out {ce:.3f}", flush=True)

    first, busy = step, []
    while not clock.over():
        L, arr = ready.get()
        fill(L, arr)
        busy = [*busy[-8:], arr]                           # until the device has fetched it
        opt.rate(clock.rate(step - first) * less)
        run[L]()
        ema.update(step - first)
        seen += a.tokens // L
        step += 1
        C.sync(dev, step, 4)
        if step % a.every == 0 or step == first + 20:
            ce = validate()
        if time.time() - saved > a.save and ce < float("inf"):
            saved = time.time()
            put()
    ce = validate()
    put()
    C.save(full, dict(m=m.state_dict(), h=heads.state_dict(), step=step))
    open(os.path.join(a.out, "t3.final"), "w").write("1")
    print(f"t3 end: steps {step}", flush=True)
    for p in feeding:
        p.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
