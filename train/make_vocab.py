"""Train a small GPT-2 style byte-level BPE on DIR/text.tsv and write it as the official folders have it.

  python make_vocab.py --data DIR [--size 512]
"""
import argparse
import collections
import json
import os

from common import PIECES, byte_chars, punc_norm, read_tsv


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--size", type=int, default=512)
    a = ap.parse_args()
    m = byte_chars()
    words = collections.Counter(p for s in read_tsv(os.path.join(a.data, "text.tsv")).values() for p in PIECES.findall(punc_norm(s)))
    words = {tuple(m[b] for b in w.encode()): n for w, n in words.items()}
    merges, vocab = [], [m[b] for b in sorted(m, key=lambda b: (len(m[b].encode()) > 1 or b > 255, b))]
    while len(vocab) < a.size - 1:
        pairs = collections.Counter()
        for w, n in words.items():
            for p in zip(w, w[1:]):
                if p[0].strip("\u0120").isalpha() or p[0] == "\u0120":
                    pairs[p] += n
        (x, y), _ = pairs.most_common(1)[0]
        merges.append((x, y))
        vocab.append(x + y)
        new = {}
        for w, n in words.items():
            if x in w:
                out, k = [], 0
                while k < len(w):
                    if k + 1 < len(w) and w[k] == x and w[k + 1] == y:
                        out.append(x + y)
                        k += 2
                    else:
                        out.append(w[k])
                        k += 1
                w = tuple(out)
            new[w] = new.get(w, 0) + n
        words = new
    end = "<|endoftext|>"
    put = lambda name, text: open(os.path.join(a.data, name), "w").write(text)
    put("vocab.json", json.dumps({t: i for i, t in enumerate(vocab + [end])}, ensure_ascii=False))
    put("merges.txt", "#version: 0.2\n" + "".join(f"{x} {y}\n" for x, y in merges))
    put("added_tokens.json", json.dumps({end: a.size - 1}))
    put("special_tokens_map.json", json.dumps({k: end for k in ("bos_token", "eos_token", "unk_token")}))
    put("tokenizer_config.json", json.dumps({
        "add_prefix_space": False, "bos_token": end, "eos_token": end, "unk_token": end, "errors": "replace",
        "model_max_length": 1024, "tokenizer_class": "GPT2Tokenizer",
        "added_tokens_decoder": {str(a.size - 1): {"content": end, "lstrip": False, "normalized": True, "rstrip": False,
                                                   "single_word": False, "special": True}}}, indent=1))
    print(len(vocab) + 1, "entries; last merges:", ["".join(x) for x in merges[-10:]])


if __name__ == "__main__":
    main()
