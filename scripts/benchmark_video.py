"""What a frame more costs every model of video as the video grows, in time, state and memory; video.json and video.png.

python scripts/benchmark_video.py --output outputs/video
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from experiments.drawing import panels
from experiments.provenance import collect_provenance, machine
from experiments.render import Section, Table, render_markdown
from experiments.resolvers import CONF
from experiments.timing import interleaved, peak_bytes
from tensormem.models.video_model import StreamingVideo, VideoModel
from tensormem.runtime import keep_freed_memory

NUM_CLASSES = 101
# What is measured, and how a panel says it.
KEYS = {
    "frame_ms": "ms for the logits after one frame more",
    "state_bytes": "bytes held between frames",
    "train_mib": "MiB to train on one clip",
    "train_recompute_mib": "MiB to train on one clip, recompute=true",
}
MIB = 2**20


def model_of(name: str, scale: str, **more: Any) -> VideoModel:
    """A model with random weights and no end to its frames' numbers, in evaluation mode."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", overrides=["experiment=ucf101", f"model=video/{name}", f"scale={scale}"])
    size = {"image_size": config.data.image_size, "patch": config.data.patch}
    torch.manual_seed(0)
    model = instantiate(config.model.network, num_classes=NUM_CLASSES, times="none", **size, **more).eval()
    assert isinstance(model, VideoModel)
    return model


def names() -> list[str]:
    """Every model of video."""
    return sorted(path.stem for path in (CONF / "model" / "video").glob("*.yaml"))


def clip_for(model: VideoModel, num_frames: int) -> torch.Tensor:
    """(1, T, 3, S, S) random frames."""
    return torch.rand(1, num_frames, 3, model.image_size, model.image_size)


@torch.no_grad()
def measure_frames(scale: str, lengths: Sequence[int], rounds: int) -> dict[str, dict[str, list[float]]]:
    """For each model and length: milliseconds of the last frame of so many, a median, and the bytes held before it.

    A model that streams goes on from its state; one that doesn't has to see all frames again.
    """
    zoo = {name: model_of(name, scale) for name in names()}
    rows: dict[str, dict[str, list[float]]] = {name: {"frame_ms": [], "state_bytes": []} for name in zoo}
    for length in lengths:
        clips = {name: clip_for(model, length) for name, model in zoo.items()}
        states = {
            name: model(clips[name][:, :-1])[1]
            for name, model in zoo.items()
            if isinstance(model, StreamingVideo) and length > 1
        }

        def last_frame(name: str, clips: Any = clips, states: Any = states) -> float:
            start = time.perf_counter()
            if name in states:
                zoo[name](clips[name][:, -1:], states[name])
            else:
                zoo[name](clips[name])
            return 1e3 * (time.perf_counter() - start)

        tasks = {name: (lambda name=name: last_frame(name)) for name in zoo}
        for name, milliseconds in interleaved(tasks, rounds, warmup=1).items():
            rows[name]["frame_ms"].append(statistics.median(milliseconds))
            rows[name]["state_bytes"].append(zoo[name].state_bytes(length * len(zoo[name].positions)))
        print(f"frame {length}", file=sys.stderr, flush=True)
    return rows


def train_mib(name: str, scale: str, num_frames: int, recompute: bool) -> float:
    """Peak memory of forward and backward on one clip, in a process of its own, in MiB."""
    what = [name, scale, str(num_frames), str(int(recompute))]
    command = [sys.executable, __file__, "--peak-of", *what]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(name: str, scale: str, num_frames: str, recompute: str) -> None:
    """What ``train_mib`` runs."""
    model = model_of(name, scale, recompute=bool(int(recompute))).train()

    def step(frames: int) -> None:
        model(clip_for(model, frames))[0].square().sum().backward()

    # Compilers, thread pools and the parameters' gradients first.
    step(2)
    print(peak_bytes(lambda: step(int(num_frames))) / MIB)


def draw(results: dict[str, Any], path: Path) -> None:
    """A panel for each of `KEYS`, by the number of frames."""
    keys = {key: label for key, label in KEYS.items() if all(key in row for row in results["models"].values())}
    panels(path, "frames of the video", results["frames"], results["models"], keys, columns=2)


def table(results: dict[str, Any]) -> str:
    """Markdown: the first and the last length."""
    first, last = results["frames"][0], results["frames"][-1]
    keys = [key for key in KEYS if all(key in row for row in results["models"].values())]
    caption = f"{machine(results['provenance'])}; scale {results['scale']}, one video, random weights."
    header = ["model", *(name for key in keys for name in (f"{KEYS[key]}, of {first}", f"of {last:,}"))]
    decimals = {key: 0 if key == "state_bytes" else 1 for key in keys}
    rows = [
        (name, *(f"{row[key][place]:,.{decimals[key]}f}" for key in keys for place in (0, -1)))
        for name, row in results["models"].items()
    ]
    return render_markdown([Table(caption, tuple(header), 1, (Section(None, tuple(rows)),))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Cost of a frame, and memory to train, by the length of the video.")
    parser.add_argument("--output", type=Path, default=Path("outputs/video"), help="folder for the files")
    parser.add_argument("--scale", default="cpu", help="the models' scale")
    parser.add_argument("--rounds", type=int, default=5, help="measurements at each length")
    parser.add_argument("--frames", type=int, nargs="+", default=[1, 4, 16, 64, 256], help="lengths of the video")
    parser.add_argument("--peak-of", nargs=4, metavar=("MODEL", "SCALE", "FRAMES", "RECOMPUTE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peak_of:
        print_peak(*options.peak_of)
        return 0
    keep_freed_memory()
    lengths = sorted(options.frames)
    if options.rounds < 1 or lengths[0] < 1:
        print(f"error: --rounds {options.rounds} and --frames must be at least 1", file=sys.stderr)
        return 2
    rows = measure_frames(options.scale, lengths, options.rounds)
    if sys.platform == "linux":
        print("memory to train: a process for each model and length ...", file=sys.stderr, flush=True)
        for name, row in rows.items():
            for key, recompute in (("train_mib", False), ("train_recompute_mib", True)):
                row[key] = [train_mib(name, options.scale, length, recompute) for length in lengths]
    results = {"provenance": collect_provenance(), "scale": options.scale, "frames": lengths, "models": rows}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "video.json").write_text(json.dumps(results, indent=2) + "\n")
    draw(results, options.output / "video.png")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
