"""The link to an agent on loopback: python -m benchmarks.agent_link

Raw taps against a plain TCP socket that moves the same bytes, and what looking costs: summaries and whole tensors
against the plain run. Ratios, since seconds belong to one machine.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from benchmarks.nets import resnet50, samples, write_pair
from onnx import TensorProto, helper

from visualquant.core.taps import RunOptions
from visualquant.runtime.connect import Access
from visualquant.runtime.remote import Device
from visualquant.runtime.remote_runner import RemoteRunner
from visualquant.testing.bench.rounds import alternate, ratio

ROUNDS = 7
SIZE = 224
TAPS = 8
FLOATS = 8 << 20


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "visualquant_agent", "serve", "--listen", "127.0.0.1:0", "--store", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    yield f"127.0.0.1:{int(process.stderr.readline().split('port=')[1].split()[0])}"
    process.terminate()
    process.wait()


def plain_socket(total: int) -> None:
    """Moves `total` bytes over one TCP connection on loopback into fresh memory."""
    listener = socket.create_server(("127.0.0.1", 0))
    block = bytes(1 << 20)

    def send() -> None:
        sender, _ = listener.accept()
        with sender:
            for _ in range(total >> 20):
                sender.sendall(block)

    thread = threading.Thread(target=send)
    thread.start()
    with socket.create_connection(listener.getsockname()) as receiver:
        buffer = np.empty(total, np.uint8)
        view, at = memoryview(buffer), 0  # type: ignore[arg-type]
        while at < total:
            at += receiver.recv_into(view[at : at + (1 << 20)])
    thread.join()
    listener.close()


def wide_model(path: Path) -> Path:
    """Cheap operators with large outputs."""
    nodes = [helper.make_node("Neg", [f"v{k}" if k else "x"], [f"v{k + 1}"], name=f"n{k}") for k in range(TAPS)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info(f"v{TAPS}", TensorProto.FLOAT, ["N"])],
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    return path


def changing(graph: onnx.GraphProto) -> list[str]:
    """Values that depend on the input: the others are constants, which nobody needs to look at again."""
    found = dict.fromkeys(i.name for i in graph.input)
    for node in graph.node:
        if any(name in found for name in node.input):
            found.update(dict.fromkeys(node.output))
    return [name for name in found if name not in {i.name for i in graph.input}]


def link(device: Device, folder: Path) -> None:
    total = TAPS * FLOATS * 4
    with RemoteRunner(wide_model(folder / "wide.onnx"), RunOptions(threads=1, level="none"), device) as runner:
        feeds = {"x": np.ones(FLOATS, np.float32)}
        taps = [f"v{k}" for k in range(1, TAPS + 1)]
        held: list[np.ndarray] = []

        def tap() -> None:
            for event in runner.tap([((0,), feeds)], taps):
                held[:] = [event.array]

        timings = alternate({"plain TCP socket": lambda: plain_socket(total), "raw taps": tap}, ROUNDS)
    print(f"{total / 1e6:.0f} MB in {TAPS} tensors over loopback")
    for name, timing in timings.items():
        share, spread = ratio(timing, timings["plain TCP socket"])
        print(f"{name:<24}{total / timing.median / 1e9:6.2f} GB/s  {share:5.2f} of the socket ±{spread:.0%}")


def looking(device: Device, folder: Path) -> None:
    _, path = write_pair(resnet50(SIZE), SIZE, folder, "resnet50")
    with RemoteRunner(path, RunOptions(threads=1), device) as runner:
        feeds = {"x": samples(1, SIZE)}
        taps = changing(runner.optimised().graph)
        rows = {}
        for name, run in (
            ("plain run", lambda: runner.run(feeds)),
            ("summaries", lambda: runner.summarise(feeds, taps)),
            ("all tensors", lambda: [None for _ in runner.tap([((0,), feeds)], taps)]),
        ):
            rows[name] = alternate({name: run}, ROUNDS)[name]  # NOTE: in turns, sessions would be opened anew
    print(f"ResNet-50, uint8 activations and int8 weights, {SIZE}×{SIZE}, {len(taps)} values")
    for name, timing in rows.items():
        times, spread = ratio(rows["plain run"], timing)
        print(f"{name:<24}{timing.median * 1e3:8.1f} ms  {times:5.2f} plain runs ±{spread:.0%}")


def main() -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with agent(folder / "store") as address, Device(Access(address)) as device:
            link(device, folder)
            looking(device, folder)


if __name__ == "__main__":
    main()
