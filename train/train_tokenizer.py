"""Train the S3 tokenizer (25 tokens a second, 3^8 codes) and turn the whole corpus into tokens.

  python train_tokenizer.py --data DIR --out DIR2 --train-parts 20 --all-parts 128 --seconds 120

The official encoder and quantiser are trained with a small decoder that is thrown away: from the eight rounded values
of each token it must tell the mel frames, the phoneme and the pitch. Two things keep out of the codes what no text can
foretell: the mel asked for is that of a twin, the same speech with its noise drawn anew; and noise on the values before they are
rounded makes codes that small differences do not flip. Silent tokens are pulled to the official code of silence (4299), which the
engine appends to every sentence. Writes tokenizer.pt, for each part tok/partNNN.npz (tokens, phonemes) and mel/partNNN.npy, and at
the end tokens-all.npz.
"""
import argparse
import os
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import common as C

QUIET = -8.3                           # mean log-mel of a frame that holds only the hiss


class Res(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.n, self.a, self.b = nn.LayerNorm(c), nn.Conv1d(c, c, k, padding=k // 2), nn.Linear(c, c)

    def forward(self, x):
        y = F.gelu(self.a(self.n(x).transpose(1, 2)).transpose(1, 2))
        return x + self.b(y)


class Decoder(nn.Module):
    def __init__(self, c=384):
        super().__init__()
        self.up = nn.Linear(8, c)
        self.t = nn.ModuleList([Res(c, 5) for _ in range(4)])
        self.x2 = nn.Linear(c, 2 * c)
        self.f = nn.ModuleList([Res(c, 3) for _ in range(2)])
        self.head = nn.Linear(c, 80 + C.N_PHONES + 2)

    def forward(self, q):
        x = self.up(q)
        for m in self.t:
            x = m(x)
        x = self.x2(x).view(x.shape[0], -1, x.shape[-1])
        for m in self.f:
            x = m(x)
        return self.head(x).float().split([80, C.N_PHONES, 2], -1)


def quantise(tok, h, noise=0.0):
    """Before the tanh, after it, and rounded (the gradient goes straight through)."""
    u = tok.quantizer._codebook.project_down(h.float())
    z = torch.tanh(u + noise * torch.randn_like(u))
    return u, z, z + ((z * 0.9990000128746033).round() - z).detach()


def to_device(tok, dev):
    tok.to(dev)
    tok.encoder.freqs_cis = tok.encoder.freqs_cis.to(dev)
    return tok


def train(a, tok, c, dev, until):
    dec = Decoder().to(dev)
    params = list(tok.parameters()) + list(dec.parameters())
    opt = C.Adam(params, device=dev)
    sil = C.SIL_DIGITS.to(dev)
    stat = torch.zeros(8, device=dev)
    use = torch.zeros(C.V, device=dev)
    pw = 3.0 ** torch.arange(8, device=dev)
    ones = torch.ones(a.tokens, device=dev)

    def step_of(L):
        n = max(1, a.tokens // L)
        lens = torch.full((n,), 4 * L, device=dev)

        def f():
            s = torch.randint(0, c.n - L, (n,), device=dev)
            x = c.cut(c.logmel, s, L).float().view(n, 4 * L, 128).transpose(1, 2)
            mel = c.cut(c.mel2, s, L).float().view(n, 2 * L, 80)
            ph = c.cut(c.phone, s, L).view(n, 2 * L).long()
            f0 = c.cut(c.f0, s, L).view(n, 2 * L).float()
            with C.amp(dev):
                h, _ = tok.encoder(x, lens)
            u, z, q = quantise(tok, h, a.noise)
            with C.amp(dev):
                m, p, g = dec(q)
            quiet = (mel.mean(-1) < QUIET).view(n, L, 2).all(-1).float()
            l_mel = (m - (mel + 6) / 3).abs().mean() * 3
            l_ph = F.cross_entropy(p.transpose(1, 2), ph)
            voiced = (f0 > 10).float()
            l_f0 = F.binary_cross_entropy_with_logits(g[..., 0], voiced) + \
                ((g[..., 1] - (torch.log(f0.clamp(min=40)) - 5.3) * 4).abs() * voiced).mean()
            l_sil = (((z - 0.95 * sil) ** 2).mean(-1) * quiet).sum() / (quiet.sum() + 1)
            w = (1 - quiet)[..., None] / (1 - quiet).sum().clamp(min=1)
            mean = (u * w).sum((0, 1))                     # each of the eight values centred and spread over its three steps:
            std = (((u - mean) ** 2) * w).sum((0, 1)).add(1e-4).sqrt()     # without this the tanh saturates and codes die out
            l_use = (mean ** 2).mean() + ((std - 0.9) ** 2).mean()
            loss = l_mel + 0.7 * l_ph + 0.5 * l_f0 + l_sil + l_use
            opt.step(loss, params)
            with torch.no_grad():
                code = ((q.round() + 1) * pw).sum(-1).long().view(-1)
                use.mul_(0.98).scatter_add_(0, code, ones[:code.shape[0]])
                stat.copy_(torch.stack([l_mel.detach(), l_ph.detach(), (p.argmax(-1) == ph).float().mean(), l_f0.detach(),
                                        l_sil.detach(), l_use.detach(), quiet.mean(), loss.detach()]))
        return f

    run = C.capture({L: step_of(L) for L in (50, 100, 200)}, [tok, dec], [opt], "tok")
    clock, step = C.Clock(until, 6e-4, warm=400, decay_from=0.4), 0
    while not clock.over():
        opt.rate(clock.rate(step))
        run[(50, 100, 200)[step % 3]]()
        C.sync(dev, step)
        if step % 500 == 0 or step == 20:
            v, pr = stat.tolist(), use / use.sum()
            ent = -(pr[pr > 0] * pr[pr > 0].log2()).sum().item()
            print(f"tok {step} {clock.frac() * clock.s:.0f}s mel {v[0]:.3f} phone-ce {v[1]:.3f} acc {v[2]:.3f} f0 {v[3]:.3f} sil {v[4]:.4f} "
                  f"use {v[5]:.3f} codes {(use > 1).sum().item()} entropy {ent:.2f} quiet {v[6]:.3f}", flush=True)
        step += 1
    print(f"tokenizer steps {step}, {C.count(tok) / 1e6:.2f} M parameters; last: mel {stat[0].item():.3f} phone acc {stat[2].item():.3f}", flush=True)


@torch.no_grad()
def encode(a, dev, part_list):
    """Read the features of some parts as they come; once there is a trained tokenizer, write their tokens: OUT/tok/partNNN.npz."""
    tok, path, ready, wait = to_device(C.build_tokenizer(), dev).eval(), os.path.join(a.out, "tokenizer.pt"), False, []
    for k, p in enumerate(part_list):
        wait.append((p, C.Corpus(a.data, [p], dev, want=("logmel", "phone", "mel"), quiet=True)))
        last = k == len(part_list) - 1
        while last and not os.path.exists(path):
            time.sleep(0.3)
        if not ready and os.path.exists(path):
            tok.load_state_dict(C.load(path, dev))
            ready = True
        while ready and wait:
            p, c = wait.pop(0)
            write_tokens(a, tok, dev, p, c)
            if a.drop and p >= a.keep:
                os.remove(os.path.join(a.data, f"part{p:03d}.pcm"))


def write_tokens(a, tok, dev, p, c):
    order = np.argsort(c.len, kind="stable")
    code = torch.zeros(c.n, dtype=torch.int32, device=dev)
    for g in range(0, len(order), 128):
        sel = order[g:g + 128]
        nt = torch.tensor([c.len[i] for i in sel], device=dev)
        off = torch.tensor([int(c.off[i]) for i in sel], device=dev)
        L = max(c.len[i] for i in sel)
        at = torch.arange(L, device=dev)[None]
        ok = at < nt[:, None]
        idx = torch.where(ok, off[:, None] + at, 0)
        x = (c.logmel[idx].float() * ok[..., None]).view(len(sel), 4 * L, 128)
        h, _ = tok.encoder(x.transpose(1, 2), 4 * nt)
        code[idx[ok]] = tok.quantizer.encode(h).int()[ok]
    out = os.path.join(a.out, "tok", f"part{p:03d}.npz")
    np.savez(out + ".tmp.npz", ids=np.array(c.ids, np.int32), len=np.array(c.len, np.int32), tail=np.array(c.tail, np.int16),
             tok=code.cpu().numpy().astype(np.uint16), phone=c.phone.cpu().numpy())
    os.replace(out + ".tmp.npz", out)
    out = os.path.join(a.out, "mel", f"part{p:03d}.npy")
    np.save(out + ".tmp.npy", c.mel.cpu().numpy())         # float16
    os.replace(out + ".tmp.npy", out)


def merge(a, parts, name):
    ds = []
    for p in range(parts):
        path = os.path.join(a.out, "tok", f"part{p:03d}.npz")
        while not os.path.exists(path):
            time.sleep(0.2)
        ds.append(dict(np.load(path)))
    d = {k: np.concatenate([x[k] for x in ds]) for k in ds[0]}
    np.savez(os.path.join(a.out, "tokens.tmp.npz"), **d)
    os.replace(os.path.join(a.out, "tokens.tmp.npz"), os.path.join(a.out, name))
    tk, both = d["tok"], (d["phone"] == 0).all(1)
    u, n = np.unique(tk, return_counts=True)
    pr = n / n.sum()
    print(f"{name}: {len(tk)} tokens ({len(tk) / 90000:.1f} h), {len(d['ids'])} utterances, codes used {len(u)}, entropy "
          f"{-(pr * np.log2(pr)).sum():.2f} bits, code {C.SIL}: {np.mean(tk == C.SIL):.3f} of all, {np.mean(tk[both] == C.SIL):.3f} "
          f"of pauses, {np.mean(both[tk == C.SIL]) if (tk == C.SIL).any() else 0:.3f} of its uses are pauses, same as before "
          f"{np.mean(tk[1:] == tk[:-1]):.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--train-parts", type=int, default=20)
    ap.add_argument("--all-parts", type=int, default=128)
    ap.add_argument("--noise", type=float, default=0.15)
    ap.add_argument("--seconds", type=float, default=120, help="of training, after the data is read")
    ap.add_argument("--tokens", type=int, default=12000)
    ap.add_argument("--encoders", type=int, default=8)
    ap.add_argument("--encode", type=int, default=-1)
    ap.add_argument("--drop", action="store_true", help="remove the sound of a part when its tokens and its mel are written")
    ap.add_argument("--keep", type=int, default=0, help="but not that of so many first parts")
    a = ap.parse_args()
    dev = C.setup()
    torch.manual_seed(0)
    for x in ("tok", "mel"):
        os.makedirs(os.path.join(a.out, x), exist_ok=True)
    if a.encode >= 0:                                      # one of the encoding helpers
        k, n = a.encode, a.encoders
        return encode(a, dev, range(k, a.all_parts, n))
    helpers = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--encode", str(k)]) for k in range(a.encoders)]
    path = os.path.join(a.out, "tokenizer.pt")
    if not os.path.exists(path):
        tok = to_device(C.build_tokenizer(), dev).train()
        c = C.Corpus(a.data, range(a.train_parts), dev, want=("mel2", "logmel", "phone", "f0"))
        train(a, tok, c, dev, time.time() + a.seconds)
        C.save(path, {k: (v.half() if k.startswith(("encoder", "quantizer")) else v).cpu() for k, v in tok.state_dict().items()})
        del c, tok
    merge(a, a.all_parts, "tokens-all.npz")
    for h in helpers:
        h.wait()


if __name__ == "__main__":
    main()
