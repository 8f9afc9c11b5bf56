"""Writes small OpenVINO IRs as `ov.save_model` does: layers, edges, and a .bin of constants."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np

from visualquant.core.tensors import ELEMENT_TYPES, TensorRef

_NAMES = {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "u8", "int4": "i4", "uint4": "u4", "int64": "i64"}
Port = tuple[int, int]


@dataclasses.dataclass
class IrWriter:
    """Layers are added in order; each call returns the (layer, port) that others read."""

    layers: list[str] = dataclasses.field(default_factory=list)
    edges: list[str] = dataclasses.field(default_factory=list)
    data: bytearray = dataclasses.field(default_factory=bytearray)
    shapes: dict[Port, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def layer(
        self,
        kind: str,
        name: str,
        inputs: list[Port],
        shape: tuple[int, ...] | None,
        attributes: dict[str, object] | None = None,
        names: str = "",
        inside: str = "",
    ) -> Port:
        number = len(self.layers)
        text = [f'<layer id="{number}" name={quoteattr(name)} type="{kind}" version="opset1">']
        if attributes:
            text.append("<data " + " ".join(f"{k}={quoteattr(str(v))}" for k, v in attributes.items()) + "/>")
        if inputs:
            ports = "".join(self._port(k, self.shapes[p]) for k, p in enumerate(inputs))
            text.append(f"<input>{ports}</input>")
            self.edges += [
                f'<edge from-layer="{a}" from-port="{b}" to-layer="{number}" to-port="{k}"/>'
                for k, (a, b) in enumerate(inputs)
            ]
        out = (number, len(inputs))
        if shape is not None:
            text.append(f"<output>{self._port(len(inputs), shape, names)}</output>")
            self.shapes[out] = shape
        text.append(f"{inside}</layer>")
        self.layers.append("".join(text))
        return out

    def const(self, name: str, array: np.ndarray, dtype: str | None = None) -> Port:
        kind = dtype or array.dtype.name
        raw = TensorRef.of(array.astype(ELEMENT_TYPES[kind].numpy), ELEMENT_TYPES[kind]).raw().tobytes()
        attributes = {
            "element_type": _NAMES[kind],
            "shape": ", ".join(str(n) for n in array.shape),
            "offset": len(self.data),
            "size": len(raw),
        }
        self.data += raw
        return self.layer("Const", name, [], array.shape, attributes)

    def parameter(self, name: str, shape: tuple[int, ...]) -> Port:
        return self.layer("Parameter", name, [], shape, {"element_type": "f32"}, names=name)

    def result(self, port: Port) -> None:
        self.layer("Result", "result", [port], None)

    def save(self, path: Path) -> Path:
        text = f'<?xml version="1.0"?>\n<net name="m" version="11"><layers>{"".join(self.layers)}</layers>'
        text += f"<edges>{''.join(self.edges)}</edges>"
        text += '<rt_info><Runtime_version value="2026.4.1"/></rt_info></net>'
        path.write_text(text)
        path.with_suffix(".bin").write_bytes(bytes(self.data))
        return path

    def _port(self, number: int, shape: tuple[int, ...], names: str = "") -> str:
        sizes = "".join(f"<dim>{n}</dim>" for n in shape)
        return f'<port id="{number}" precision="FP32" names="{names}">{sizes}</port>'
