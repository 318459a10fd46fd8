#!/usr/bin/env python3
"""mutations.py [ID ...] - breaks a copy of the source in one way after the other and shows that the named test goes red.

The mutations are those of the step and cancel contract, in the places where this engine keeps it. Run on demand, not in CI: it
builds once and then a little for each. M-10 to M-15 of the contract break a scheduler's work accounting, which a native engine
does not have; what they guard (a poll that never breaks) is M-9 here. M-2 and M-3 are two places there and one here: a step
looks once, after all of its work.
"""
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# id, what is broken, file, text, replacement, test program (and its filter), environment
MUTATIONS = [
    ("M-1", "a cancel is not latched", "src/base/cancel.h",
     "        atomic_store_explicit(&c->latched, true, memory_order_release);\n        return true;", "        return true;",
     "unit/test-base", {}),
    ("M-2", "no look at the cancel after the step's work", "src/engine/task.c",
     "    if (cancel_poll(&t->cancel)) return cancelled(t); /* the commit point */\n", "", "api/test-api_cancel", {}),
    ("M-4", "the flag is never read", "src/base/cancel.h", "if (flag && __atomic", "if (false && flag && __atomic",
     "api/test-api_cancel", {}),
    ("M-5a", "a flag is taken by an idle task", "src/engine/task.c",
     "if (!is_active(t)) return error_set(&t->error, UTTER_INVALID_STATE, \"cancel flag", "if (false) return error_set(&t->error, UTTER_INVALID_STATE, \"cancel flag",
     "api/test-api_cancel", {}),
    ("M-5b", "a NULL flag is taken", "src/engine/task.c", "    if (!flag) return error_set(", "    if (false) return error_set(",
     "api/test-api_cancel", {}),
    ("M-6", "the flag is kept after the end and over a start", "src/base/cancel.h",
     "    atomic_store_explicit(&c->flag, NULL, memory_order_release);\n", "", "api/test-api_cancel", {},
     ("src/engine/task.c", "    cancel_attach_flag(&t->cancel, NULL);\n", "")),
    ("M-7", "work without a cancel token is not allowed for", "src/base/cancel.h", "    if (!c) return false;\n", "",
     "unit/test-base", {}),
    ("M-8", "the step's work does not know the task's cancel", "src/engine/utterance.c",
     "stream_create(&u->stream, m->device, cancel, 0, e)", "stream_create(&u->stream, m->device, cancel ? NULL : cancel, 0, e)",
     "api/test-api_cancel", {"UTTER_TIMING": "1"}),
    ("M-9", "a poll between tiles never breaks", "src/base/pool.c", "        if (cancel_poll(p->cancel)) return;\n", "",
     "unit/test-base", {}),
    ("M-9a", "what looks at a whole recording never polls", "src/base/cancel.h",
     "return cancel_poll(c) ? error_set", "return c && false ? error_set", "unit/test-clip", {}),
    ("M-9b", "the tokenizer is built without a poll", "src/text/tokenizer.c", "return ++t->n_polls % 256 ? UTTER_OK : ",
     "return ++t->n_polls ? UTTER_OK : ", "unit/test-text", {}, ("src/checkpoint/json_parts.c",
     "(s = cancel_check(cancel, e)) == UTTER_OK", "(s = UTTER_OK) == UTTER_OK")),
    ("M-9c", "who waits for a lock never polls", "src/base/cancel.c", "while (!cancel_poll(c))", "while (true)",
     "unit/test-base", {}),
    ("M-9d", "a step does not wait for the tokens beside its sound", "src/base/pool.c",
     "    while (atomic_load(&p->loan) != LOAN_ENDED) pthread_cond_wait(&p->loan_ended, &p->sleep_lock);\n", "",
     "unit/test-base", {}),
    ("M-9e", "tokens beside sound never poll", "src/device/cpu/cpu.c", "        if (cancel_poll(s->cancel)) return false;\n        fn(arg, tile, 0);",
     "        fn(arg, tile, 0);", "unit/test-device", {}),
    ("M-16b", "tokens made ahead survive a cancelled run", "src/engine/utterance.c", "    l->n_made = l->n_told = 0;\n", "",
     "api/test-api_cancel", {}),
    ("M-16c", "pieces queued survive a cancelled run", "src/engine/task.c", "    t->piece = t->queued = 0;\n", "    t->piece = 0;\n",
     "api/test-api_cancel", {}),
    ("M-17b", "a voice is known by its address", "src/engine/voice.c", "v->kept->serial = atomic_fetch_add(&voices, 1) + 1;",
     "v->kept->serial = voices + 1;", "api/test-api_voice", {}),
    ("M-16", "an utterance goes on with the stream that a cancel broke", "src/engine/utterance.c", "    stream_clear(u->stream);\n", "",
     "api/test-api_cancel", {}),
    ("M-17", "the sound's state survives a cancelled run", "src/engine/utterance.c",
     "    s3gen_stream_begin(u->s3gen, ", "    static int runs;\n    if (runs++ != 1) s3gen_stream_begin(u->s3gen, ", "api/test-api_cancel", {}),
    ("M-18", "the random stream goes on instead of beginning again", "src/engine/task.c",
     '.seed = rng_bits(rng_stream(r->seed, "piece"), piece)', '.seed = rng_bits(rng_stream(r->seed, "piece"), piece + (size_t)t->n_runs)',
     "api/test-api_determinism", {}),
    ("M-18b", "a queued piece draws with the current one's seed", "src/engine/task.c", "= piece_options(t, t->queued);", "= piece_options(t, t->piece);",
     "api/test-api_pieces", {}),
    ("M-19", "a start keeps an old cancel", "src/engine/task.c", "    cancel_clear(&t->cancel);\n", "", "api/test-api_cancel", {}),
    ("M-20", "no token at all is a success", "src/engine/task.c", "if (utterance_tokens(t->utterance) == 0)", "if (false)",
     "api/test-api_contract", {}),
]


def run(command, folder, **kw):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)


def replace(folder, name, old, new):
    """Returns the original text, to put back."""
    path = os.path.join(folder, name)
    with open(path) as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit(f"{name}: the text to mutate occurs {text.count(old)} times:\n{old}")
    with open(path, "w") as f:
        f.write(text.replace(old, new))
    return path, text


def build(folder):
    return run(["cmake", "--build", "build", "--target", "test-base", "test-device", "test-clip", "test-text", "test-api_contract", "test-api_cancel", "test-api_determinism", "test-api_voice", "test-api_pieces"], folder)


def test(folder, program, environment):
    try:
        return run([f"build/tests/{program.split('/')[0]}/{program.split('/')[1]}"], folder, env={**os.environ, **environment}, timeout=100)
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(e.cmd, 124, "[  FAILED  ] no end after 100 s\n")


def main(wanted):
    escaped = 0
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=SOURCE, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "x"], cwd=folder, input=archive, check=True)
        for command in (["cmake", "-B", "build", "-G", "Ninja"], ["cmake", "--build", "build", "--target", "utter-checkpoint"],
                        ["ctest", "--test-dir", "build", "-R", "^mini-model$"]):
            result = run(command, folder)
            if result.returncode:
                sys.exit(result.stdout)
        if build(folder).returncode:
            sys.exit("the unchanged source does not build")
        for program in ("unit/test-base", "unit/test-device", "unit/test-clip", "unit/test-text", "api/test-api_contract", "api/test-api_cancel", "api/test-api_determinism", "api/test-api_voice", "api/test-api_pieces"):
            if test(folder, program, {"UTTER_TIMING": "1"}).returncode:
                sys.exit(f"{program} is red before anything was changed")
        for name, what, file, old, new, program, environment, *more in MUTATIONS:
            if wanted and name not in wanted:
                continue
            originals = [replace(folder, file, old, new)] + [replace(folder, *m) for m in more]
            built = build(folder)
            result = test(folder, program, environment) if built.returncode == 0 else built
            red = built.returncode == 0 and result.returncode != 0
            failed = [l.split("]")[1].strip() for l in result.stdout.splitlines() if l.startswith("[  FAILED  ]")]
            print(f"{name:5} {'red' if red else 'NOT CAUGHT' if built.returncode == 0 else 'DOES NOT BUILD':10} {what}: {program}"
                  f"{', ' + failed[0] if red and failed else ', crashed' if red else ''}", flush=True)
            escaped += not red
            for path, text in originals:
                with open(path, "w") as f:
                    f.write(text)
    sys.exit(f"{escaped} mutations were not caught" if escaped else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
