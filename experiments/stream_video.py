"""What a model says while a video plays: `python -m experiments.stream_video checkpoint=RUN file=clip.avi`.

A line for each frame that the model is given: the likeliest classes, of all that it has seen so far. Frame by frame the
model carries a state of fixed size, so that a video of any length can be watched.

checkpoint    a run folder (its best checkpoint is taken), or a checkpoint file
file          a video
every         give it every so many-th frame, from the first on (as in the test: as many as in training, spread evenly)
top           how many classes a line names (3)
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from experiments.arguments import parse
from experiments.config_check import ConfigError
from experiments.loading import Checkpoint, CheckpointError, build, build_model, read_checkpoint
from experiments.ucf101.batches import scaled
from experiments.ucf101.data import UcfData
from experiments.ucf101.decoding import all_frames, count_frames
from experiments.ucf101.index import read_classes
from experiments.ucf101.sampling import frame_indices
from experiments.views import evaluation_view
from tensormem.models.video_model import StreamingVideo


class Request(NamedTuple):
    """The arguments of the command line; see the module."""

    checkpoint: Annotated[str, Field(min_length=1)]
    file: Annotated[str, Field(min_length=1)]
    every: Annotated[int, Field(ge=1)] | None = None
    top: Annotated[int, Field(ge=1)] = 3


def stream(request: Request) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """For each frame that is given: its number in the file, and the likeliest classes with their probabilities.

    Without ``every`` the last answer is that of a test that takes one view of a video (`data.num_test_views`).

    Raises:
        FileNotFoundError, CheckpointError: see `load_model`; or the list of classes is not there, or not that of the
            training.
        ConfigError: the run is of no model that takes a video frame by frame.
        ClipError: the video can't be decoded.
        ValueError: there are more frames than a model with ``times=learned`` knows.
    """
    checkpoint = read_checkpoint(request.checkpoint)
    model = _video_model(checkpoint)
    data = build(checkpoint.path, checkpoint.data | {"root": os.environ.get("TENSORMEM_DATA", "data")}, UcfData)
    classes = read_classes(data.root, data.folder)
    if len(classes) != checkpoint.arguments["num_classes"]:
        raise CheckpointError(
            f"{checkpoint.path}: the model knows {checkpoint.arguments['num_classes']} classes, the list has "
            f"{len(classes)}: set TENSORMEM_DATA to the data that it was trained on"
        )
    state = model.init_state(1)
    for number, frame in _shown(Path(request.file), data, request.every):
        with torch.no_grad():
            logits, state = model(frame[None, None], state)
        best = logits[0].softmax(-1).topk(min(request.top, len(classes)))
        yield number, [(classes[label], share) for share, label in zip(*map(Tensor.tolist, best), strict=True)]


def _video_model(checkpoint: Checkpoint) -> StreamingVideo:
    model = build_model(checkpoint)
    if not isinstance(model, StreamingVideo):
        raise ConfigError(
            f"{checkpoint.path} is a {type(model).__name__}, which takes no video frame by frame: give a run of a "
            "model of video that streams, such as registers or tensor"
        )
    return model


def _shown(path: Path, data: UcfData, every: int | None) -> Iterator[tuple[int, Float[Tensor, "3 side side"]]]:
    """The frames that the model is given, cut as in the test, and their numbers; one at a time is in memory."""
    times: Counter[int] | None = None
    if every is None:
        # Of a video with too few frames the last one is given again, as in the test.
        times = Counter(frame_indices(count_frames(path, data.damaged), data.num_frames)[0].tolist())
    for number, frame in enumerate(all_frames(path, data.short_side, data.damaged)):
        for _ in range(times[number] if times is not None else not number % (every or 1)):
            yield number, scaled(evaluation_view(frame, data.image_size))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print(__doc__, end="")
        return 0
    try:
        for number, best in stream(parse(Request, arguments)):
            print(f"frame {number}: {', '.join(f'{name} {share:.1%}' for name, share in best)}", flush=True)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
