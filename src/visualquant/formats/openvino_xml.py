"""The XML of an OpenVINO IR as layers, ports and edges: read with expat alone, nothing expanded or fetched.

The `openvino` package (250 MB) would read it as well; the file format is small and stable, so it is read here.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.parsers import expat

from visualquant.errors import ModelFileError

MAX_DEPTH = 64
_INNER = frozenset({"body", "then_body", "else_body", "back_edges", "port_map"})


@dataclasses.dataclass(slots=True)
class Port:
    """One input or output of a layer: its precision, tensor names and sizes (−1 where unknown)."""

    id: str
    precision: str = ""
    names: str = ""
    sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Layer:
    """One <layer>: attributes of the tag and of <data>, ports in file order; bodies inside are skipped."""

    id: str
    name: str
    type: str
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    inputs: list[Port] = dataclasses.field(default_factory=list)
    outputs: list[Port] = dataclasses.field(default_factory=list)
    has_body: bool = False


@dataclasses.dataclass(slots=True)
class Network:
    """A whole IR file.

    Attributes:
        name, version: of the <net> tag.
        layers: in file order.
        edges: (layer, port) that reads → (layer, port) that makes.
        info: values of <rt_info>, by path joined with dots.
    """

    name: str = ""
    version: str = ""
    layers: list[Layer] = dataclasses.field(default_factory=list)
    edges: dict[tuple[str, str], tuple[str, str]] = dataclasses.field(default_factory=dict)
    info: dict[str, str] = dataclasses.field(default_factory=dict)


class _Reader:
    """Handlers of one parse."""

    def __init__(self) -> None:
        self.net = Network()
        self.path: list[str] = []
        self.layer: Layer | None = None
        self.port: Port | None = None
        self.text: list[str] = []
        self.body = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.path.append(tag)
        self.text = []
        if len(self.path) > MAX_DEPTH:
            raise ModelFileError(f"the XML is nested deeper than {MAX_DEPTH}")
        if self.body or (tag in _INNER and self.layer is not None):
            if self.layer is not None and "body" in tag:
                self.layer.has_body = True
            self.body += 1
        elif "rt_info" in self.path:
            if "value" in attributes and self.path[1] == "rt_info":
                last = attributes.get("name", tag) if tag == "info" else tag
                self.net.info[".".join([*self.path[2:-1], last])] = attributes["value"]
        elif tag == "net" and len(self.path) == 1:
            self.net.name, self.net.version = attributes.get("name", ""), attributes.get("version", "")
        elif tag == "layer":
            self.layer = Layer(attributes.get("id", ""), attributes.get("name", ""), attributes.get("type", ""))
        elif tag == "data" and self.layer is not None:
            self.layer.data.update(attributes)
        elif tag == "port" and self.layer is not None:
            self.port = Port(attributes.get("id", ""), attributes.get("precision", ""), attributes.get("names", ""))
        elif tag == "edge":
            reads = (attributes.get("to-layer", ""), attributes.get("to-port", ""))
            self.net.edges[reads] = (attributes.get("from-layer", ""), attributes.get("from-port", ""))

    def end(self, tag: str) -> None:
        self.path.pop()
        if self.body:
            self.body -= 1
        elif tag == "dim" and self.port is not None:
            self.port.sizes.append(int("".join(self.text)))
        elif tag == "port" and self.layer is not None and self.port is not None:
            (self.layer.inputs if self.path[-1] == "input" else self.layer.outputs).append(self.port)
            self.port = None
        elif tag == "layer" and self.layer is not None:
            self.net.layers.append(self.layer)
            self.layer = None

    def characters(self, text: str) -> None:
        if self.port is not None:
            self.text.append(text)


def read_network(path: Path) -> Network:
    """The layers of an IR file.

    Raises:
        ModelFileError: no well-formed XML, a document type or entities in it, or no <net> at its root.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters

    def refuse(*_: object) -> None:
        raise ModelFileError("it declares a document type or entities, which no OpenVINO IR has")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except (expat.ExpatError, ModelFileError, ValueError) as error:
        raise ModelFileError(
            f"{path.name!r} is not a readable OpenVINO IR: {error}. It may be cut short; export it again."
        ) from error
    if not reader.net.layers:
        raise ModelFileError(f"{path.name!r} holds no layers of an OpenVINO IR: it is XML of another kind.")
    return reader.net
