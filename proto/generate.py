"""Regenerates the committed protobuf and gRPC code.

    python proto/generate.py            writes agent/src/visualquant_agent/wire/v1
    python proto/generate.py --check    exit code 1 where the committed code is not what this schema gives

The generator is pinned and lives in a virtual environment of its own (build/proto-venv): its output loads on
protobuf 4.25 and newer and on grpcio 1.62 and newer, while newer generators refuse the old runtimes of boards.
"""

from __future__ import annotations

import argparse
import filecmp
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "visualquant_agent/wire/v1/agent.proto"
TARGET = ROOT / "agent" / "src"
REQUIREMENTS = ["grpcio-tools==1.62.3", "setuptools<81"]
GENERATED = ("agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py")


def generator() -> Path:
    """The python of the pinned environment, made on first use."""
    folder = ROOT / "build" / "proto-venv"
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS)
    if not (stamp.exists() and stamp.read_text() == wanted):
        if sys.version_info[:2] > (3, 12):
            sys.exit("grpcio-tools 1.62.3 has wheels for CPython 3.11 and 3.12: run this script with one of them.")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        stamp.write_text(wanted)
    return python


def generate(out: Path) -> None:
    """Writes the generated modules below `out`."""
    python = generator()
    command = [python, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}", f"--pyi_out={out}"]
    subprocess.run([*command, f"--grpc_python_out={out}", SCHEMA], check=True)


def main() -> int:
    """Writes or checks."""
    parser = argparse.ArgumentParser(description="Regenerates the committed protobuf and gRPC code.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 on drift")
    if not parser.parse_args().check:
        generate(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        place = Path(SCHEMA).parent
        drifted = [
            name
            for name in GENERATED
            if not (TARGET / place / name).exists()
            or not filecmp.cmp(Path(folder) / place / name, TARGET / place / name, shallow=False)
        ]
    for name in drifted:
        print(f"{place / name} is not what {SCHEMA} gives: run `python proto/generate.py`", file=sys.stderr)
    return 1 if drifted else 0


if __name__ == "__main__":
    sys.exit(main())
