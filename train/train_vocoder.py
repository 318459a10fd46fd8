"""Train the HiFT vocoder (mel -> wave): spectral losses and pitch first, then with discriminators.

  python train_vocoder.py --data DIR --out DIR2 --parts 12 --until TIME [--gan-from 0.12]

The pitch predictor learns the teacher's own pitch track; the sine source follows the teacher's pitch for half of the
windows and the predicted one otherwise. As soon as flow.final is there, most of the windows get the mels that the flow makes
from the teacher's tokens (they are in time with the teacher's wave), so that the vocoder learns to undo the flow's blur.
"""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm as wn

import common as C
import train_flow as TF


class PeriodD(nn.Module):
    def __init__(self, p, c=(16, 64, 160, 256)):
        super().__init__()
        self.p, ch = p, (1,) + c
        self.conv = nn.ModuleList([wn(nn.Conv2d(i, o, (5, 1), (3, 1), (2, 0))) for i, o in zip(ch, c)] +
                                  [wn(nn.Conv2d(c[-1], c[-1], (5, 1), 1, (2, 0)))])
        self.post = wn(nn.Conv2d(c[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % self.p)).view(x.shape[0], 1, -1, self.p)
        f = []
        for m in self.conv:
            x = F.leaky_relu(m(x), 0.1)
            f.append(x)
        return self.post(x), f


class SpecD(nn.Module):
    def __init__(self, n, c=24):
        super().__init__()
        self.n = n
        self.register_buffer("w", torch.hann_window(n))
        self.conv = nn.ModuleList([wn(nn.Conv2d(1, c, (3, 9), (1, 1), (1, 4)))] +
                                  [wn(nn.Conv2d(c, c, (3, 9), (1, 2), (1, 4))) for _ in range(3)] + [wn(nn.Conv2d(c, c, 3, 1, 1))])
        self.post = wn(nn.Conv2d(c, 1, 3, 1, 1))

    def forward(self, x):
        s = torch.stft(x.float(), self.n, self.n // 4, window=self.w, return_complex=True)
        s = torch.view_as_real(s).pow(2).sum(-1).add(1e-9).sqrt()
        x = (s + 1e-5).pow(0.3)[:, None].transpose(2, 3)
        f = []
        for m in self.conv:
            x = F.leaky_relu(m(x), 0.1)
            f.append(x)
        return self.post(x), f


class Judges(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleList([PeriodD(p) for p in (2, 3, 5, 7, 11)] + [SpecD(n) for n in (512, 1024, 2048)])

    def forward(self, x):
        return [d(x) for d in self.d]


class Spectra(nn.Module):
    """How far two waves' spectra are apart, at four resolutions up to 12 kHz."""

    def __init__(self):
        super().__init__()
        self.n = (256, 512, 1024, 2048)
        for n in self.n:
            self.register_buffer(f"w{n}", torch.hann_window(n))

    def forward(self, x, y):
        out = 0
        for n in self.n:
            a, b = (torch.view_as_real(torch.stft(v, n, n // 4, window=getattr(self, f"w{n}"), return_complex=True)).pow(2).sum(-1)
                    .add(1e-9).sqrt() for v in (x, y))
            out = out + (a - b).pow(2).sum().sqrt() / b.pow(2).sum().sqrt() + (torch.log(a + 1e-3) - torch.log(b + 1e-3)).abs().mean()
        return out / len(self.n)


def istft16(mag, phase, window):
    """torch.istft of HiFT's 16-point spectrum, without its look at the values."""
    mag = mag.clamp(max=1e2)
    x = torch.fft.irfft(torch.complex(mag * torch.cos(phase), mag * torch.sin(phase)), 16, dim=1) * window[None, :, None]
    n = x.shape[-1]
    size = (1, 16 + 4 * (n - 1))
    y = F.fold(x, size, (1, 16), stride=(1, 4))[:, 0, 0]
    w = F.fold((window ** 2)[None, :, None].expand(1, 16, n).contiguous(), size, (1, 16), stride=(1, 4))[:, 0, 0]
    return y[:, 8:-8] / w[:, 8:-8]                         # the first point of w is 0: cut before dividing


def source(g, f0):
    """g.m_source with its random draws on the device: (B, frames) -> (B, 1, samples)."""
    gen = g.m_source.l_sin_gen
    f = f0.repeat_interleave(480, dim=1)[:, None]
    h = torch.arange(1, gen.harmonic_num + 2, device=f.device)[None, :, None]
    phase = (torch.rand(f.shape[0], gen.harmonic_num + 1, 1, device=f.device) * 2 - 1) * np.pi * (h > 1)
    s = gen.sine_amp * torch.sin(2 * np.pi * (torch.cumsum((f * h / gen.sampling_rate).double(), -1) % 1).float() + phase)
    uv = (f > gen.voiced_threshold).float()
    s = s * uv + (uv * gen.noise_std + (1 - uv) * gen.sine_amp / 3) * torch.randn_like(s)
    return torch.tanh(g.m_source.l_linear(s.transpose(1, 2))).transpose(1, 2)


def prepare(g, dev):
    g.to(dev)
    g.stft_window = g.stft_window.to(dev)
    g._istft = lambda mag, phase: istft16(mag, phase, g.stft_window)
    return g


@torch.no_grad()
def flow_mels(a, c, dev, steps=2):
    """Mels that the flow makes from the teacher's tokens, with a prompt before each stretch, as in use."""
    zs = [np.load(C.wait_for(os.path.join(a.out, "tok", f"part{p:03d}.npz"))) for p in range(a.parts)]
    assert sum((z["ids"].tolist() for z in zs), []) == c.ids
    tok = torch.from_numpy(np.concatenate([z["tok"] for z in zs]).astype(np.int64)).to(dev)
    flow = C.build_flow().to(dev).eval()
    flow.load_state_dict(C.load(os.path.join(a.out, "flow.pt"), dev))
    xvec, est = C.speaker_vectors(dev)[1], flow.decoder.estimator
    out = c.mel.clone()
    L, P = 250, 30                                         # each stretch begins with 30 tokens whose true mel is given
    starts = list(range(0, c.n - L, L - P))
    spk = TF.speaker(flow, xvec, 1, 0.0)
    err = []
    for k in range(0, len(starts), 48):
        s = torch.tensor(starts[k:k + 48], device=dev)
        n = len(s)
        real = c.cut(c.mel, s, L).view(n, 2 * L, 80).float().transpose(1, 2)
        with C.amp(dev):
            mu = TF.encode(flow, c.cut(tok, s, L), torch.full((n,), L, device=dev))
        cond = real * (torch.arange(2 * L, device=dev) < 2 * P)
        x = TF.sample(est, mu, spk.expand(n, -1), cond, steps)
        err.append((x - real)[..., 2 * P:].abs().mean().item())
        put = (s[:, None] + torch.arange(P, L, device=dev)).flatten()
        out[put] = x[..., 2 * P:].transpose(1, 2).reshape(-1, 160).half()
    print(f"voc: the flow's mels are here, L1 to the teacher's {np.mean(err):.4f}", flush=True)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--parts", type=int, default=12)
    ap.add_argument("--until", type=float, required=True)
    ap.add_argument("--start", help="an earlier vocoder to begin with, waited for")
    ap.add_argument("--gan-from", type=float, default=0.1, help="share of the time after which discriminators join")
    ap.add_argument("--flow-share", type=float, default=0.8, help="share of windows with the flow's mel, once there is one")
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--win", type=int, default=20, help="tokens a window")
    ap.add_argument("--lr", type=float, default=4e-4)
    ap.add_argument("--decay-from", type=float, default=0.6)
    a = ap.parse_args()
    dev = C.setup()
    torch.manual_seed(0)
    TF.patch()
    g, d, spec = prepare(C.build_hift(), dev).train(), Judges().to(dev), Spectra().to(dev)
    path, full = os.path.join(a.out, "hift.pt"), os.path.join(a.out, "hift-resume.pt")
    if os.path.exists(full):
        s = torch.load(full, map_location=dev)
        g.load_state_dict(s["g"]); d.load_state_dict(s["d"])
        print("vocoder goes on from", full, flush=True)
    elif os.path.exists(path):
        g.load_state_dict(C.load(path, dev))
        print("vocoder goes on from", path, flush=True)
    elif a.start:
        g.load_state_dict(C.load(C.wait_for(a.start), dev))
        print("vocoder begins with", a.start, flush=True)
    c = C.Corpus(a.data, range(a.parts), dev, want=("mel", "wav", "f0"))
    mels, share = c.mel.clone(), torch.zeros((), device=dev)
    pg, pd = list(g.parameters()), list(d.parameters())
    og, od = C.Adam(pg, (0.8, 0.99), device=dev), C.Adam(pd, (0.8, 0.99), device=dev)
    stat, B, L = torch.zeros(7, device=dev), a.batch, a.win

    def step_of(gan):
        def f():
            s = torch.randint(0, c.n - L, (B,), device=dev)
            pick = torch.rand(B, 1, 1, device=dev) < share
            mel = torch.where(pick, c.cut(mels, s, L), c.cut(c.mel, s, L)).float().view(B, 2 * L, 80).transpose(1, 2).contiguous()
            wav = c.cut(c.wav, s, L).float().view(B, -1) / 32768
            f0 = c.cut(c.f0, s, L).float().view(B, -1)
            fp = g.f0_predictor(mel)
            l_f0 = (fp - f0).abs().mean()
            src = torch.where(torch.rand(B, 1, device=dev) < 0.5, f0, fp.detach())
            y = g.decode(x=mel, s=source(g, src))[:, :wav.shape[1]]
            l_d = l_g = l_fm = torch.zeros((), device=dev)
            if gan:
                with C.amp(dev):
                    r, k = d(wav), d(y.detach())
                l_d = sum(((1 - x[0].float()) ** 2).mean() + (z[0].float() ** 2).mean() for x, z in zip(r, k))
                od.step(l_d, pd, 50.0)
            l_s = spec(y, wav)
            l_m = (C.mel80(y) - C.mel80(wav)).abs().mean()
            loss = 15 * l_m + 5 * l_s + 0.05 * l_f0
            if gan:
                with C.amp(dev):                           # the real wave's features are those of a moment ago
                    k = d(y)
                l_g = sum(((1 - z[0].float()) ** 2).mean() for z in k)
                l_fm = sum((u.float() - v.float()).abs().mean() for x, z in zip(r, k) for u, v in zip((w.detach() for w in x[1]), z[1]))
                loss = loss + l_g + 2 * l_fm
            og.step(loss, pg, 20.0)
            with torch.no_grad():
                stat.mul_(0.98).add_(torch.stack([x.detach() for x in (l_m, l_s, l_f0, l_g, l_fm, l_d)] + [torch.ones_like(l_m)]), alpha=0.02)
        return f

    run = C.capture({"plain": step_of(False), "gan": step_of(True)}, [g, d], [og, od], "voc")
    ema, step, saved = C.EMA(g, 0.999), 0, time.time()
    clock = C.Clock(a.until, a.lr, decay_from=a.decay_from)
    warm = os.path.exists(full)

    def put(last=False):
        ema.swap()
        C.save(path, C.to_half(g.state_dict()))
        ema.swap()
        if last:
            C.save(full, dict(g=g.state_dict(), d=d.state_dict()))

    while not clock.over():
        for o in (og, od):
            o.rate(clock.rate(step))
        run["gan" if warm or clock.frac() >= a.gan_from else "plain"]()
        ema.update(step)
        step += 1
        C.sync(dev, step, 5)
        if step % 500 == 0 or step == 20:
            v = (stat / stat[6].clamp(min=1e-6)).tolist()
            print(f"voc {step} {clock.frac() * clock.s:.0f}s mel {v[0]:.4f} stft {v[1]:.4f} f0 {v[2]:.2f} Hz gan {v[3]:.3f} fm {v[4]:.3f} d {v[5]:.3f}", flush=True)
        if step % 25 == 0 and share.item() == 0 and os.path.exists(os.path.join(a.out, "flow.final")):
            mels.copy_(flow_mels(a, c, dev))
            share.fill_(a.flow_share)
        if time.time() - saved > 60:
            saved = time.time()
            put()
    put(True)
    open(os.path.join(a.out, "hift.final"), "w").write("1")
    print(f"vocoder end: steps {step}", flush=True)


if __name__ == "__main__":
    main()
