"""A run with all taps and metrics against plain runs of both models on the same samples, as a ratio.

python -m benchmarks.tapped_run [CORPUS]: sessions are made beforehand, rounds alternate.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from pathlib import Path

from visualquant.runtime.feeds import FeedOptions
from visualquant.runtime.states import States
from visualquant.session.activations import Job
from visualquant.session.pipeline import align_models, load_model
from visualquant.session.with_data import DataOptions, DataRun

PAIRS = (
    ("digits_resnet", "ort_qdq_s8s8_pc", "digits"),
    ("mnist_mbnet", "ort_qdq_s8s8_pc", "mnist"),
    ("mnist_vit", "ort_qop_u8u8_pt", "mnist"),
    ("ppocr_cls", "ort_qop_u8u8_pt", "ppocr_cls"),
)
SAMPLES, ROUNDS = 64, 7


def measure(corpus: Path, model: str, file: str, data: str) -> tuple[float, float]:
    """Medians of seconds: both models plain, and the whole tapped run."""
    paths = corpus / model / "fp32.onnx", corpus / model / f"{file}.onnx"
    models = load_model(paths[0]), load_model(paths[1])
    alignment = align_models(*models)
    feeds = FeedOptions(limit=SAMPLES, batch=SAMPLES)
    options = DataOptions(str(corpus / "data" / f"{data}.npz"), feeds=feeds, profile=False)
    with DataRun(paths, models, options) as run, contextlib.ExitStack() as stack:
        runners, feeder = run.opened()
        batches = list(feeder.batches())
        states = States({}, feeder.partner, runners[0].outputs, runners[1].outputs)
        job = Job(*models, alignment, runners, feeder.partner, states, stack)
        job.batch(batches[0])
        plain, tapped = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for batch in batches:
                runners[0].run(batch.float_feeds)
                runners[1].run(batch.quant_feeds)
            plain.append(time.perf_counter() - start)
            start = time.perf_counter()
            for batch in batches:
                job.batch(batch)
            tapped.append(time.perf_counter() - start)
    return statistics.median(plain), statistics.median(tapped)


def main() -> None:
    """Prints a line a pair."""
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "shared" / "corpus"
    for model, file, data in PAIRS:
        plain, tapped = measure(corpus, model, file, data)
        print(f"{model}/{file}: plain {plain * 1e3:.1f} ms, tapped {tapped * 1e3:.1f} ms, {tapped / plain:.2f} times")


if __name__ == "__main__":
    main()
