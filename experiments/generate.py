"""Text from a trained model: `python -m experiments.generate checkpoint=outputs/wikitext/... prompt="the history of"`.

checkpoint    a run folder (its best checkpoint is taken), or a checkpoint file
prompt        what to continue: words between spaces, as the corpus writes them; for tiny Shakespeare any text;
              for a generated language the numbers of symbols, between spaces
num_tokens    how many words, characters or symbols to add (60)
temperature   below 1 likelier words, above 1 rarer ones, 0 always the likeliest (1)
top_k         draw among the so many likeliest only (all)
seed          of the draws (0): the same command prints the same text
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from experiments.arguments import parse
from experiments.config_check import ConfigError
from experiments.loading import Checkpoint, CheckpointError, build, build_model, read_checkpoint
from experiments.wikitext.data import LanguageData
from experiments.wikitext.vocabulary import Vocabulary
from tensormem.models.language_model import LanguageModel


class Request(NamedTuple):
    """The arguments of the command line; see the module."""

    checkpoint: Annotated[str, Field(min_length=1)]
    prompt: str
    num_tokens: Annotated[int, Field(ge=1)] = 60
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


def generate(request: Request) -> str:
    """The prompt and its continuation; names on stderr the words of the prompt that the vocabulary lacks.

    Raises:
        FileNotFoundError, CheckpointError: see `load_model`; or the corpus is not there, or not that of the training.
        ConfigError: a prompt that can't be read.
        ValueError: the model carries no state, or the text would outgrow its positions.
    """
    checkpoint = read_checkpoint(request.checkpoint)
    model = _language_model(checkpoint)
    vocabulary = _vocabulary(checkpoint)
    tokens, unknown = encode_prompt(request.prompt, vocabulary)
    if unknown and vocabulary.unknown_id is not None:
        name = vocabulary.word(vocabulary.unknown_id)
        print(f"not in the vocabulary, read as {name}: {', '.join(unknown)}", file=sys.stderr)
    draws = torch.Generator().manual_seed(request.seed)
    text = model.generate(tokens[None], request.num_tokens, request.temperature, draws, request.top_k)
    return vocabulary.text(text[0].tolist())


def encode_prompt(prompt: str, vocabulary: Vocabulary) -> tuple[Tensor, list[str]]:
    """(N,) ids of a prompt's words, and those words that the vocabulary lacks, each once.

    Raises:
        ConfigError: there is no word, or one that is unknown to a vocabulary without an id for such words.
    """
    words = vocabulary.split(prompt)
    if not words:
        raise ConfigError(f"prompt={prompt!r} has nothing to continue: give at least one word of the corpus")
    unknown = [word for word in dict.fromkeys(words) if word not in vocabulary.ids]
    if unknown and vocabulary.unknown_id is None:
        few = f": it has {' '.join(map(repr, vocabulary.words))}" if vocabulary.size <= 100 else ""
        raise ConfigError(
            f"prompt: {', '.join(map(repr, unknown))} not in the run's vocabulary '{vocabulary.kind}', which has no id "
            f"for unknown words{few}"
        )
    # A vocabulary that ends lines would end the prompt, which is to go on.
    return vocabulary.encode([words])[: len(words)], unknown


def _language_model(checkpoint: Checkpoint) -> LanguageModel:
    model = build_model(checkpoint)
    if not isinstance(model, LanguageModel):
        raise ConfigError(f"{checkpoint.path} is a {type(model).__name__}: give a run of a language model")
    try:
        model.init_state(1)
    except ValueError as error:
        raise ConfigError(f"{checkpoint.path}: this model can't generate, one word after the other: {error}") from error
    return model


def _vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    section = checkpoint.data | {"root": os.environ.get("TENSORMEM_DATA", "data")}
    data = build(checkpoint.path, section, LanguageData)
    data.setup()
    known = checkpoint.arguments["vocab_size"]
    if data.vocab_size != known:
        raise CheckpointError(
            f"{checkpoint.path}: the model knows {known:,} words, corpus={data.corpus} has "
            f"{data.vocab_size:,}: set TENSORMEM_DATA to the data that it was trained on"
        )
    return data.vocabulary


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print(__doc__, end="")
        return 0
    try:
        print(generate(parse(Request, arguments)))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
