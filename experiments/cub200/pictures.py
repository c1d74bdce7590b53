"""What models make of hidden patches: `python -m experiments.cub200.pictures --runs RUN ... --output FILE`.

A column each for the original, what is shown of it, and every run's reconstruction; a row an image. The images are the
first of each of some classes of the test split, and their masks those of the test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional
from torchvision.utils import make_grid, save_image

from experiments.cub200.batches import ImageBatch
from experiments.cub200.data import CubData
from experiments.cub200.masks import composite, masked_patches, masked_pixels, paper_composite
from experiments.loading import CheckpointError, build, build_model, read_checkpoint
from tensormem.models.masked_autoencoder import MaskedAutoencoder

_GREY = 0.5
# Small images are enlarged, so that pixels can be told apart.
_LEAST_SIDE = 128


def reconstruction(model: MaskedAutoencoder, batch: ImageBatch, ratio: float) -> Tensor:
    """(B, 3, S, S) the images with their hidden patches as predicted; by the paper's way where a model predicts
    normalised pixels, which uses the hidden answer."""
    hidden = masked_patches(batch.noise, ratio)
    with torch.no_grad():
        predicted = model(batch.images, hidden, batch.noise)
    paste = composite if model.target == "pixels" else paper_composite
    return paste(predicted, batch.images, hidden).clamp(0, 1)


def sheet(models: Sequence[MaskedAutoencoder], batch: ImageBatch, ratio: float) -> Tensor:
    """(3, height, width) a row for each image: the original, what is shown, and each model's reconstruction."""
    height, width = batch.images.shape[2:]
    hidden = masked_pixels(masked_patches(batch.noise, ratio), height, width)
    shown = torch.where(hidden, _GREY, batch.images)
    columns = [batch.images, shown, *(reconstruction(model, batch, ratio) for model in models)]
    rows = torch.stack(columns, dim=1).flatten(0, 1)
    enlarged = functional.resize(rows, [max(_LEAST_SIDE, height)] * 2, functional.InterpolationMode.NEAREST)
    return make_grid(enlarged, nrow=len(columns), padding=4, pad_value=1.0)


def spread_batch(data: CubData, count: int) -> ImageBatch:
    """So many images of the test split, evenly spread over it: it is sorted by class."""
    batches = list(data.test_dataloader())
    total = sum(len(batch.ids) for batch in batches)
    chosen = torch.linspace(0, total - 1, count).long()
    return ImageBatch(*(torch.cat([batch[place] for batch in batches])[chosen] for place in range(3)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.cub200.pictures", description=__doc__)
    parser.add_argument("--runs", nargs="+", required=True, metavar="DIR", help="run folders, one a column")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="the picture, e.g. birds.png")
    parser.add_argument("--root", default="data", help="data root that holds CUB_200_2011/")
    parser.add_argument("--ratio", type=float, default=0.75, help="share of the patches that is hidden")
    parser.add_argument("--images", type=int, default=6, help="how many images")
    options = parser.parse_args(arguments)
    try:
        checkpoints = [read_checkpoint(run) for run in options.runs]
        models = [build_model(checkpoint) for checkpoint in checkpoints]
        for checkpoint, model in zip(checkpoints, models, strict=True):
            if not isinstance(model, MaskedAutoencoder):
                raise CheckpointError(f"{checkpoint.path} is a {type(model).__name__}: give a run of cub200")
        data = build(checkpoints[0].path, checkpoints[0].data | {"root": options.root}, CubData)
        data.setup()
        batch = spread_batch(data, options.images)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    save_image(sheet(models, batch, options.ratio), options.output)
    columns = ["original", "what is shown", *(Path(run).name for run in options.runs)]
    print(f"{options.output}: columns are {', '.join(columns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
