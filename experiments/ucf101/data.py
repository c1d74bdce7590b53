"""UcfData: UCF-101, or any data set in its layout, as a Lightning data module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from experiments.batches import endless_loader
from experiments.data import Data, check_minima
from experiments.ucf101.batches import Augmentation, ClipBatch, EvaluationBatches, Pool, TrainingBatches
from experiments.ucf101.clips import CACHES, open_clips
from experiments.ucf101.decoding import DAMAGED, decoder
from experiments.ucf101.index import MISSING, SPLITS, Clip, read_index
from experiments.ucf101.splits import Splits, split


class UcfData(Data):
    """Random views of the clips for training; their centres for validation and test.

    Batches are `ClipBatch`. Training batches go on for ever: bound the run by its steps. Validation is held out of the
    official train split, group by group; the official test split is touched by the test alone.

    Every frame is first resized so that its shorter side has ``image_size * evaluation_resize`` pixels. A training
    view is cut from that as well, with one crop, one mirroring, one change of colours and one shift in time for all its
    frames.

    Args:
        root: data root; None: there is none, which `setup` says.
        folder: the data set's folder under it; None: the root itself where it holds ``ucfTrainTestlist/``, else
            its ``UCF101/``.
        split: number of the official split, 1 to 3.
        missing: ``error``, or ``drop`` listed clips that are not there, which the result then says.
        damaged: ``error``, or ``repeat`` the frame before a damaged one; see `count_frames`.
        num_frames: frames T of a view, spread evenly over the clip; see `frame_indices`.
        num_test_views: views K of a clip in the test, whose predictions are to be averaged.
        image_size: pixels of a side of the square frames.
        patch: pixels of a side of a patch.
        batch_size: clips of a batch; in training over all processes together.
        seed: of the training batches; batch g depends on (seed, g) alone.
        validation_share: of the official train split's groups, held out for validation; see `split`.
        evaluation_resize: shorter side of a frame before its centre is cut out, as a multiple of ``image_size``;
            256 pixels for 224 as published.
        crop_scale: smallest and largest share of a frame's area that a training view shows.
        flip: whether every other training view is mirrored.
        colour_jitter: largest change of brightness, contrast and saturation in training, as a share of each; the paper
            names no strength.
        shift_times: whether a training view's frames lie at a random place in the equal parts of the clip, one for all
            parts, and not in their middles.
        label_smoothing: share of the probability that the training's answers spread over all classes.
        num_workers: processes that prepare training batches (spawned); they don't change the batches.
        cache: ``none``, or ``disk``: decoded frames are kept there; it changes no pixel.
        cache_folder: folder of the ``disk`` cache, outside the data set.
        max_clips: cut each split to so many clips, for smoke runs; None for the whole splits.

    Raises:
        ValueError: an argument out of range, with its name, value and what is allowed.
    """

    def __init__(
        self,
        *,
        root: str | Path | None,
        folder: str | None = None,
        split: int = 1,
        missing: str = "error",
        damaged: str = "error",
        num_frames: int = 8,
        num_test_views: int = 1,
        image_size: int = 224,
        patch: int = 16,
        batch_size: int = 16,
        seed: int = 0,
        validation_share: float = 0.1,
        evaluation_resize: float = 256 / 224,
        crop_scale: Sequence[float] = (0.5, 1.0),
        flip: bool = True,
        colour_jitter: float = 0.2,
        shift_times: bool = True,
        label_smoothing: float = 0.1,
        num_workers: int = 0,
        cache: str = "none",
        cache_folder: str | Path | None = None,
        max_clips: int | None = None,
    ) -> None:
        super().__init__()
        minima: dict[str, tuple[float, float]] = {
            "num_frames": (num_frames, 1),
            "num_test_views": (num_test_views, 1),
            "image_size": (image_size, 1),
            "patch": (patch, 1),
            "batch_size": (batch_size, 1),
            "seed": (seed, 0),
            "evaluation_resize": (evaluation_resize, 1),
            "num_workers": (num_workers, 0),
        }
        if max_clips is not None:
            minima["max_clips"] = (max_clips, 1)
        check_minima(minima)
        choices: dict[str, tuple[Any, Sequence[Any]]] = {
            "split": (split, SPLITS),
            "missing": (missing, MISSING),
            "damaged": (damaged, DAMAGED),
            "cache": (cache, CACHES),
        }
        for name, (value, known) in choices.items():
            if value not in known:
                raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(map(str, known))}")
        if image_size % patch:
            raise ValueError(f"image_size={image_size}: must be a multiple of patch={patch}")
        if not 0 < validation_share < 1:
            raise ValueError(f"validation_share={validation_share}: must be above 0 and below 1")
        for name, share in (("colour_jitter", colour_jitter), ("label_smoothing", label_smoothing)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name}={share}: must be from 0 to 1")
        if len(crop_scale) != 2 or not 0 < crop_scale[0] <= crop_scale[1] <= 1:
            raise ValueError(f"crop_scale={tuple(crop_scale)}: must be two shares, 0 < smallest <= largest <= 1")
        if (cache == "disk") != (cache_folder is not None):
            raise ValueError(f"cache={cache!r}, cache_folder={cache_folder}: a folder goes with 'disk', and only there")
        self.root = root
        self.folder = folder
        self.split = split
        self.missing = missing
        self.damaged = damaged
        self.num_frames = num_frames
        self.num_test_views = num_test_views
        self.image_size = image_size
        self.patch = patch
        self.batch_size = batch_size
        self.seed = seed
        self.validation_share = validation_share
        self.evaluation_resize = evaluation_resize
        crop = float(crop_scale[0]), float(crop_scale[1])
        self.augmentation = Augmentation(crop, flip, colour_jitter, shift_times)
        self.label_smoothing = label_smoothing
        self.num_workers = num_workers
        self.cache = cache
        self.cache_folder = None if cache_folder is None else Path(cache_folder)
        self.max_clips = max_clips
        self._source = ""
        self._classes: tuple[str, ...] = ()
        self._pools: dict[str, Pool] | None = None

    def setup(self, stage: str | None = None) -> None:
        """Read the lists and split, once; ``stage`` makes no difference. Clips are decoded when their turn comes.

        Raises:
            UcfNotFoundError: the data set, a list or a listed clip is not there.
            UcfMismatchError: its lists disagree.
            ValueError: a split would be empty.
        """
        if self._pools is not None:
            return
        index = read_index(self.root, self.folder, self.split, self.missing)
        splits = split(index, self.validation_share, self.max_clips)
        members = [clip for chosen in splits for clip in chosen]
        paths = [index.file(clip) for clip in members]
        clips = open_clips(paths, self.short_side, self.cache, self.cache_folder, self.damaged)
        places = {clip: place for place, clip in enumerate(members)}

        def pool(chosen: Sequence[Clip]) -> Pool:
            ids, labels = [clip.id for clip in chosen], [clip.label for clip in chosen]
            return Pool(clips, [places[clip] for clip in chosen], ids, labels, self.image_size, self.num_frames)

        self._source = index.describe()
        self._classes = index.classes
        self._pools = dict(zip(Splits._fields, map(pool, splits), strict=True))

    @property
    def short_side(self) -> int:
        """Pixels of the shorter side that every frame is resized to."""
        return round(self.image_size * self.evaluation_resize)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by their labels; raises RuntimeError before `setup`."""
        self._pool("train")
        return self._classes

    @property
    def tokens_per_clip(self) -> int:
        """Patches of all frames of a view."""
        return self.num_frames * (self.image_size // self.patch) ** 2

    @property
    def network_arguments(self) -> dict[str, Any]:
        """Number of classes, frames of a view, and sides of a frame and of a patch in pixels.

        Raises:
            RuntimeError: before `setup`, which counts the classes.
        """
        return {
            "num_classes": len(self.classes),
            "num_frames": self.num_frames,
            "image_size": self.image_size,
            "patch": self.patch,
        }

    @property
    def tokens_per_step(self) -> int:
        """Patches of a training batch."""
        return self.batch_size * self.tokens_per_clip

    @property
    def num_evaluation_tokens(self) -> tuple[int, int]:
        """Patches of validation and of test; raises RuntimeError before `setup`."""
        test = len(self._pool("test")) * self.num_test_views
        return len(self._pool("validation")) * self.tokens_per_clip, test * self.tokens_per_clip

    @property
    def source(self) -> str:
        """The split, and how much of what is listed was there; raises RuntimeError before `setup`."""
        self._pool("train")
        return f"split {self.split}, {self._source}"

    @property
    def extra_result(self) -> dict[str, Any]:
        """How much of what is listed was there, and what decodes it; raises RuntimeError before `setup`."""
        self._pool("train")
        return {"clips": {"found": self._source, "decoder": decoder()}}

    def train_dataloader(self) -> DataLoader[ClipBatch]:
        """Endless training batches, from the first one the attached trainer hasn't used (0 without one)."""
        batches = TrainingBatches(self._pool("train"), self.batch_size, self.seed, self.augmentation, *self.place)
        return endless_loader(batches, self.num_workers)

    def val_dataloader(self) -> EvaluationBatches:
        """One pass over the clips that are held out of the official train split, a view of each."""
        return EvaluationBatches(self._pool("validation"), self.batch_size)

    def test_dataloader(self) -> EvaluationBatches:
        """One pass over the official test split, ``num_test_views`` views of each clip."""
        return EvaluationBatches(self._pool("test"), self.batch_size, self.num_test_views)

    def _pool(self, name: str) -> Pool:
        if self._pools is None:
            raise RuntimeError("UcfData has no data yet: call setup() first")
        return self._pools[name]
