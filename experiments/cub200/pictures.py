"""What models make of hidden patches: `python -m experiments.cub200.pictures --runs DIR ... --output DIR`.

A column each for the original, what is shown of it, and every model's reconstruction; a row an image. The images are a
few of the test split, always the same, and their masks those of the test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from omegaconf import OmegaConf
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torchvision.transforms.v2 import functional
from torchvision.utils import make_grid

from experiments.cub200.batches import ImageBatch
from experiments.cub200.data import CubData
from experiments.cub200.masks import composite, masked_patches, masked_pixels, paper_composite
from experiments.cub200.tables import named_groups
from experiments.loading import CONFIG, build, load_model, read_checkpoint
from experiments.results import RESULT, ResultError, read_result
from experiments.summary import pool_seeds
from tensormem.models.masked_autoencoder import MaskedAutoencoder

# So many images, with so large a share of their patches hidden.
NUM_IMAGES, RATIO = 6, 0.75
_GREY = 0.5
# Small images are enlarged, so that pixels can be told apart.
_LEAST_SIDE = 128
_GAP, _HEADER = 4, 20


def reconstruction(model: MaskedAutoencoder, batch: ImageBatch, ratio: float) -> Tensor:
    """(B, 3, S, S) the images with their hidden patches as predicted; by the paper's way where a model predicts
    normalised pixels, which uses the hidden answer."""
    hidden = masked_patches(batch.noise, ratio)
    device = next(model.parameters()).device
    with torch.no_grad():
        predicted = model(batch.images.to(device), hidden.to(device), batch.noise.to(device)).float().cpu()
    paste = composite if model.target == "pixels" else paper_composite
    return paste(predicted, batch.images, hidden).clamp(0, 1)


def sheet(models: Mapping[str, MaskedAutoencoder], batch: ImageBatch, ratio: float = RATIO) -> Image.Image:
    """A row for each image of a batch (on the CPU): the original, what is shown, and each model's reconstruction.

    Args:
        models: by the titles of their columns, in evaluation mode.
        batch: the images and the noise that masks them.
        ratio: share of the patches that is hidden.
    """
    height, width = batch.images.shape[2:]
    hidden = masked_pixels(masked_patches(batch.noise, ratio), height, width)
    columns = {"original": batch.images, "masked input": torch.where(hidden, _GREY, batch.images)}
    columns |= {title: reconstruction(model, batch, ratio) for title, model in models.items()}
    rows = torch.stack(list(columns.values()), dim=1).flatten(0, 1)
    side = max(_LEAST_SIDE, height)
    enlarged = functional.resize(rows, [side, side], functional.InterpolationMode.NEAREST)
    grid = functional.to_pil_image(make_grid(enlarged, nrow=len(columns), padding=_GAP, pad_value=1.0))
    picture = Image.new("RGB", (grid.width, _HEADER + grid.height), "white")
    picture.paste(grid, (0, _HEADER))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size=13)
    for place, title in enumerate(columns):
        centre = _GAP + place * (side + _GAP) + side // 2
        draw.text((centre, _HEADER // 2 + 1), title, fill="black", font=font, anchor="mm")
    return picture


def draw_runs(folders: Iterable[Path], output: Path, root: str | None = None) -> list[Path]:
    """Draw what finished runs make of the test images: a picture for each group of runs that may be compared.

    Args:
        folders: of the runs; of the seeds of a model the first is shown.
        output: folder of the pictures, which are named by target and scale.
        root: data root that holds CUB_200_2011/; None: where the runs found it.

    Returns:
        The files.

    Raises:
        OSError, ValueError: a folder holds no finished run of cub200, or the images are not there.
    """
    results = {folder: read_result(folder / RESULT) for folder in folders}
    for folder, result in results.items():
        if result["experiment"] != "cub200":
            raise ResultError(f"{folder} is a run of {result['experiment']}: give runs of cub200")
    folder_of = {result["config_hash"]: folder for folder, result in results.items()}
    written = []
    for stem, members in named_groups(results.values()):
        shown = {label: folder_of[runs[0]["config_hash"]] for label, runs in pool_seeds(members)}
        batch = _data_of(next(iter(shown.values())), root).test_examples(NUM_IMAGES)
        path = output / f"reconstructions-{stem}.png"
        output.mkdir(parents=True, exist_ok=True)
        models = {label: cast(MaskedAutoencoder, load_model(folder)) for label, folder in shown.items()}
        sheet(models, batch).save(path)
        written.append(path)
    return written


def _data_of(folder: Path, root: str | None) -> CubData:
    """The data of a run; its images are decoded as they are asked for."""
    checkpoint = read_checkpoint(folder)
    root = root or OmegaConf.load(folder / CONFIG).data.root
    data = build(checkpoint.path, checkpoint.data | {"root": root, "cache": "none", "cache_folder": None}, CubData)
    data.setup()
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.cub200.pictures", description=__doc__)
    parser.add_argument("--runs", nargs="+", type=Path, required=True, metavar="DIR", help="folders of finished runs")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder for the pictures")
    parser.add_argument("--root", help="data root that holds CUB_200_2011/ (default: that of the runs)")
    options = parser.parse_args(arguments)
    try:
        written = draw_runs(options.runs, options.output, options.root)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*written, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
