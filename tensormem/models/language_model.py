"""What every language model has in common beyond its state: a tied output, `generate`, initial weights.

Legend: B batch, N tokens, L layers, W words in the vocabulary.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tensormem.layers.positions import PositionsKind
from tensormem.layers.stack import Stack
from tensormem.models.sequence_model import SequenceModel, SequenceState

Init = Literal["tuned", "paper"]


class LanguageModel(SequenceModel):
    """Embedding, positions, a stack of blocks, a final LayerNorm and an output tied to the embedding.

    A subclass builds its stack and hands it over. It is then a language model with the whole contract:
    ``forward`` = ``readout(hidden(tokens))``, states, ``generate``.

    Args:
        vocab_size: W.
        dim: width of the tokens.
        stack: the blocks.
        max_length: positions that ``positions=learned`` knows; the other kinds have no limit.
        positions: ``learned``, ``rope`` (the stack's attention rotates) or ``none``.
        dropout: on the embedded tokens.
        init: ``tuned``: weights 0.02 normal, those that end a residual branch scaled by 1 / sqrt(2 L);
            ``paper``: N(0, 1) embeddings and the defaults of PyTorch. The memory keeps its own initialisation.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        stack: Stack,
        *,
        max_length: int = 512,
        positions: PositionsKind = "learned",
        dropout: float = 0.2,
        init: Init = "tuned",
    ) -> None:
        if init not in get_args(Init):
            raise ValueError(f"init={init!r} is unknown; choose one of {get_args(Init)}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size={vocab_size} must be at least 1")
        embedding = nn.Embedding(vocab_size, dim)
        super().__init__(embedding, dim, stack, max_length=max_length, positions=positions, dropout=dropout)
        if init == "tuned":
            self._init_tuned()

    @property
    def output_weight(self) -> Float[Tensor, "W dim"]:
        """The output embedding, which is the input's."""
        return self.embedding.weight  # type: ignore[return-value]

    def hidden(
        self, tokens: Int[Tensor, "B N"], state: SequenceState | None = None
    ) -> tuple[Float[Tensor, "B N dim"], SequenceState | None]:
        """The last hidden vectors, from which ``readout`` makes logits, and the next state.

        Raises:
            ValueError: a state where the model carries none; a position beyond those that were learned.
        """
        return self.encode(self.embedding(tokens), state)

    def readout(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch W"]:
        """Logits of the next word."""
        return nn.functional.linear(hidden, self.output_weight)

    def forward(
        self, tokens: Int[Tensor, "B N"], state: SequenceState | None = None
    ) -> tuple[Float[Tensor, "B N W"], SequenceState | None]:
        """Logits of each token's successor, and the next state."""
        hidden, state = self.hidden(tokens, state)
        return self.readout(hidden), state

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "B N"],
        num_tokens: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        top_k: int | None = None,
    ) -> Int[Tensor, "B total"]:
        """Continue each row of tokens by num_tokens, one at a time; temperature 0 takes the likeliest word.

        Works in evaluation mode, whatever mode the model is in.

        Args:
            tokens: what to continue.
            num_tokens: how many to add.
            temperature: divides the logits; finite, not negative.
            generator: draws the words.
            top_k: draw among the so many likeliest words only; None: among all.

        Raises:
            ValueError: an argument out of range; nothing to continue; the model carries no state; the learned positions
                end before the text does (said before anything is generated).
        """
        if num_tokens < 0:
            raise ValueError(f"num_tokens={num_tokens} must not be negative")
        if not tokens.shape[1]:
            raise ValueError("there is nothing to continue: give at least one token")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature={temperature} must be finite and not negative (0: the likeliest word)")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k={top_k} must be at least 1, or None to draw among all words")
        self._require_positions(tokens.shape[1], num_tokens)
        was_training = self.training
        self.eval()
        try:
            state: SequenceState | None = self.init_state(tokens.shape[0], tokens.device)
            following = tokens
            for _ in range(num_tokens):
                logits, state = self(following, state)
                following = _draw(logits[:, -1].float(), temperature, generator, top_k)
                tokens = torch.cat([tokens, following], dim=1)
            return tokens
        finally:
            self.train(was_training)

    def _require_positions(self, given: int, num_tokens: int) -> None:
        if self.positions is None or num_tokens < 1:
            return
        # The last new token is not fed back, so it needs no position.
        fit = max(self.positions.max_length - given + 1, 0)
        if num_tokens > fit:
            raise ValueError(
                f"num_tokens={num_tokens} after {given} given tokens is too long: positions=learned ends at "
                f"{self.positions.max_length} tokens, so {fit} fit; lower num_tokens, shorten what is given, or train "
                "with positions=rope or positions=none"
            )

    def _init_tuned(self) -> None:
        std = 0.02
        memory = self.stack.memory
        own = set() if memory is None else set(memory.modules())
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding) and module not in own:
                nn.init.normal_(module.weight, std=std)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=std)
        residual_std = std / math.sqrt(2 * len(self.stack.blocks))
        for block in self.stack.blocks:
            nn.init.normal_(block.mixer.output.weight, std=residual_std)
            nn.init.normal_(block.mlp.output.weight, std=residual_std)


def _draw(
    logits: Float[Tensor, "B W"], temperature: float, generator: torch.Generator | None, top_k: int | None
) -> Int[Tensor, "B 1"]:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if top_k is not None:
        values, words = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
        # Scattered back, so that a top_k of all words draws what no top_k draws.
        logits = torch.full_like(logits, -math.inf).scatter(-1, words, values)
    # Less the largest, which changes no probability: a low temperature would take the logits beyond float32.
    logits = logits - logits.amax(-1, keepdim=True)
    # A smaller one would be 0 in float32.
    temperature = max(temperature, torch.finfo(logits.dtype).tiny)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
