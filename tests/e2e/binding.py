"""The Python module against the installed library: whole, streamed, left early, cancelled, refused."""
import array
import threading
import wave

import utter

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
try:
    utter.Model("/no/such/model")
    raise SystemExit("no such model")
except utter.Error as e:
    assert "/no/such/model" in str(e)
