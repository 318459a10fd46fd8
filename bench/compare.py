#!/usr/bin/env python3
"""compare.py - two command lines in turn (A B A B ...), their times and the ratio.

    bench/compare.py [--runs N] [--settle SECONDS] 'utter say "Hello." -o a.wav' 'other-engine --text "Hello." --out b.wav'

Each command runs once to warm up, then N times in alternation, so that a slow minute of the machine hits both. Prints for each
the least, median and largest wall time, processor time and peak memory, and the ratio of the medians with the range that the pairs
span. With --audio FILE_A FILE_B (wav files that the commands write) times are also given a second of sound, since two engines
seldom speak equally long.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import wave


def run(command):
    """Wall seconds, processor seconds and peak MiB of one run through the shell."""
    start = time.monotonic()
    child = subprocess.Popen(command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command}\nexited with {child.returncode}:\n{error.decode(errors='replace')}")
    return {"wall": seconds, "cpu": usage.ru_utime + usage.ru_stime, "mib": usage.ru_maxrss / 1024}


def seconds_of_sound(path):
    with wave.open(path) as w:
        return w.getnframes() / w.getframerate()


def summary(runs, sound):
    walls = [r["wall"] for r in runs]
    out = {"min_s": min(walls), "median_s": statistics.median(walls), "max_s": max(walls),
           "cpu_s": statistics.median(r["cpu"] for r in runs), "peak_mib": max(r["mib"] for r in runs)}
    if sound:
        out["sound_s"] = sound
        out["real_time_factor"] = out["median_s"] / sound
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", help="first command line")
    parser.add_argument("b", help="second command line")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--settle", type=float, default=0, help="seconds of rest before each run")
    parser.add_argument("--audio", nargs=2, metavar=("FILE_A", "FILE_B"), help="wav files that the commands write")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commands = {"A": options.a, "B": options.b}
    runs = {"A": [], "B": []}
    for i in range(options.runs + 1):
        for name, command in commands.items():
            time.sleep(options.settle)
            result = run(command)
            if i > 0:
                runs[name].append(result)
    sounds = {"A": None, "B": None}
    if options.audio:
        sounds = {"A": seconds_of_sound(options.audio[0]), "B": seconds_of_sound(options.audio[1])}
    report = {name: summary(runs[name], sounds[name]) for name in commands}
    pairs = [b["wall"] / a["wall"] for a, b in zip(runs["A"], runs["B"])]
    report["b_over_a"] = {"median": report["B"]["median_s"] / report["A"]["median_s"], "least": min(pairs), "most": max(pairs)}
    if options.json:
        json.dump(report | {"commands": commands}, sys.stdout, indent=2)
        print()
        return
    for name in commands:
        r = report[name]
        line = f"{name}  min {r['min_s']:.3f}  median {r['median_s']:.3f}  max {r['max_s']:.3f} s,  cpu {r['cpu_s']:.2f} s,  peak {r['peak_mib']:.0f} MiB"
        if sounds[name]:
            line += f",  {r['sound_s']:.2f} s of sound, real-time factor {r['real_time_factor']:.3f}"
        print(line + f"\n   {commands[name]}")
    ratio = report["b_over_a"]
    print(f"B takes {ratio['median']:.2f} times as long as A (pairs: {ratio['least']:.2f} to {ratio['most']:.2f})")


if __name__ == "__main__":
    main()
