"""A model being described: reads metadata keys the way llama.cpp's loader does.

Source: src/llama-model-loader.cpp (get_key, get_key_or_arr, get_arr), b10605. Every failure is a
`ModelError` that names the key. Per-layer attributes are lists of `MAX_LAYERS` until `finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kvwise.errors import ModelError
from kvwise.gguf.header import ArrayInfo, Header
from kvwise.gguf.model import DEFAULTS, KEYS, MAX_LAYERS, Model

_HINT = "the file is damaged or was made by an unfinished converter: convert the model again"
_SCALARS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,)}
_PER_LAYER: dict[str, Any] = {
    "n_head": 0,
    "n_head_kv": 0,
    "n_ff": 0,
    "swa": False,
    "recr": False,
    "rope": True,
    "indexer_full": False,
    "deepstack_mapping": -1,
    "dsv4_compress_ratios": 0,
    "swiglu_clamp_exp": 0.0,
    "swiglu_clamp_shexp": 0.0,
    "xielu_alpha_n": 0.0,
    "xielu_alpha_p": 0.0,
    "xielu_beta": 0.0,
    "xielu_eps": 0.0,
}


class Draft:
    """Attributes of a `Model` under construction, by name: `draft["n_swa"] = 4096`."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.values: dict[str, Any] = dict(DEFAULTS)
        for name, empty in _PER_LAYER.items():
            self.values[name] = [empty] * MAX_LAYERS

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in DEFAULTS:
            raise KeyError(name)
        self.values[name] = value

    @property
    def n_layer(self) -> int:
        """Layers without MTP layers, as far as they are known at this point."""
        return int(self["n_layer_all"] - self["n_layer_nextn"])

    def lie(self, what: str, **fields: object) -> ModelError:
        """The error for a header that contradicts itself."""
        architecture = self.header.architecture
        template = "{architecture} model: " + what
        return ModelError(template, hint=_HINT, architecture=architecture, **fields)

    def need(self, holds: bool, what: str, **fields: object) -> None:
        if not holds:
            raise self.lie(what, **fields)

    def raw(self, key: str) -> Any:
        return self.header.get(key)

    def has(self, name: str) -> bool:
        return self.raw(KEYS[name][0]) is not None

    def scalar(self, key: str, kind: str, required: bool = False) -> Any:
        """The single value of `key`, None when absent; an array or another type is a lie."""
        value = self.raw(key)
        if value is None:
            self.need(not required, "the key {key} is missing", key=self.full(key))
            return None
        self.need(
            self._fits(value, kind), "{key} is not a single {kind}", key=self.full(key), kind=kind
        )
        return float(value) if kind == "float" else value

    def array(self, key: str, required: bool = False) -> tuple[Any, ...] | None:
        """The elements of an array; None when `key` is absent or no array."""
        value = self.raw(key)
        if isinstance(value, ArrayInfo):
            raise self.lie("{key} has {count} elements", key=self.full(key), count=value.count)
        if not isinstance(value, tuple):
            self.need(not required, "the key {key} is missing or no array", key=self.full(key))
            return None
        return value

    def read(self, name: str, required: bool = False) -> bool:
        """get_key: set attribute `name` from its key; False and unchanged when absent."""
        key, kind = KEYS[name]
        value = self.scalar(key, kind, required)
        if value is not None:
            self[name] = value
        return value is not None

    def read_or_array(self, name: str, n: int, required: bool = False) -> bool:
        """get_key_or_arr: `n` elements exactly, or one value for the first `n`."""
        key, kind = KEYS[name]
        element = "float" if "float" in kind else "int"
        value = self.raw(key)
        if isinstance(value, (tuple, ArrayInfo)):
            got = len(value)
            what = "{key} has {got} elements, {n} expected"
            self.need(got == n, what, key=self.full(key), got=got, n=n)
            return self.read_array(name, required)
        if isinstance(value, bool):
            value = int(value)
        elif value is not None:
            value = self.scalar(key, element)
        self.need(value is not None or not required, "the key {key} is missing", key=self.full(key))
        if value is not None:
            self[name][:n] = [self._element(name, value)] * n
        return value is not None

    def read_array(self, name: str, required: bool = False) -> bool:
        """get_arr: the elements there are, over the first ones of the attribute."""
        key, kind = KEYS[name]
        values = self.array(key, required)
        if values is None:
            return False
        types = (float, int) if "float" in kind else (int,)
        sound = len(values) <= MAX_LAYERS and all(isinstance(value, types) for value in values)
        self.need(sound, "{key} is not an array of at most 512 numbers", key=self.full(key))
        self[name][: len(values)] = [self._element(name, value) for value in values]
        return True

    def full(self, key: str) -> str:
        return self.header.architecture + key if key.startswith(".") else key

    def finish(self, **facts: Any) -> Model:
        """Freeze: per-layer attributes become tuples of length `n_layer_all`."""
        values = dict(self.values, **facts)
        for name in _PER_LAYER:
            values[name] = tuple(values[name][: values["n_layer_all"]])
        return Model(self.header, self.header.architecture, **values)

    @staticmethod
    def _fits(value: Any, kind: str) -> bool:
        if kind == "bool":
            return isinstance(value, bool)
        if isinstance(value, bool) or not isinstance(value, _SCALARS[kind]):
            return False
        return not isinstance(value, int) or kind != "int" or 0 <= value < 1 << 32

    @staticmethod
    def _element(name: str, value: Any) -> Any:
        return bool(value) if isinstance(_PER_LAYER.get(name), bool) else value


Step: TypeAlias = Callable[[Draft], None]
"""One quirk of an architecture, applied in the order of its row."""
