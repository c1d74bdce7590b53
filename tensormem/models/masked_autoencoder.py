"""What every masked autoencoder has in common (He et al. 2022, arXiv 2111.06377): patches, encoder, decoder.

Legend: B batch, N patches of an image, M visible ones, P side of a patch in pixels, R registers.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tensormem.layers.bidirectional import BidirectionalAttention
from tensormem.layers.block import Block
from tensormem.layers.stack import Stack
from tensormem.models.backbone import Init, initialise, normalised
from tensormem.models.zoo_model import ZooModel

TokenOrder = Literal["raster", "shuffled"]
Target = Literal["pixels", "normalised"]


class Decoder(nn.Module):
    """From the visible patches' vectors to the pixels of all patches.

    Args:
        num_patches: N.
        encoder_dim: width of the encoder.
        dim: its own width.
        num_layers: its blocks.
        num_heads: of its attention.
        outputs: numbers of a patch, 3 P^2.
    """

    def __init__(
        self, num_patches: int, encoder_dim: int, dim: int, num_layers: int, num_heads: int, outputs: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Linear(encoder_dim, dim)
        self.mask_token = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(torch.zeros(1 + num_patches, dim))
        blocks = [Block(dim, BidirectionalAttention(dim, num_heads)) for _ in range(num_layers)]
        self.stack = Stack(blocks, dim)
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, outputs)

    def forward(
        self, encoded: Float[Tensor, "B tokens encoder_dim"], hidden: Bool[Tensor, "B N"], places: Tensor
    ) -> Float[Tensor, "B N outputs"]:
        """Pixels of every patch.

        Args:
            encoded: the class token and then the visible patches.
            hidden: True where a patch was not seen.
            places: (B, M) int64, the place of each visible patch in the image.
        """
        x = self.embedding(encoded)
        patches = self.mask_token.to(x.dtype).expand(*hidden.shape, -1)
        patches = patches.scatter(1, places[..., None].expand(-1, -1, x.shape[-1]), x[:, 1:])
        x = torch.cat([x[:, :1], patches], dim=1) + self.positions
        x, _ = self.stack(x)
        return self.output(self.norm(x))[:, 1:]


class MaskedAutoencoder(ZooModel):
    """Encodes the visible patches of an image and predicts all of them.

    A subclass builds the encoder's stack and hands it over.

    Args:
        stack: the encoder's blocks.
        dim: width of the encoder.
        image_size: pixels along a side.
        patch: P, a divisor of image_size.
        decoder_dim: width of the decoder.
        decoder_layers: its blocks.
        decoder_heads: of its attention.
        num_registers: R, further tokens in front, which the decoder never sees (Darcet et al. 2024, arXiv 2309.16588).
        target: what its predictions stand for: ``pixels`` in [0, 1], or pixels ``normalised`` patch by patch, as
            published, which only make an image again with the mean and deviation of the hidden patch.
        token_order: ``raster``, or ``shuffled``: visible patches reach the encoder in random order, as published.
        init: ``tuned``: weights 0.02 normal, those that end a residual branch scaled by 1 / sqrt(2 L); ``paper``:
            without the scaling. The embedding of the patches and the memory keep their own initialisation.
    """

    def __init__(
        self,
        stack: Stack,
        dim: int,
        *,
        image_size: int = 224,
        patch: int = 16,
        decoder_dim: int = 96,
        decoder_layers: int = 2,
        decoder_heads: int = 3,
        num_registers: int = 0,
        target: Target = "pixels",
        token_order: TokenOrder = "raster",
        init: Init = "tuned",
    ) -> None:
        super().__init__()
        if patch < 1 or image_size % patch:
            raise ValueError(f"patch={patch} must divide image_size={image_size}")
        for name, choice, kind in (
            ("target", target, Target),
            ("token_order", token_order, TokenOrder),
        ):
            if choice not in get_args(kind):
                raise ValueError(f"{name}={choice!r} is unknown; choose one of {get_args(kind)}")
        if num_registers < 0:
            raise ValueError(f"num_registers={num_registers} must not be negative")
        self.image_size, self.patch, self.token_order, self.target = image_size, patch, token_order, target
        self.num_patches = (image_size // patch) ** 2
        self.embedding = nn.Conv2d(3, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(dim))
        self.registers = nn.Parameter(torch.zeros(num_registers, dim)) if num_registers else None
        self.positions = nn.Parameter(torch.zeros(1 + self.num_patches, dim))
        self.stack = stack
        self.norm = nn.LayerNorm(dim)
        outputs = 3 * patch * patch
        self.decoder = Decoder(self.num_patches, dim, decoder_dim, decoder_layers, decoder_heads, outputs)
        embeddings = [self.class_token, self.positions, self.decoder.mask_token, self.decoder.positions]
        embeddings += [] if self.registers is None else [self.registers]
        initialise(self, [self.stack, self.decoder.stack], embeddings, init)

    @property
    def streaming(self) -> Literal["token", "frame", "none"]:
        """``none``: an image is seen at once."""
        return "none"

    def state_bytes(self, seq_len: int) -> int:
        """Bytes that the memory's states hold for one image in float32; nothing else is carried from layer to layer."""
        return 0 if self.stack.memory is None else self.stack.state_bytes(seq_len)

    def encode(self, images: Float[Tensor, "B 3 side side"], places: Tensor) -> Float[Tensor, "B tokens dim"]:
        """Vectors of the class token and of the patches at places (B, M) int64, in that order."""
        patches = self.embedding(normalised(images)).flatten(2).transpose(1, 2) + self.positions[1:]
        visible = patches.gather(1, places[..., None].expand(-1, -1, patches.shape[-1]))
        front = [(self.class_token + self.positions[0]).expand(len(images), 1, -1)]
        if self.registers is not None:
            front.append(self.registers.expand(len(images), -1, -1))
        x, _ = self.stack(torch.cat([*front, visible], dim=1))
        x = self.norm(x)
        num_registers = 0 if self.registers is None else len(self.registers)
        return torch.cat([x[:, :1], x[:, 1 + num_registers :]], dim=1)

    def forward(
        self,
        images: Float[Tensor, "B 3 side side"],
        hidden: Bool[Tensor, "B N"],
        noise: Float[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N outputs"]:
        """The prediction for every patch, visible ones included: of red, green and blue the pixels row by row.

        Args:
            images: in [0, 1], of this model's size.
            hidden: True where a patch is not shown; as many in every image.
            noise: the order of the visible patches with ``token_order=shuffled``; not needed otherwise.

        Raises:
            ValueError: images of another size, or not as many hidden patches in every image.
        """
        if images.shape[-2:] != (self.image_size, self.image_size):
            raise ValueError(f"images of {tuple(images.shape[-2:])} pixels; this model takes {self.image_size} a side")
        num_visible = (~hidden).sum(1)
        if not bool((num_visible == num_visible[0]).all()):
            raise ValueError("every image of a batch must hide as many patches")
        places = self._places(hidden, int(num_visible[0]), noise)
        return self.decoder(self.encode(images, places), hidden, places)

    def _places(self, hidden: Tensor, num_visible: int, noise: Tensor | None) -> Tensor:
        """(B, M) places of the visible patches, in the order in which the encoder sees them."""
        if self.token_order == "raster":
            # A stable sort by a flag keeps the order of the image.
            return hidden.to(torch.uint8).argsort(dim=1, stable=True)[:, :num_visible]
        if noise is None:
            raise ValueError("token_order=shuffled needs the noise that orders the patches")
        return noise.masked_fill(hidden, math.inf).argsort(dim=1)[:, :num_visible]
