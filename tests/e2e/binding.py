"""The Python module against the installed library: whole, streamed, left early, cancelled, refused, misused."""
import array
import ctypes
import os
import signal
import threading
import wave

import utter


def refused(kind, call, *args, **named):
    try:
        call(*args, **named)
    except kind as e:
        return str(e)
    raise SystemExit(f"{args} {named} was accepted")


# SIZES: what the installed header says (install.sh).
structs = (utter._ModelOptions, utter._ModelInfo, utter._Request, utter._Progress)
assert [ctypes.sizeof(s) for s in structs] == list(map(int, os.environ["SIZES"].split())), os.environ["SIZES"]

with utter.Model() as model:
    whole = model.say("Hello.", seed=0)
    assert whole.seed == 0 and not whole.truncated and model.sample_rate == 24000
    w = wave.open("hello.wav")  # what the command made
    command = array.array("h", w.readframes(w.getnframes()))
    assert len(command) == len(whole.samples)
    assert max(abs(round(a * 32768) - b) for a, b in zip(whole.samples, command)) == 0
    assert model.say("Hello.", seed=0).samples == whole.samples
    assert model.say("Hello.", seed=5).samples != whole.samples
    drawn = model.say("Hello.")  # without a seed every run is another one, and tells which
    assert drawn.samples != whole.samples and model.say("Hello.", seed=drawn.seed).samples == drawn.samples
    whole.save("python.wav")
    assert wave.open("python.wav").getnframes() == len(whole.samples)

    chunks = list(model.stream("Hello.", seed=0, stream_first_chunk_tokens=6, stream_chunk_tokens=8))
    assert len(chunks) > 1 and sum(map(len, chunks)) == len(whole.samples)
    serial = model.stream("Hello.", seed=0, stream_first_chunk_tokens=6, stream_chunk_tokens=8, stream_serial=1)
    assert list(serial) == chunks
    short = model.stream("Hello.", seed=0, stream_first_chunk_tokens=6, stream_chunk_tokens=8, stream_first_prompt_tokens=9)
    assert list(short) != chunks

    with model.stream("One sentence. Another sentence. A third one. A fourth.") as stream:
        for chunk in stream:
            break  # leaving early frees the task

    stream = model.stream("One sentence. Another sentence. A third one. A fourth.")
    timer = threading.Timer(0.05, stream.cancel)
    timer.start()
    try:
        for chunk in stream:
            pass
        raise SystemExit("the cancel was not seen")
    except utter.Cancelled:
        pass
    timer.join()
    stream.close()

    for bad in ({"temperature": -1.0}, {"max_tokens": -1}):
        try:
            model.say("Hello.", **bad)
            raise SystemExit(f"{bad} was accepted")
        except utter.Error as e:
            assert next(iter(bad)) in str(e), e
    try:
        model.say("...")
        raise SystemExit("nothing was spoken")
    except utter.Error as e:
        assert e.status == -5
    try:
        model.say("Hello.", temprature=1)
        raise SystemExit("an unknown setting was accepted")
    except TypeError:
        pass
# A child goes on with its parent's model, on its own.
with utter.Model(threads=2) as model:
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # one that hangs is killed
        same = sum(map(len, model.stream("Hello.", seed=0))) == len(whole.samples)
        model.close()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0

# Nothing that a caller sets is cut off or reaches where it does not belong.
with utter.Model() as model:
    for name, value in (("text_length", 10**9), ("struct_size", 8), ("drop_pulled", 0)):
        assert name in refused(TypeError, model.say, "Hello.", **{name: value})
    for name, value in (("seed", 2**64), ("seed", -1), ("top_k", 2**40), ("max_tokens", -2**31 - 1)):
        assert name in refused(ValueError, model.say, "Hello.", **{name: value})
    assert "threads" in refused(ValueError, utter.Model, threads=2**32)
    assert model.say("Hello.", seed=0, language="en").samples == whole.samples

    # Three threads on one stream: each chunk goes to one of them, whole.
    sizes = {"stream_first_chunk_tokens": 9, "stream_chunk_tokens": 4}
    expected = sorted(c.tobytes() for c in model.stream("One sentence.", seed=3, **sizes))
    stream, got = model.stream("One sentence.", seed=3, **sizes), []
    threads = [threading.Thread(target=lambda: got.extend(c.tobytes() for c in stream)) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == expected

    # Closed by another thread in the middle.
    stream = model.stream("One sentence. Another sentence. A third one. A fourth.")
    timer = threading.Timer(0.05, stream.close)
    timer.start()
    refused((utter.Cancelled, ValueError), list, stream)
    timer.join()
    assert "stream is closed" in refused(ValueError, next, stream)
    stream.cancel()

# What is closed is refused, and takes along what was made from it.
with utter.Model(os.environ["MINI"]) as model:
    voice = model.load_voice(os.path.join(model.path, "conds.pt"))
    assert model.say("Hello.", voice, seed=0, max_tokens=2).samples == model.say("Hello.", seed=0, max_tokens=2).samples
    stream = model.stream("Hello.", voice)
    voice.close()
    assert "stream is closed" in refused(ValueError, next, stream)
    assert "voice is closed" in refused(ValueError, model.stream, "Hello.", voice=voice)
    assert "voice is closed" in refused(ValueError, voice.save, "python.voice")
    voice, stream = model.load_voice(os.path.join(model.path, "conds.pt")), model.stream("Hello.")
assert "stream is closed" in refused(ValueError, next, stream)
assert "voice is closed" in refused(ValueError, voice.save, "python.voice")
assert "model is closed" in refused(ValueError, model.say, "Hello.")
assert "model is closed" in refused(ValueError, model.load_voice, "conds.pt")
try:
    utter.Model("/no/such/model")
    raise SystemExit("no such model")
except utter.Error as e:
    assert "/no/such/model" in str(e)
