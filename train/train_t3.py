"""Train T3 (text -> speech tokens) as a next-token model.

  python train_t3.py --data DIR --out DIR2 --until TIME

A row is [speaker][prompt tokens][text][start][speech ... stop], as T3.prepare_input_embeds lays it out for the GPT-2
backbone; only speech positions have a loss. The prompt is a cut of 16 tokens of another utterance: the one voice needs none to be
known by, and with a fixed length the text always begins at the same position. A fifth of the rows joins two to eight
sentences. Silence after the last word is cut to three tokens, so that a sentence ends soon and always alike.
It begins with tokens.npz and goes over to tokens-all.npz when that is there.
Two helps that are thrown away afterwards: heads that name the phoneme now and some tokens ahead (they teach where in the
text the voice is), and a pull of the logits' logsumexp to zero, so that a repetition penalty (which scales logits) bends
a confident choice little.
"""
import argparse
import multiprocessing as mp
import os
import queue
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
LENGTHS = (64, 80, 96, 112, 128, 160, 192, 240, 320, 448, 640, 960)


def forward(m, x, p):
    """GPT-2 as transformers runs it for inputs_embeds without a mask (checked against it), without its bookkeeping."""
    t = m.tfmr
    x = F.dropout(x + t.wpe.weight[:x.shape[1]], p, t.training)
    for b in t.h:
        y = b.ln_1(x)
        q, k, v = torch.addmm(b.attn.c_attn.bias, y.flatten(0, 1), b.attn.c_attn.weight).view(*y.shape[:2], 3, -1, 64).permute(2, 0, 3, 1, 4)
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


def read_text(a):
    """The tokens of every sentence, at the beginning of a row and after another sentence."""
    bpe, norm = C.BPE(a.data), {int(i): C.punc_norm(t) for i, t in C.read_tsv(os.path.join(a.data, "text.tsv")).items()}
    return {i: (np.array(bpe(t), np.int16), np.array(bpe(" " + t), np.int16)) for i, t in norm.items()}


class Rows:
    def __init__(self, a, text, name):
        z = dict(np.load(os.path.join(a.out, name)))
        ids = z["ids"].tolist()
        self.tok, self.phone = z["tok"].astype(np.int32), z["phone"][:, 1].astype(np.int16)
        self.len, self.tail = z["len"], z["tail"]
        self.off = np.concatenate([[0], np.cumsum(self.len)])
        self.text = [text[i][0] for i in ids]
        self.spaced = [text[i][1] for i in ids]
        self.n = len(ids)
        self.rng = np.random.default_rng(3)
        self.hold = [i for i in range(self.n) if ids[i] % a.hold == 0]        # rows kept for the validation loss
        self.train = np.array([i for i in range(self.n) if ids[i] % a.hold])
        self.tokens = a.tokens

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
        r, wait = self.rng, {L: [] for L in LENGTHS}
        while True:
            perm, k = r.permutation(self.train), 0
            while k < len(perm):
                u = r.random()
                n = 1 if u < 0.8 else int(r.integers(2, 6)) if u < 0.98 else int(r.integers(6, 9))
                row = self.row(perm[k:k + n])
                k += n
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
    ap.add_argument("--feeders", type=int, default=6)
    ap.add_argument("--decay-from", type=float, default=0.1)
    ap.add_argument("--noise", type=float, default=0.07, help="share of speech inputs that are wrong")
    ap.add_argument("--hold", type=int, default=521)
    a = ap.parse_args()
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
    text = read_text(a)
    print("t3 has read the text", flush=True)
    while not os.path.exists(os.path.join(a.out, "tokens.npz")):
        time.sleep(0.5)
    rows = Rows(a, text, "tokens.npz")
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

    stat, buf = torch.zeros(4, device=dev), {}
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
            h = forward(m, x, a.dropout)[:, 1:]
            hs = h.reshape(-1, m.dim).index_select(0, pos)
            lg = m.speech_head(hs).float()
            ah = heads(hs).float().view(-1, C.N_PHONES) if train else None
        ok = (tgt >= 0).float()
        n = ok.sum().clamp(min=1)
        lse = torch.logsumexp(lg, -1)
        ce = ((lse - lg.gather(1, tgt.clamp(min=0)[:, None])[:, 0]) * ok).sum() / n
        if not train:
            return ce, ((lg.argmax(-1) == tgt).float() * ok).sum() / n, (lse.abs() * ok).sum() / n
        return ce, F.cross_entropy(ah, aux.flatten(), ignore_index=-100), ((lse ** 2) * ok).sum() / n

    def step_of(L):
        def f():
            ce, la, z2 = loss_of(*buf[L])
            opt.step(ce + 0.3 * la + 0.002 * z2, params)
            with torch.no_grad():
                stat.mul_(0.98).add_(torch.stack([ce.detach(), la.detach(), z2.detach(), torch.ones_like(ce)]), alpha=0.02)
        return f

    def fill(L, arr):
        for t, x in zip(buf[L], arr):
            t.copy_(x, non_blocking=True)

    for L in LENGTHS:                                      # something sensible to record the steps with
        short = [i for i in rows.train[:4000] if C.PROMPT + len(rows.text[i]) + rows.len[i] < L] or rows.train
        fill(L, [torch.from_numpy(x) for x in rows.arrays(L, [rows.row([short[k % len(short)]]) for k in range(a.tokens // L)])])
    run = C.capture({L: step_of(L) for L in LENGTHS}, [m, heads], [opt], "t3")
    feeding = feeders(rows, 1000 * step)
    val = []
    for lo, L in zip(LENGTHS[1:7], LENGTHS[2:8]):
        rs = [r for r in (rows.row([i]) for i in rows.hold) if lo <= sum(map(len, r[:3])) < L][:128]
        if not rs:
            continue
        val.append([torch.from_numpy(x).to(dev) for x in rows.arrays(L, rs)])
    clock, seen, saved = C.Clock(a.until, a.lr, warm=400, decay_from=a.decay_from), 0, time.time()
    ema, best, ce = C.EMA(m, 0.999), [float("inf")], float("inf")

    def validate():
        m.eval()
        ema.swap()
        with torch.no_grad():
            r = [loss_of(*b, train=False) for b in val]
        ema.swap()
        m.train()
        ce, acc, z = [torch.stack(list(x)).mean().item() for x in zip(*r)]
        v = (stat / stat[3].clamp(min=1e-6)).tolist()
        print(f"t3 {step} {clock.frac() * clock.s:.0f}s epoch {seen / rows.n:.1f} train ce {v[0]:.3f} phones {v[1]:.3f} z {v[2]:.3f} | "
              f"held-out ce {ce:.3f} acc {acc:.3f} |lse| {z:.2f} lr {clock.rate(step - first):.2e} queue {ready.qsize()}", flush=True)
        best[0] = min(best[0], ce)
        return ce

    def put(ce):
        if ce > best[0] + 0.03:                            # it has begun to break: what was saved before is better
            print(f"t3 {step}: not saved, the held-out loss was {best[0]:.3f} before", flush=True)
            return
        ema.swap()
        C.save(path, C.to_half(m.state_dict()))
        ema.swap()

    first, more, held = step, os.path.join(a.out, "tokens-all.npz"), []
    while not clock.over():
        if more and step % 200 == 0 and os.path.exists(more):
            for p in feeding:                              # and their queue, which may now hold half a batch, with the thread that reads it
                p.kill()
            rows = Rows(a, text, "tokens-all.npz")
            feeding, more = feeders(rows, 1000 * step + 500), None
            print(f"t3 {step}: all {rows.n} rows from now on", flush=True)
        L, arr = ready.get()
        fill(L, arr)
        held = [*held[-8:], arr]                           # until the device has fetched it
        opt.rate(clock.rate(step - first))
        run[L]()
        ema.update(step - first)
        seen += a.tokens // L
        step += 1
        C.sync(dev, step, 4)
        if step % 1000 == 0 or step == first + 20:
            ce = validate()
        if time.time() - saved > 60 and ce < float("inf"):
            saved = time.time()
            put(ce)
    put(validate())
    C.save(full, dict(m=m.state_dict(), h=heads.state_dict(), step=step))
    open(os.path.join(a.out, "t3.final"), "w").write("1")
    print(f"t3 end: steps {step}", flush=True)
    for p in feeding:
        p.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
