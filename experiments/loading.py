"""A trained model from its run folder or its checkpoint: `load_model("outputs/wikitext/base-seed0-...")`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from torch import Tensor

from experiments.checkpoints import BEST, BUILT_FROM, LAST, damage_of
from tensormem.models.zoo_model import ZooModel

CONFIG = "config.yaml"
# What a task calls its model.
_PREFIX = "model."

Built = TypeVar("Built")


class CheckpointError(ValueError):
    """A file that is no checkpoint of a model, or one that does not say what builds the model."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        path: the file.
        weights: the model's state dict.
        network: the config's `model.network`, with `_target_`.
        data: the config's `data`, with `_target_`.
        arguments: what the data added to them: for language the size of the vocabulary.
    """

    path: Path
    weights: dict[str, Tensor]
    network: dict[str, Any]
    data: dict[str, Any]
    arguments: dict[str, Any]


def load_model(path: str | Path) -> ZooModel:
    """The model of a run, on the CPU and in evaluation mode.

    Args:
        path: a run folder (its best checkpoint is taken), or a checkpoint file.

    Raises:
        FileNotFoundError: there is no such path, or no best checkpoint in the folder.
        CheckpointError: the file is no checkpoint of a run; or what builds the model is neither in it nor
            in a config beside it; or its weights are of another model than the one that is built.
    """
    return build_model(read_checkpoint(path))


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint; one from before checkpoints said what builds their model needs the run's config beside it.

    Args:
        path: as for `load_model`.

    Raises:
        FileNotFoundError, CheckpointError: see `load_model`.
    """
    file = _file(Path(path))
    content = _load(file)
    weights = {
        key.removeprefix(_PREFIX): value for key, value in content["state_dict"].items() if key.startswith(_PREFIX)
    }
    if not any(key.startswith("embedding.") for key in weights):
        raise CheckpointError(f"{file} is no checkpoint of a run: its weights have no embedding")
    built_from = content.get(BUILT_FROM) or _config_beside(file)
    arguments = built_from.get("arguments") or _vocabulary_size(file, built_from, weights)
    return Checkpoint(file, weights, dict(built_from["network"]), dict(built_from["data"]), dict(arguments))


def _vocabulary_size(file: Path, built_from: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, int]:
    """The arguments of checkpoints from before there were any: all of language, some with the size by itself."""
    if "embedding.weight" not in weights:
        raise CheckpointError(f"{file} does not say what builds its model, and is of no language model")
    return {"vocab_size": built_from.get("vocab_size", weights["embedding.weight"].shape[0])}


def build_model(checkpoint: Checkpoint) -> ZooModel:
    """The model of a checkpoint that was read, in evaluation mode.

    Raises:
        CheckpointError: see `load_model`.
    """
    model = build(checkpoint.path, checkpoint.network, ZooModel, **checkpoint.arguments)
    try:
        model.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{checkpoint.path}: the weights are not those of the model that its config builds now ({reason}): "
            "load it with the code of the revision in the run's result.json"
        ) from error
    return model.eval()


def build(path: Path, section: Mapping[str, Any], kind: type[Built], **more: Any) -> Built:
    """What a section of a checkpoint's config describes.

    Args:
        path: the checkpoint, for errors.
        section: keyword arguments, and the dotted name of a class as `_target_`.
        kind: what the class must be or extend. Anything else is refused: a file must not choose what is called.
        **more: further keyword arguments.

    Raises:
        CheckpointError: there is no such class, or it is another kind, or does not take the arguments.
    """
    target = section.get("_target_")
    try:
        # Hydra's errors are of no class of their own.
        class_ = get_object(str(target))
    except Exception as error:
        raise CheckpointError(f"{path}: _target_={target!r} can't be found in this checkout") from error
    if not (isinstance(class_, type) and issubclass(class_, kind)):
        raise CheckpointError(f"{path}: _target_={target!r} is no {kind.__name__}")
    arguments = {key: value for key, value in section.items() if key != "_target_"}
    try:
        return class_(**arguments, **more)
    except TypeError as error:
        raise CheckpointError(f"{path}: _target_={target!r} is another class now ({error})") from error


def _file(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such run folder or checkpoint")
    if not path.is_dir():
        return path
    if not (path / BEST).exists():
        last = f"; before its first evaluation, give {path / LAST}" if (path / LAST).exists() else ""
        raise FileNotFoundError(f"{path} holds no {BEST}: give the folder of a run{last}")
    return path / BEST


def _load(file: Path) -> dict[str, Any]:
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a file of another kind fails in as many ways as there are kinds
        raise CheckpointError(f"{file} is no checkpoint: give a run folder, or its {BEST} or {LAST}") from error
    if not (isinstance(content, dict) and isinstance(content.get("state_dict"), dict)):
        raise CheckpointError(f"{file} is no checkpoint of a run (it has no state_dict): give its {BEST} or {LAST}")
    if problem := damage_of(file):
        raise CheckpointError(f"{file} is damaged ({problem}): give another of the run's, or train it again")
    return content


def _config_beside(file: Path) -> dict[str, Any]:
    path = file.parent / CONFIG
    if not path.exists():
        raise CheckpointError(
            f"{file} does not say what builds its model, and there is no {CONFIG} beside it: put the run's there"
        )
    config: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    try:
        return {"network": config["model"]["network"], "data": config["data"]}
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has no model.network or no data: put the run's {CONFIG} there") from error
