"""Train the flow (tokens -> mel): the conformer encoder and the mean-flow estimator, together.

  python train_flow.py --data DIR --out DIR2 --parts 40 --until TIME

The mean velocities of the steps 0 -> 1/2, 1/2 -> 1 (from the net's own middle point) and 0 -> 1 must land on the true mel
(L1), and so must the encoder's own output, mu, which the estimator sees as it is (no gradient back). That gives the median mel rather than a sample: right for a teacher whose
speech is all but fixed by its tokens, and steadier than a small net's samples. The vocoder learns to undo the blur.
Windows are cut from the stream of all utterances, so a window holds several of them, as prompt and text do in use.
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import common as C


def patch():
    """Windows hold no padding: attention without masks (and without looking at their values)."""
    from chatterbox.models.s3gen import decoder as D
    from chatterbox.models.s3gen.transformer import upsample_encoder as U
    D.add_optional_chunk_mask = lambda x, m, *k: m
    D.mask_to_bias = lambda m, t: None
    U.add_optional_chunk_mask = lambda x, m, *k: m


def windows(a, dev):
    """The stream of utterances in a new order, so that a window mixes lengths: tokens and mels on the device."""
    c = C.Corpus(a.data, range(a.parts), dev, want=("mel",))
    while not os.path.exists(os.path.join(a.out, "tokens.npz")):
        time.sleep(0.5)
    z = np.load(os.path.join(a.out, "tokens.npz"))
    assert list(z["ids"][:len(c.ids)]) == c.ids, "tokens.npz does not fit these parts"
    tok = torch.from_numpy(z["tok"][:c.n].astype(np.int64))
    rng = np.random.default_rng(1)
    order = rng.permutation(len(c.ids))
    idx = torch.from_numpy(np.concatenate([np.arange(c.off[i], c.off[i + 1]) for i in order]))
    return tok[idx].to(dev), c.mel[idx.to(dev)]


def encode(flow, spk, tok, lens):
    h, _ = flow.encoder(flow.input_embedding(tok), lens)
    return flow.encoder_proj(h).float().transpose(1, 2).contiguous()


def speaker(flow, xvec, n, noise):
    return flow.spk_embed_affine_layer(F.normalize(xvec.expand(n, -1) + noise * torch.randn(n, xvec.shape[-1], device=xvec.device), dim=1))


@torch.no_grad()
def report(flow, xvec, tok, mel, dev, label):
    """Mel error of mu, and of 1 and 2 steps, without a prompt and with one."""
    flow.eval()
    L = min(150, len(tok) - 1)
    g = torch.Generator(device="cpu").manual_seed(5)
    s = torch.randint(0, len(tok) - L, (64,), generator=g).to(dev)
    t, m = C.Corpus.cut(tok, s, L), C.Corpus.cut(mel, s, L).float().view(64, 2 * L, 80).transpose(1, 2).contiguous()
    mask, spk = torch.ones(64, 1, 2 * L, device=dev), speaker(flow, xvec, 64, 0.0)
    mu = encode(flow, spk, t, torch.full((64,), L, device=dev))
    k = min(75, L)
    for name, cond in (("none", torch.zeros_like(m)), (f"{k / 50:.1f} s", m * (torch.arange(2 * L, device=dev) < k))):
        out = []
        for n in (2, 1):
            x = torch.randn_like(m)
            for i in range(n):
                tt = torch.full((64,), i / n, device=dev)
                x = x + flow.decoder.estimator(x, mask, mu, tt, spk, cond, r=tt + 1 / n) / n
            out.append(f"{n} steps {(x - m)[..., k:].abs().mean().item():.4f}")
        print(f"{label}: prompt {name}: mel L1 mu {(mu - m)[..., k:].abs().mean().item():.4f}", *out, flush=True)
    flow.train()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--parts", type=int, default=40)
    ap.add_argument("--until", type=float, required=True)
    ap.add_argument("--start", help="tensors to begin with, waited for (the estimator of an earlier model, whose codes were others)")
    ap.add_argument("--tokens", type=int, default=6400)
    ap.add_argument("--lr", type=float, default=8e-4)
    ap.add_argument("--decay-from", type=float, default=0.4)
    a = ap.parse_args()
    dev = C.setup()
    torch.manual_seed(0)
    patch()
    flow = C.build_flow().to(dev).train()
    path = os.path.join(a.out, "flow.pt")
    if os.path.exists(path):
        flow.load_state_dict(C.load(path, dev))
        print("flow goes on from", path, flush=True)
    elif a.start:
        left = flow.load_state_dict(C.load(C.wait_for(a.start), dev), strict=False)
        print(f"flow begins with {a.start}, {len(left.missing_keys)} tensors are new", flush=True)
    xvec = C.speaker_vectors(dev)[1]
    tok, mel = windows(a, dev)
    n_held = min(20000, len(tok) // 10)                    # the end of the stream is kept for the report
    N, est = len(tok) - n_held, flow.decoder.estimator
    of_est = {id(p) for p in est.parameters()} | {id(p) for p in flow.spk_embed_affine_layer.parameters()}
    p_enc = [p for p in flow.parameters() if id(p) not in of_est]
    p_est = [p for p in flow.parameters() if id(p) in of_est]
    o_enc, o_est = C.Adam(p_enc, device=dev), C.Adam(p_est, device=dev)
    stat = torch.zeros(4, device=dev)
    xs = 0.1 * xvec.std()

    def step_of(L):
        n = max(1, a.tokens // L)
        at, mask = torch.arange(2 * L, device=dev), torch.ones(n, 1, 2 * L, device=dev)
        lens, zero = torch.full((n,), L, device=dev), torch.zeros(n, device=dev)

        def f():
            s = torch.randint(0, N - L, (n,), device=dev)
            m = C.Corpus.cut(mel, s, L).float().view(n, 2 * L, 80).transpose(1, 2).contiguous()
            keep = (torch.rand(n, 1, 1, device=dev) < 0.7) * torch.rand(n, 1, 1, device=dev) * L
            cond = m * (at[None, None] < keep)
            z = torch.randn_like(m)
            with C.amp(dev):
                mu = encode(flow, None, C.Corpus.cut(tok, s, L), lens)
            l_mu = (mu - m).abs().mean()
            o_enc.step(l_mu, p_enc)
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
            e = (x + (1 - t)[:, None, None] * v - m).abs().mean((1, 2))
            o_est.step(e.mean(), p_est)
            with torch.no_grad():
                w = second.float()
                stat.mul_(0.98).add_(torch.stack([e.detach().mean(), (e.detach() * w).sum() / w.sum().clamp(min=1), l_mu.detach(),
                                                  torch.ones_like(l_mu)]), alpha=0.02)
        return f

    sizes = [100, 200, 200, 400] if N > 1000 else [20, 20]
    run = C.capture({L: step_of(L) for L in sorted(set(sizes))}, [est, flow], [o_enc, o_est], "flow")
    clock, ema, step, saved = C.Clock(a.until, a.lr, decay_from=a.decay_from), C.EMA(flow, 0.999), 0, time.time()

    def put():
        ema.swap()
        C.save(path, C.to_half(flow.state_dict()))
        ema.swap()

    while not clock.over():
        for o in (o_enc, o_est):
            o.rate(clock.rate(step))
        run[sizes[step % len(sizes)]]()
        ema.update(step)
        step += 1
        C.sync(dev, step)
        if step % 500 == 0 or step == 20:
            v = (stat / stat[3].clamp(min=1e-6)).tolist()
            print(f"flow {step} {clock.frac() * clock.s:.0f}s mel L1 {v[0]:.4f} second step {v[1]:.4f} mu {v[2]:.4f} lr {clock.rate(step):.1e}", flush=True)
        if time.time() - saved > 60:
            saved = time.time()
            put()
    put()
    open(os.path.join(a.out, "flow.final"), "w").write("1")
    ema.swap()
    report(flow, xvec, tok[N:], mel[N:], dev, f"flow end: steps {step}, held-out stream")


if __name__ == "__main__":
    main()
