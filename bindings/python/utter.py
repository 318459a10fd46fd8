"""utter - text to speech through libutter, in pure Python (ctypes, nothing to compile).

    import utter

    with utter.Model() as model:                      # the built-in voice; or Model("path/to/model")
        sound = model.say("Hello there.")             # a Sound
        sound.save("hello.wav")
        for chunk in model.stream("A longer text."):  # arrays of float samples, while it is spoken
            play(chunk)

A chunk is an array.array of 32-bit floats in [-1, 1] at model.sample_rate, mono; chunk.tobytes() and numpy.frombuffer(chunk,
"f") both work without numpy being needed here. Leaving a stream early (break, close(), an exception) cancels the synthesis.
Errors are utter.Error with .status and the library's own message.

Threads: a Model may be shared; every say() and stream() runs a task of its own. The GIL is released inside the library.
Any object may be closed by any thread, at any time: a stream that runs is cancelled, and a model or voice takes what was made
from it along. Using what is closed raises ValueError.
The library is found beside this file, in $UTTER_LIBRARY, or where the system's loader looks.
"""
import array
import contextlib
import ctypes
import operator
import os
import sys
import threading
import wave
import weakref
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

__all__ = ["Cancelled", "Error", "Model", "Sound", "Voice", "version"]

AUDIO, DONE, CANCELLED = 1, 2, -4
STREAM_MODES = {"off": 0, "on": 1, "auto": 2}
RANDOM_SEED = 2**64 - 1


class _ModelOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("n_threads", c_int32), ("cpu_level", c_char_p), ("precision", c_int32),
                ("s3gen_path", c_char_p), ("cancel_flag", c_void_p), ("log", c_void_p), ("log_user", c_void_p)]


class _ModelInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("capabilities", c_uint32), ("sample_rate", c_int32), ("channels", c_int32),
                ("n_threads", c_int32), ("family", c_char_p), ("variant", c_char_p), ("path", c_char_p), ("device", c_char_p)]


class _Request(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("prompt_batch_size", c_int32), ("text", c_char_p), ("text_length", c_size_t),
                ("voice", c_void_p), ("language", c_char_p), ("seed", c_uint64), ("max_tokens", c_int32), ("top_k", c_int32),
                ("top_p", c_float), ("min_p", c_float), ("temperature", c_float), ("repetition_penalty", c_float),
                ("exaggeration", c_float), ("cfg_weight", c_float), ("cfm_steps", c_int32), ("stream", c_int32),
                ("stream_first_chunk_tokens", c_int32), ("stream_chunk_tokens", c_int32), ("stream_context_tokens", c_int32),
                ("sentence_silence", c_float), ("drop_pulled", c_int32), ("stream_first_prompt_tokens", c_int32),
                ("stream_serial", c_int32)]

    # What a caller may set by name; the rest is what Model.stream fills in itself.
    settings = {name: kind for name, kind in _fields_ if name not in
                ("struct_size", "text", "text_length", "voice", "seed", "stream", "drop_pulled")}


class _Progress(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("state", c_int32), ("pieces", c_int32), ("pieces_done", c_int32),
                ("prompt_tokens_remaining", c_int32), ("tokens_generated", c_int32), ("samples_ready", c_int64),
                ("text_bytes_done", c_uint64), ("seed", c_uint64), ("truncated", c_uint8)]


def _load():
    name = "libutter.so"
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for path in (os.environ.get("UTTER_LIBRARY"), beside if os.path.exists(beside) else None, "libutter.so.0"):
        if path:
            return ctypes.CDLL(path)


_lib = _load()
_ERROR_TEXT = (c_char_p, c_size_t)
for _name, _result, _arguments in (
        ("version", c_char_p, ()), ("status_text", c_char_p, (c_int32,)),
        ("model_options_init_sized", None, (POINTER(_ModelOptions), c_size_t)),
        ("model_open", c_int32, (POINTER(c_void_p), c_char_p, POINTER(_ModelOptions)) + _ERROR_TEXT),
        ("model_close", None, (POINTER(c_void_p),)), ("model_get_info", c_int32, (c_void_p, POINTER(_ModelInfo))),
        ("voice_load", c_int32, (POINTER(c_void_p), c_void_p, c_char_p, c_void_p) + _ERROR_TEXT),
        ("voice_make_from_file", c_int32, (POINTER(c_void_p), c_void_p, c_char_p, c_void_p) + _ERROR_TEXT),
        ("voice_save", c_int32, (c_void_p, c_char_p) + _ERROR_TEXT), ("voice_free", None, (POINTER(c_void_p),)),
        ("request_init_sized", None, (POINTER(_Request), c_size_t, c_void_p)),
        ("task_create", c_int32, (POINTER(c_void_p), c_void_p) + _ERROR_TEXT), ("task_free", None, (POINTER(c_void_p),)),
        ("task_start", c_int32, (c_void_p, POINTER(_Request))), ("task_step", c_int32, (c_void_p, POINTER(_Progress))),
        ("task_cancel", None, (c_void_p,)), ("task_last_error", c_char_p, (c_void_p,)),
        ("task_pull", c_int32, (c_void_p, POINTER(c_float), c_size_t, POINTER(c_size_t)))):
    _function = getattr(_lib, "utter_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


class Error(Exception):
    """A failure, with the library's message; .status is the utter_status."""

    def __init__(self, status, message):
        super().__init__(message or _lib.utter_status_text(status).decode())
        self.status = status


class Cancelled(Error):
    """The synthesis was cancelled."""


def version():
    return _lib.utter_version().decode()


def _check(status, message):
    if status < 0:
        raise (Cancelled if status == CANCELLED else Error)(status, message.decode(errors="replace"))
    return status


def _path(path):
    return None if path is None else os.fsencode(path)


def _whole(name, value, bits):
    """value as a whole number that fits: ctypes would cut off what does not."""
    least, most = (-2**31, 2**31 - 1) if bits == 32 else (0, RANDOM_SEED)
    value = operator.index(value)
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is outside {least}..{most}")
    return value


class Sound:
    """Whole speech: .samples (array of floats), .sample_rate, .seed, .truncated (a limit ended a sentence)."""

    def __init__(self, samples, sample_rate, seed, truncated):
        self.samples, self.sample_rate, self.seed, self.truncated = samples, sample_rate, seed, truncated

    @property
    def seconds(self):
        return len(self.samples) / self.sample_rate

    def save(self, path):
        """Writes a 16-bit wav file."""
        pcm = array.array("h", (max(-32768, min(32767, round(v * 32768))) for v in self.samples))
        if sys.byteorder == "big":
            pcm.byteswap()
        with wave.open(os.fspath(path), "wb") as w:
            w.setparams((1, 2, self.sample_rate, 0, "NONE", ""))
            w.writeframes(pcm.tobytes())


class _Handle:
    """Owns one pointer of the library; a context manager, and closed by the garbage collector at the latest.

    _lock is held while the pointer is used, and taken from the outside in: model, voice, stream. _children are those that
    use this object; they are closed before it."""
    _free = None

    def __init__(self):
        self._pointer, self._lock, self._children = c_void_p(), threading.RLock(), weakref.WeakSet()

    def _open(self):
        if not self._pointer:
            raise ValueError(f"the {type(self).__name__.strip('_').lower()} is closed")
        return self._pointer

    def close(self):
        with self._lock:
            for child in list(self._children):
                child.close()
            if self._pointer:
                getattr(_lib, self._free)(byref(self._pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if _lib is not None and getattr(self, "_pointer", None):
            self.close()


class Voice(_Handle):
    """A speaker, made by Model.load_voice or Model.make_voice."""
    _free = "utter_voice_free"

    def save(self, path):
        error = ctypes.create_string_buffer(512)
        with self._lock:
            _check(_lib.utter_voice_save(self._open(), _path(path), error, 512), error.value)


class Model(_Handle):
    """A model: path to a folder or file, a name that `utter models` lists, or None for the built-in voice."""
    _free = "utter_model_close"

    def __init__(self, path=None, threads=0, precision="f32", cpu=None):
        super().__init__()
        self._listening = threading.RLock()  # held, instead of _lock, while a voice is made, which takes long
        options, error = _ModelOptions(), ctypes.create_string_buffer(512)
        _lib.utter_model_options_init_sized(byref(options), ctypes.sizeof(options))
        options.n_threads, options.precision = _whole("threads", threads, 32), {"f32": 0, "fast": 1}[precision]
        options.cpu_level = cpu.encode() if cpu else None
        _check(_lib.utter_model_open(byref(self._pointer), _path(path), byref(options), error, 512), error.value)
        info = _ModelInfo(struct_size=ctypes.sizeof(_ModelInfo))
        _check(_lib.utter_model_get_info(self._pointer, byref(info)), b"")
        self.sample_rate, self.can_clone = info.sample_rate, bool(info.capabilities & 1)
        self.family, self.variant, self.path, self.device = (
            s.decode() for s in (info.family, info.variant, info.path, info.device))

    def _voice(self, function, path):
        voice, error = Voice(), ctypes.create_string_buffer(512)
        with self._listening:
            with self._lock:
                self._children.add(voice)
            _check(function(byref(voice._pointer), self._open(), _path(path), None, error, 512), error.value)
        return voice

    def close(self):
        with self._listening:
            super().close()

    def load_voice(self, path):
        return self._voice(_lib.utter_voice_load, path)

    def make_voice(self, recording):
        return self._voice(_lib.utter_voice_make_from_file, recording)

    def stream(self, text, voice=None, stream="on", seed=None, **settings):
        """Yields chunks of samples while the text is spoken. settings are the fields of utter_request: temperature, top_k, top_p,
        repetition_penalty, max_tokens, cfm_steps, sentence_silence, stream_chunk_tokens, ... Without a seed one is drawn.
        Threads that share a stream get its chunks in turn."""
        return _Stream(self, text, voice, stream, seed, settings)

    def say(self, text, voice=None, seed=None, **settings):
        """Speaks the whole text and returns a Sound; the same seed gives the same samples; .seed tells a drawn one."""
        samples = array.array("f")
        with self.stream(text, voice, "off", seed, **settings) as chunks:
            for chunk in chunks:
                samples.extend(chunk)
        return Sound(samples, self.sample_rate, chunks.seed, chunks.truncated)


class _Stream(_Handle):
    """The iterator behind Model.stream; also a context manager. .seed and .truncated are known at the end."""
    _free = "utter_task_free"

    def __init__(self, model, text, voice, stream, seed, settings):
        super().__init__()
        self._model, self._voice_used = model, voice  # kept alive
        self._freeing = threading.RLock()  # cancel() may come while _lock is held by a step
        self.seed, self.truncated, self._done = None, False, False
        error, request = ctypes.create_string_buffer(512), _Request()
        with model._lock, voice._lock if voice is not None else contextlib.nullcontext():
            _lib.utter_request_init_sized(byref(request), ctypes.sizeof(request), model._open())
            data = text.encode()
            request.text, request.text_length = data, len(data)
            request.voice = voice._open() if voice is not None else None
            request.stream, request.drop_pulled = STREAM_MODES[stream], 1
            request.seed = RANDOM_SEED if seed is None else _whole("seed", seed, 64)
            for name, value in settings.items():
                self._set(request, name, value)
            for owner in (model, voice):
                if owner is not None:
                    owner._children.add(self)
            _check(_lib.utter_task_create(byref(self._pointer), model._pointer, error, 512), error.value)
            self._check(_lib.utter_task_start(self._pointer, byref(request)))

    @staticmethod
    def _set(request, name, value):
        if name not in _Request.settings:
            raise TypeError(f"unknown setting {name!r}")
        kind = _Request.settings[name]
        if kind is c_int32:
            value = _whole(name, value, 32)
        elif kind is c_char_p and isinstance(value, str):
            value = value.encode()
        setattr(request, name, value)

    def _check(self, status):
        return _check(status, _lib.utter_task_last_error(self._pointer) if status < 0 else b"")

    def cancel(self):
        """From any thread: the running step ends within milliseconds and the iteration raises Cancelled."""
        with self._freeing:
            _lib.utter_task_cancel(self._pointer)

    def close(self):
        self.cancel()
        with self._lock, self._freeing:
            super().close()

    def __iter__(self):
        return self

    def __next__(self):
        progress = _Progress(struct_size=ctypes.sizeof(_Progress))
        with self._lock:
            while not self._done:
                status = self._check(_lib.utter_task_step(self._open(), byref(progress)))
                self._done = status == DONE
                self.seed, self.truncated = progress.seed, bool(progress.truncated)
                chunk = self._pull()
                if chunk:
                    return chunk
        raise StopIteration

    def _pull(self):
        chunk, buffer, n = array.array("f"), (c_float * 8192)(), c_size_t()
        while True:
            self._check(_lib.utter_task_pull(self._pointer, buffer, 8192, byref(n)))
            if n.value == 0:
                return chunk
            chunk.frombytes(memoryview(buffer).cast("B")[:4 * n.value])
