"""Random numbers in separate, named streams: drawing one more number from one shifts no other."""

from hashlib import sha256

import numpy as np


class Streams:
    """Makes a random generator for every purpose.

    The same seed, names and replicate give the same numbers in every process (and with the same version of numpy).

    Args:
        seed: Seed of the experiment.
        path: Names that all of these streams are below; none at first.
    """

    def __init__(self, seed: int, path: tuple[str, ...] = ()) -> None:
        self._seed = seed
        self._path = path

    def generator(self, name: str, replicate: int = 0) -> np.random.Generator:
        """The stream of this name, from its beginning."""
        words = "".join(f"{len(word)}:{word}," for word in (str(self._seed), *self._path, name, str(replicate)))
        return np.random.default_rng(np.random.SeedSequence(int.from_bytes(sha256(words.encode()).digest(), "big")))

    def below(self, name: str) -> "Streams":
        """Streams of the same names that are others: for a part of something larger."""
        return Streams(self._seed, (*self._path, name))
