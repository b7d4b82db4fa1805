"""Train a character-level GPT with FSDP on text that every Python installation has, over planes that fail meanwhile.

    pip install '.[examples]' in the clone
    MRC_PLANES=4 torchrun --nproc-per-node 2 examples/train_fsdp.py --faults "at: 2s, for: 1s, down: plane 1"

Parameters, gradients and optimizer state are sharded over the ranks: each layer is gathered when it is needed, and its
gradients are reduced and scattered. Rank 0 draws loss and step times into training-fsdp.svg.
"""

import argparse
import time
from pathlib import Path
from pydoc_data import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from openmrc.report.training import Course, drawing
from openmrc.train.torch_backend import Options, group_of

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 96, 4, 3, 8  # characters, features, -, -, sequences of a rank in each step


class Block(nn.Module):  # type: ignore[misc]  # without torch it is not known
    """Attention to what came before, then a network for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.network_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.network(self.network_norm(x))


class Gpt(nn.Module):  # type: ignore[misc]
    """Predicts the next character at each position."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.character, self.position = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.character(text) + self.position.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x.flatten(0, 1))
        return logits


def text_of_python() -> tuple[torch.Tensor, int]:
    """Return the text of Python's own help, as numbers of characters, and how many different ones there are."""
    text = "\n".join(topics.topics.values())
    known = sorted(set(text))
    numbers = {character: number for number, character in enumerate(known)}
    return torch.tensor([numbers[character] for character in text]), len(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="mrc", choices=["mrc", "gloo"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--faults", default="", help="schedule of what happens to packets that arrive at each rank")
    parser.add_argument("--out", type=Path, default=Path("training-fsdp.svg"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    # Faults are of planes, which ranks of one host do not need while they share memory.
    pg_options = Options(shared_memory=not options.faults) if options.backend == "mrc" else None
    dist.init_process_group(options.backend, pg_options=pg_options)
    rank, size = dist.get_rank(), dist.get_world_size()
    text, characters = text_of_python()
    torch.manual_seed(0)
    gpt = Gpt(characters)
    for block in gpt.blocks:
        fully_shard(block)
    fully_shard(gpt)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-3)

    dist.barrier()
    planes = 0
    if options.backend == "mrc":
        planes = len(group_of().context.address.planes)
        if options.faults:
            group_of().context.impair(options.faults)
    course = Course(
        title=f"{size} ranks, FSDP, {options.backend}", at=[], loss=[], seconds=[], planes=planes, faults=options.faults
    )
    begun = time.monotonic()
    for step in range(options.steps):
        started = time.monotonic()
        generator = torch.Generator().manual_seed(step * size + rank)
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
        batch = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
        logits = gpt(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.monotonic()
        course.at.append(now - begun)
        course.seconds.append(now - started)
        course.loss.append(loss.item())
        if rank == 0 and step % 25 == 0:
            print(f"step {step}: loss {loss.item():.9f}, {course.seconds[-1] * 1e3:.1f} ms", flush=True)

    if rank == 0:
        options.out.write_text(drawing(course), "utf-8")
        print(f"last loss {course.loss[-1]:.9f}; drawing: {options.out}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
