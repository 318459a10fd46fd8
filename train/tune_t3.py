"""Go on with a trained T3 on a CPU: few steps, small batches, a rate that falls to nothing at a given time.

  python tune_t3.py --data DIR --out OUT --start OUT/t3.pt --until TIME [--extra OUT2] [--share 0.4]

Rows are those of train_t3.py, from OUT/tokens-all.npz; --share of the batches come from OUT2/tokens-extra.npz, whose sentences
are in DIR/coverage.tsv (make_text.py --coverage). It is looked for again now and then. No dropout: nearly every row is seen once.
Writes OUT/t3-tuned.pt, the running mean of the weights, every few minutes.
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import common as C
import train_t3 as T


class Sums(T.Rows):
    """Rows in batches without fixed lengths: of some hundred rows, those of like length together."""

    def batches(self):
        while True:
            perm, rows, k = self.rng.permutation(self.train), [], 0
            while k < len(perm):
                n = 1 if self.rng.random() < 0.85 else int(self.rng.integers(2, 7))
                rows.append(self.row(perm[k:k + n]))
                k += n
                if len(rows) == 600 or k >= len(perm):
                    rows = sorted((r for r in rows if sum(map(len, r[:3])) < 900), key=lambda r: sum(map(len, r[:3])))
                    cuts, m = [], 0
                    for i, r in enumerate(rows):
                        if not cuts or (i + 1 - m) * (sum(map(len, r[:3])) + 1) > self.tokens:
                            cuts.append(m := i)
                    for i in self.rng.permutation(len(cuts)):
                        yield rows[cuts[i]:(cuts + [len(rows)])[i + 1]]
                    rows = []

    def arrays(self, rows, noise=0.0):
        L = max(sum(map(len, r[:3])) for r in rows) + 1
        ids, pos, tgt, _ = super().arrays(L, rows, noise)
        ok = tgt >= 0
        return [torch.from_numpy(x.astype(np.int64)) for x in (ids, pos[ok], tgt[ok])]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--start", required=True, nargs="+", help="one T3, or several whose mean is the start")
    ap.add_argument("--until", type=float, required=True)
    ap.add_argument("--extra")
    ap.add_argument("--share", type=float, default=0.4)
    ap.add_argument("--tokens", type=int, default=6000)
    ap.add_argument("--lr", type=float, default=1.2e-4)
    ap.add_argument("--noise", type=float, default=0.05)
    ap.add_argument("--bf16", action="store_true")
    ap.add_argument("--threads", type=int, default=2)
    a = ap.parse_args()
    a.hold, T.SHARE = 521, 1.0
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    m = C.build_t3(dropout=0.0)
    ws = [C.load(p) for p in a.start]
    m.load_state_dict({k: sum(w[k] for w in ws) / len(ws) for k in ws[0]})
    T.hold_key_biases(m)
    m.tfmr.wte.requires_grad_(False)
    m.text_head.requires_grad_(False)
    params = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.AdamW([{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
                             {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}], lr=a.lr, betas=(0.9, 0.98), fused=True)
    spk = C.speaker_vectors()[0]

    def loss_of(ids, pos, tgt, train=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16 and train):
            s = spk.expand(len(ids), -1)
            if train:
                s = s + 0.3 * torch.randn_like(s) * spk.std()
            e = F.embedding(ids, torch.cat([m.speech_emb.weight, m.text_emb.weight]))
            x = torch.cat([m.cond_enc.spkr_enc(s)[:, None].to(e.dtype), e], 1)
            h = T.forward(m, x, 0.0)[:, 1:]
            lg = m.speech_head(h.reshape(-1, m.dim).index_select(0, pos)).float()
        lse = torch.logsumexp(lg, -1)
        ce = lse - lg.gather(1, tgt[:, None])[:, 0]
        return (ce.mean() + 0.002 * (lse ** 2).mean(), ce.mean()) if train else (ce.sum().item(), (lg.argmax(-1) == tgt).sum().item(), len(tgt))

    def read(folder, name, text):
        a.out = folder
        return Sums(a, text, name)

    out, text = a.out, T.Texts(a.data)
    sets = {"all": read(out, "tokens-all.npz", text)}
    print(f"{sets['all'].n} rows", flush=True)
    stamp, extra = 0, a.extra and os.path.join(a.extra, "tokens-extra.npz")
    more = os.path.join(a.data, "coverage.tsv")
    if extra:
        bpe = C.BPE(a.data)
        for i, t in C.read_tsv(more).items():
            t = C.punc_norm(t)
            text[int(i)] = np.array(bpe(t), np.int16), np.array(bpe(" " + t), np.int16)
    val = {}

    def look():
        nonlocal stamp
        if extra and os.path.exists(extra) and os.path.getmtime(extra) > stamp:
            stamp = os.path.getmtime(extra)
            sets["extra"] = read(a.extra, "tokens-extra.npz", text)
            print(f"{sets['extra'].n} extra rows", flush=True)
            feeds["extra"] = sets["extra"].batches()
        for k, s in sets.items():
            if k not in val or k == "extra":
                rs, s.rng = [s.row([i]) for i in s.hold[:320]], np.random.default_rng(5)
                rs.sort(key=lambda r: sum(map(len, r[:3])))
                val[k] = [s.arrays(rs[i:i + 16]) for i in range(0, len(rs), 16)]

    feeds = {"all": sets["all"].batches()}
    look()
    ema = C.EMA(m, 0.99)

    def validate():
        m.eval()
        ema.swap()
        with torch.no_grad():
            for k, v in val.items():
                ce, hit, n = map(sum, zip(*[loss_of(*b, train=False) for b in v]))
                print(f"  {k}: held-out ce {ce / n:.4f} acc {hit / n:.4f}", flush=True)
        C.save(os.path.join(out, "t3-tuned.pt"), C.to_half(m.state_dict()))
        ema.swap()
        m.train()

    clock, step, seen, rng, said, spent, ce = C.Clock(a.until, a.lr, warm=60, decay_from=0.02), 0, 0, np.random.default_rng(1), time.time(), 0.0, {}
    while not clock.over():
        k = "extra" if "extra" in feeds and rng.random() < a.share else "all"
        b = sets[k].arrays(next(feeds[k]), a.noise)
        t = time.time()
        opt.param_groups[0]["lr"] = opt.param_groups[1]["lr"] = clock.rate(step)
        opt.zero_grad()
        loss, c = loss_of(*b)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        ema.update(step)
        ce[k] = 0.97 * ce.get(k, c.item()) + 0.03 * c.item()
        seen, step, spent = seen + b[0].numel(), step + 1, spent + time.time() - t
        if step % 20 == 0:
            print(f"{step} {clock.frac():.3f} lr {clock.rate(step):.1e} {seen / spent:.0f}/s", {k: round(v, 3) for k, v in ce.items()}, f"norm {norm:.2f}", flush=True)
        if step % 20 == 0 and time.time() - said > 360:
            look()
            validate()
            said = time.time()
    validate()
    print(f"end: {step} steps, {seen} positions", flush=True)


if __name__ == "__main__":
    main()
