#!/usr/bin/env python3
"""stream.py [TEXT] - tells when each chunk of a streamed sentence is there. Needs bindings/python on PYTHONPATH."""
import sys
import time

import utter

text = " ".join(sys.argv[1:]) or "Every chunk of this sentence can be heard while the next one is being made."
with utter.Model() as model:
    start = time.monotonic()
    with model.stream(text) as chunks:
        for chunk in chunks:
            print(f"{time.monotonic() - start:7.3f} s: {len(chunk) / model.sample_rate:.3f} s of speech")
    print(f"seed {chunks.seed}" + (", a limit ended a sentence" if chunks.truncated else ""))
