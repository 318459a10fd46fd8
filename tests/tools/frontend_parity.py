#!/usr/bin/env python3
"""Compares the front ends of voice cloning with the libraries that the official package calls.

    pip install librosa pyloudnorm torch torchaudio safetensors      (outside the repository)
    apt install espeak-ng flite festival festvox-kallpc16k festvox-us-slt-hts sox ffmpeg
    tests/tools/frontend_parity.py build/release/tests/tools/utter-frontend [--keep tests/golden/frontends]

Ten recordings are spoken by Debian's speech programs and mangled by sox and codecs; utter-frontend runs each, and the
largest differences are printed. --keep DIR writes recordings and (thinned) reference values for tests/golden/test_frontends.c.
"""
import argparse, os, subprocess, tempfile
import librosa, numpy as np, pyloudnorm, torch, torchaudio
from safetensors.numpy import load_file, save_file

TEXT = "She had your dark suit in greasy wash water."
SAMPLES, FRAMES = 97, 16       # of values kept: every 97th sample, every 16th frame

# name, speaker, what sox or a codec does to it (in.wav -> out.wav)
RECORDINGS = [
    ("01-clean", "flite -voice slt", "cp in.wav out.wav"),
    ("02-stereo-44k", "flite -voice rms", "sox in.wav -r 44100 -c 2 out.wav remix 1v0.9 1v0.4"),
    ("03-22k", "espeak", "cp in.wav out.wav"),
    ("04-48k-24bit", "espeak+f3", "sox in.wav -r 48000 -b 24 out.wav"),
    ("05-telephone", "festival", "sox in.wav -r 8000 -e mu-law t.wav && sox t.wav -e signed -b 16 out.wav"),
    ("06-mp3-32k", "flite -voice slt", "ffmpeg -v error -y -i in.wav -b:a 32k t.mp3 && ffmpeg -v error -y -i t.mp3 -c:a pcm_s16le out.wav"),
    ("07-opus-12k", "flite -voice rms", "ffmpeg -v error -y -i in.wav -c:a libopus -b:a 12k t.opus && ffmpeg -v error -y -i t.opus -c:a pcm_s16le out.wav"),
    ("08-noise-11k", "espeak", "sox in.wav -r 11025 t.wav && sox -R t.wav -p synth whitenoise vol 0.02 | sox -m t.wav - out.wav"),
    ("09-clipped", "flite -voice slt", "sox in.wav -b 16 out.wav vol 8"),
    ("10-hum-96k-quiet", "festival-hts", "sox in.wav -r 96000 t.wav && sox -R t.wav -p synth sine 50 vol 0.02 | sox -m t.wav - out.wav vol -40dB"),
]

def speak(who):
    if who == "festival":
        return f'echo "{TEXT}" | text2wave -o in.wav'
    if who == "festival-hts":
        return f'echo "{TEXT}" | text2wave -eval "(voice_cmu_us_slt_arctic_hts)" -o in.wav'
    if who.startswith("espeak"):
        return f'espeak-ng -v en-us{who[6:]} -w in.wav "{TEXT}"'
    return f'{who} -t "{TEXT}" -o in.wav'

def slaney(sr, n_fft, n_mels):
    return torch.from_numpy(librosa.filters.mel(sr=sr, n_fft=n_fft, n_mels=n_mels, fmin=0, fmax=8000))

def reference(path):
    x = librosa.load(path, sr=24000)[0]
    x16 = librosa.resample(x, orig_sr=24000, target_sr=16000, res_type="soxr_hq")
    t, t16 = torch.from_numpy(x)[None], torch.from_numpy(x16)[None]
    r = dict(load24=x, x16=x16)
    r["lufs"] = np.array([pyloudnorm.Meter(24000).integrated_loudness(x.astype(np.float64))], np.float32)
    r["sinc16"] = torchaudio.transforms.Resample(24000, 16000)(t)[0].numpy()
    r["trim"] = np.array(librosa.effects.trim(x16, top_db=20)[1], np.int32)
    r["voice_encoder_mel"] = librosa.feature.melspectrogram(y=x16, sr=16000, n_fft=400, hop_length=160, win_length=400, n_mels=40, fmin=0, fmax=8000,
                                                            power=2.0, center=True, pad_mode="reflect").T
    r["fbank"] = torchaudio.compliance.kaldi.fbank(t16, num_mel_bins=80).numpy()
    power = torch.stft(t16, 400, 160, window=torch.hann_window(400), return_complex=True)[0, :, :-1].abs() ** 2
    mel = torch.clamp(slaney(16000, 400, 128) @ power, min=1e-10).log10()
    r["s3_log_mel"] = ((torch.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0).T.numpy()
    p = torch.nn.functional.pad(t[:, None], (720, 720), mode="reflect")[:, 0]
    spec = torch.view_as_real(torch.stft(p, 1920, 480, 1920, torch.hann_window(1920), center=False, return_complex=True))
    r["prompt_mel"] = torch.log(torch.clamp(slaney(24000, 1920, 80) @ torch.sqrt(spec.pow(2).sum(-1) + 1e-9), min=1e-5))[0].T.numpy()
    return r

def thin(a):
    a = a[::FRAMES] if a.ndim == 2 else a[::SAMPLES] if a.size > 2 else a
    return np.ascontiguousarray(a)

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("tool")
    ap.add_argument("--keep")
    a = ap.parse_args()
    tool, kept = os.path.abspath(a.tool), {}
    keep = a.keep and os.path.abspath(a.keep)
    with tempfile.TemporaryDirectory() as d:
        for name, who, mangle in RECORDINGS:
            subprocess.check_call(["bash", "-ec", f"{speak(who)} && {mangle} && sox out.wav {name}.flac"], cwd=d)
            path = os.path.join(d, name + ".flac")
            subprocess.check_call([tool, path, os.path.join(d, "ours.safetensors")])
            ours, theirs = load_file(os.path.join(d, "ours.safetensors")), reference(path)
            cells = []
            for key, r in theirs.items():
                o = ours[key]
                n = min(len(o), len(r))     # librosa pads the last sample of a non-integer length
                assert abs(len(o) - len(r)) <= 1, (name, key, o.shape, r.shape)
                cells.append(f"{key} {np.abs(o[:n].astype(np.float64) - r[:n]).max():.2g}")
                kept[f"{name}.{key}"] = thin(r)
            print(f"{name:18}", ", ".join(cells))
            if keep:
                os.makedirs(keep, exist_ok=True)
                subprocess.check_call(["cp", path, keep])
    if keep:
        save_file(kept, os.path.join(keep, "frontends.safetensors"))

if __name__ == "__main__":
    main()
