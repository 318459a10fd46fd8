"""Train the flow (tokens -> mel): the conformer encoder and the mean-flow estimator, together.

  python train_flow.py --data DIR --out DIR2 --until TIME

The mean velocities of the steps 0 -> 1/2, 1/2 -> 1 (from the net's own middle point) and 0 -> 1 must land on the true mel
(L1), and so must the encoder's own output, mu. That gives the median mel rather than a sample: right for a teacher whose
speech is all but fixed by its tokens, and steadier than a small net's samples. The vocoder learns to undo the blur.
A blurred mel loses words, though, before it loses much of the L1: so a small net, the ear, learns beside it to tell the teacher's
phonemes from the teacher's mel, and the flow's mel must please it too: the same phonemes, and the same features inside. A second ear,
which the flow never hears of, judges.
The data are the files DIR2/tok/partNNN.npz with DIR2/mel/partNNN.npy, whichever are there; new ones come in without a stop. Part 0
is held out. Windows are cut from the stream of all utterances, so a window holds several of them, as prompt and text do in use.
"""
import argparse
import glob
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import common as C
from train_tokenizer import Res


def patch():
    """Windows hold no padding: attention without masks (and without looking at their values)."""
    from chatterbox.models.s3gen import decoder as D
    from chatterbox.models.s3gen.transformer import upsample_encoder as U
    D.add_optional_chunk_mask = lambda x, m, *k: m
    D.mask_to_bias = lambda m, t: None
    U.add_optional_chunk_mask = lambda x, m, *k: m


class Ear(nn.Module):
    """Mel (B, 80, T) -> phonemes (B, T, N_PHONES), and what it thinks on the way."""

    def __init__(self, c):
        super().__init__()
        self.inp, self.r, self.out = nn.Linear(80, c), nn.ModuleList([Res(c, 3) for _ in range(4)]), nn.Linear(c, C.N_PHONES)

    def forward(self, mel):
        x, f = self.inp((mel.transpose(1, 2) + 6) / 3), []
        for m in self.r:
            x = m(x)
            f.append(x)
        return self.out(x).float().transpose(1, 2), f


class Stream:
    """Tokens, mels and phonemes on the device, in one stream that grows; `size` is a tensor, which a recorded step can read."""

    def __init__(self, out, dev, room):
        self.out, self.dev, self.files, self.n = out, dev, set(), 0
        self.tok = torch.zeros(room, dtype=torch.int16, device=dev)
        self.mel = torch.zeros(room, 160, dtype=torch.float16, device=dev)
        self.phone = torch.zeros(room, 2, dtype=torch.uint8, device=dev)
        self.size = torch.zeros((), dtype=torch.float64, device=dev)

    def look(self, most=8):
        new = sorted(set(f for f in glob.glob(os.path.join(self.out, "mel", "part*.npy")) if ".tmp." not in f) - self.files)
        for f in new[:most]:
            self.files.add(f)
            if not f.endswith("part000.npy"):
                self.add(f)

    def add(self, f):
        z, mel = np.load(os.path.join(self.out, "tok", os.path.basename(f)[:-4] + ".npz")), np.load(f)
        n = len(mel)
        if self.n + n > len(self.tok):
            return
        at = slice(self.n, self.n + n)
        self.tok[at] = torch.from_numpy(z["tok"].astype(np.int16)).to(self.dev)
        self.phone[at] = torch.from_numpy(z["phone"]).to(self.dev)
        self.mel[at] = torch.from_numpy(mel).to(self.dev)
        self.n += n
        self.size.fill_(self.n)

    def window(self, n, L):
        """n windows: tokens (n, L), mel (n, 80, 2L), phonemes (n, 2L)."""
        s = (torch.rand(n, device=self.dev, dtype=torch.float64) * (self.size - L)).long()
        return self.at(s, L)

    def at(self, s, L):
        cut = C.Corpus.cut
        return (cut(self.tok, s, L).long(), cut(self.mel, s, L).float().view(len(s), 2 * L, 80).transpose(1, 2).contiguous(),
                cut(self.phone, s, L).view(len(s), 2 * L).long())


def encode(flow, tok, lens):
    h, _ = flow.encoder(flow.input_embedding(tok), lens)
    return flow.encoder_proj(h).float().transpose(1, 2).contiguous()


def speaker(flow, xvec, n, noise):
    return flow.spk_embed_affine_layer(F.normalize(xvec.expand(n, -1) + noise * torch.randn(n, xvec.shape[-1], device=xvec.device), dim=1))


def sample(est, mu, spk, cond, steps):
    """The mel as the engine makes it, from noise in so many steps."""
    x, mask = torch.randn_like(mu), torch.ones_like(mu[:, :1])
    for i in range(steps):
        t = torch.full((len(mu),), i / steps, device=mu.device)
        x = x + est(x, mask, mu, t, spk, cond, r=t + 1 / steps).float() / steps
    return x


@torch.no_grad()
def report(flow, ears, xvec, held, dev, label):
    """Held-out mel error, and both ears' cross-entropy, of mu and of 1 and 2 steps with a prompt of 1.5 s before them."""
    flow.eval()
    L, n = min(150, held.n - 1), 96
    k = min(75, L)
    g = torch.Generator(device="cpu").manual_seed(5)
    t, m, y = held.at(torch.randint(0, held.n - L, (n,), generator=g).to(dev), L)
    with C.amp(dev):
        spk = speaker(flow, xvec, n, 0.0)
        mu, cond = encode(flow, t, torch.full((n,), L, device=dev)), m * (torch.arange(2 * L, device=dev) < k)
        got = {"real": m, "mu": mu, "1 step": sample(flow.decoder.estimator, mu, spk, cond, 1), "2 steps": sample(flow.decoder.estimator, mu, spk, cond, 2)}
        said = [f"{name} L1 {(x - m)[..., k:].abs().mean().item():.4f} ears " +
                " ".join(f"{F.cross_entropy(e(x)[0][..., k:], y[..., k:]).item():.3f}" for e in ears) for name, x in got.items()]
    print(f"{label}: " + "; ".join(said), flush=True)
    flow.train()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--until", type=float, required=True)
    ap.add_argument("--start", help="tensors to begin with, waited for (the estimator of an earlier model, whose codes were others)")
    ap.add_argument("--room", type=int, default=80000000, help="tokens that there is room for (340 bytes each)")
    ap.add_argument("--start-parts", type=int, default=12, help="parts to begin with, beside part 0")
    ap.add_argument("--tokens", type=int, default=6400)
    ap.add_argument("--lr", type=float, default=8e-4)
    ap.add_argument("--decay-from", type=float, default=0.4)
    ap.add_argument("--alike", type=float, default=0.2, help="weight of the ear's features")
    ap.add_argument("--phones", type=float, default=0.1, help="weight of the ear's phonemes")
    a = ap.parse_args()
    dev = C.setup()
    torch.manual_seed(0)
    patch()
    flow = C.build_flow().to(dev).train()
    ears = [Ear(c).to(dev) for c in (256, 192)]            # the second only judges
    path = os.path.join(a.out, "flow.pt")
    if os.path.exists(path):
        flow.load_state_dict(C.load(path, dev))
        print("flow goes on from", path, flush=True)
    elif a.start:
        left = flow.load_state_dict(C.load(C.wait_for(a.start), dev), strict=False)
        print(f"flow begins with {a.start}, {len(left.missing_keys)} tensors are new", flush=True)
    xvec = C.speaker_vectors(dev)[1]
    data, held = Stream(a.out, dev, a.room), Stream(a.out, dev, min(a.room, 200000))
    while len(data.files) < a.start_parts + 1 or data.n < 1000:
        time.sleep(0.3)
        data.look()
    held.add(C.wait_for(os.path.join(a.out, "mel", "part000.npy")))
    est = flow.decoder.estimator
    of_est = {id(p) for p in est.parameters()} | {id(p) for p in flow.spk_embed_affine_layer.parameters()}
    p_enc = [p for p in flow.parameters() if id(p) not in of_est]
    p_est = [p for p in flow.parameters() if id(p) in of_est]
    p_ear = [p for e in ears for p in e.parameters()]
    o_enc, o_est, o_ear = (C.Adam(p, device=dev) for p in (p_enc, p_est, p_ear))
    ramp = torch.zeros((), device=dev)                     # an ear that knows nothing has nothing to say
    stat = torch.zeros(8, device=dev)
    xs = 0.1 * xvec.std()

    def against(g, m, w, ph, real):
        """A mel against the true one: L1, phonemes, features."""
        with C.amp(dev):
            said, fs = ears[0](g)
        l1 = (g - m).abs().mean() if isinstance(w, float) else ((g - m).abs() * w).sum() / (80 * w.sum())
        return l1, F.cross_entropy(said, ph), sum((u.float() - q).abs().mean() / q.abs().mean() for u, q in zip(fs, real)) / len(real)

    def step_of(L):
        n = max(1, a.tokens // L)
        at, mask = torch.arange(2 * L, device=dev), torch.ones(n, 1, 2 * L, device=dev)
        lens, zero = torch.full((n,), L, device=dev), torch.zeros(n, device=dev)

        def f():
            tok, m, ph = data.window(n, L)
            with C.amp(dev):
                heard = [e(m) for e in ears]
                l_ear = [F.cross_entropy(h[0], ph) for h in heard]
            o_ear.step(sum(l_ear), p_ear)
            real = [x.detach().float() for x in heard[0][1]]
            keep = (torch.rand(n, 1, 1, device=dev) < 0.7) * torch.rand(n, 1, 1, device=dev) * L
            known = at[None, None] < keep                  # the prompt, whose mel is given
            cond, z = m * known, torch.randn_like(m)
            with C.amp(dev):
                mu = encode(flow, tok, lens)
            l_mu, ce_mu, alike_mu = against(mu, m, 1.0, ph, real)
            o_enc.step(l_mu + ramp * (a.phones * ce_mu + a.alike * alike_mu), p_enc)
            mu = mu.detach()
            k = torch.rand(n, device=dev)
            second = (k > 0.4) & (k < 0.9)
            with torch.no_grad(), C.amp(dev):              # an autocast of its own: a weight first cast under no_grad has no gradient
                spk = speaker(flow, xvec, n, xs)
                x5 = z + 0.5 * est(z, mask, mu, zero, spk, cond, r=zero + 0.5).float()
            t = torch.where(second, 0.5, 0.0)
            r = torch.where(k < 0.4, 0.5, 1.0)
            x = torch.where(second[:, None, None], x5, z)
            with C.amp(dev):
                spk = speaker(flow, xvec, n, xs)
                v = est(x, mask, mu, t, spk, cond, r=r).float()
            y = x + (1 - t)[:, None, None] * v
            e, ce, alike = against(y, m, torch.where(known, 0.1, 1.0).expand(-1, -1, 2 * L), ph, real)
            o_est.step(e + ramp * (a.phones * ce + a.alike * alike), p_est)
            with torch.no_grad():
                stat.mul_(0.98).add_(torch.stack([e, l_mu, ce, ce_mu, alike, *l_ear, torch.ones_like(e)]).detach(), alpha=0.02)
        return f

    sizes = [100, 200, 200, 400] if data.n > 1000000 or dev.type == "cuda" else [20, 20]
    run = C.capture({L: step_of(L) for L in sorted(set(sizes))}, [est, flow, *ears], [o_enc, o_est, o_ear], "flow")
    clock, ema, step, saved = C.Clock(a.until, a.lr, decay_from=a.decay_from), C.EMA(flow, 0.999), 0, time.time()

    def put():
        ema.swap()
        C.save(path, C.to_half(flow.state_dict()))
        report(flow, ears, xvec, held, dev, f"flow {step}, held out")
        ema.swap()

    while not clock.over():
        for o in (o_enc, o_est, o_ear):
            o.rate(clock.rate(step))
        ramp.fill_(min(1.0, step / 2000))
        run[sizes[step % len(sizes)]]()
        ema.update(step)
        step += 1
        C.sync(dev, step)
        if step % 100 == 0:
            data.look()
        if step % 500 == 0 or step == 20:
            v = (stat / stat[-1].clamp(min=1e-6)).tolist()
            print(f"flow {step} {clock.frac() * clock.s:.0f}s tokens {data.n / 1e6:.1f} M mel L1 {v[0]:.4f} mu {v[1]:.4f} phones {v[2]:.3f} mu {v[3]:.3f} "
                  f"alike {v[4]:.3f} ears {v[5]:.3f} {v[6]:.3f} lr {clock.rate(step):.1e}", flush=True)
        if time.time() - saved > 60:
            saved = time.time()
            put()
    put()
    open(os.path.join(a.out, "flow.final"), "w").write("1")
    print(f"flow end: steps {step}", flush=True)


if __name__ == "__main__":
    main()
