"""WikiText-2 as lines of words: local files first, else the Hugging Face hub at a pinned revision."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HUB_REPOSITORY = "Salesforce/wikitext"
HUB_CONFIGURATION = "wikitext-2-v1"
HUB_REVISION = "b08601e04326c79dfdd32d625aee71d232d685c3"
HUB_PROBE_SECONDS = 5.0

FOLDER = "wikitext-2"
LAYOUTS: tuple[dict[str, str], ...] = (
    {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"},
    {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"},
)
SPLITS = ("train", "validation", "test")

Lines = list[list[str]]

logger = logging.getLogger(__name__)


class SplitCounts(NamedTuple):
    """Size of a split: its lines (blank ones too) and its words (no end-of-line token counted)."""

    lines: int
    words: int


# Adding one <eos> a line gives the 2,088,628 / 217,646 / 245,569 tokens that the literature quotes.
OFFICIAL_COUNTS: Mapping[str, SplitCounts] = {
    "train": SplitCounts(lines=36_718, words=2_051_910),
    "validation": SplitCounts(lines=3_760, words=213_886),
    "test": SplitCounts(lines=4_358, words=241_211),
}


class DatasetNotFoundError(FileNotFoundError):
    """WikiText-2 is neither complete under the data root nor to be had from the hub."""


class CorpusMismatchError(ValueError):
    """A split does not have the number of lines or words it should have."""


@dataclass(frozen=True)
class Corpus:
    """The three splits as text.

    Attributes:
        splits: the lines of ``train``, ``validation`` and ``test``, each a list of words (blank line: []).
        source: where the text came from, in words fit for a result file (no path of this machine).
    """

    splits: dict[str, Lines]
    source: str

    def __getitem__(self, split: str) -> Lines:
        """Lines of ``split``."""
        return self.splits[split]


def load_corpus(
    root: str | Path | None,
    download: bool = True,
    expected: Mapping[str, SplitCounts] = OFFICIAL_COUNTS,
) -> Corpus:
    """Load WikiText-2 and check the size of every split.

    Args:
        root: data root; the files are ``<root>/wikitext-2/{train,valid,test}.txt`` or
            ``<root>/wikitext-2/wiki.{train,valid,test}.tokens``. None: no local files.
        download: whether the hub (or its local cache) may be asked when there are no local files.
        expected: lines and words that each split must have; tests with a toy corpus pass their own.

    Raises:
        DatasetNotFoundError: only some of the local files are there; or none, and the hub can't serve them.
        CorpusMismatchError: a split has other counts than ``expected``.
    """
    layout = None if root is None else _find_layout(Path(root) / FOLDER)
    if root is not None and layout is not None:
        paths = {split: Path(root) / FOLDER / layout[split] for split in SPLITS}
        splits = {split: _read_lines(path) for split, path in paths.items()}
        corpus = Corpus(splits, source="local files")
        names = {split: f"{FOLDER}/{layout[split]}" for split in SPLITS}
    elif download:
        logger.info("no WikiText-2 files under the data root: asking the Hugging Face hub")
        corpus = _load_from_hub()
        names = {split: f"{HUB_REPOSITORY} {HUB_CONFIGURATION}" for split in SPLITS}
    else:
        raise DatasetNotFoundError(_where_to_put_it("download is off (data.download=false)"))
    _verify(corpus, expected, names)
    return corpus


def _find_layout(folder: Path) -> dict[str, str] | None:
    """File names of the first complete layout in ``folder``; None if it holds no file of either layout."""
    for layout in LAYOUTS:
        if all((folder / name).is_file() for name in layout.values()):
            return layout
    for layout in LAYOUTS:
        missing = [f"{FOLDER}/{name}" for name in layout.values() if not (folder / name).is_file()]
        if len(missing) < len(layout):
            raise DatasetNotFoundError(
                f"WikiText-2 under the data root is incomplete: missing {', '.join(missing)}. Add what is "
                "missing (paths relative to the data root: TENSORMEM_DATA, or data.root=...), or remove the "
                f"folder {FOLDER} so that the hub is asked."
            )
    return None


def _read_lines(path: Path) -> Lines:
    # newline="\n" and split("\n"): str.splitlines would also break lines at rarer separators such as U+2028.
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")
    if lines[-1] == "":  # the text after the last line break is not a line
        lines.pop()
    return [line.split() for line in lines]


def _load_from_hub() -> Corpus:
    try:
        import datasets
    except ImportError as error:
        raise DatasetNotFoundError(
            _where_to_put_it("the package 'datasets', which downloads it, is not installed")
        ) from error
    problem = _hub_problem()
    online_setting = datasets.config.HF_HUB_OFFLINE
    try:
        # The client retries an unreachable hub for half a minute; told that it is offline, it goes straight
        # to its cache, where an earlier run may have left the data set.
        datasets.config.HF_HUB_OFFLINE = online_setting or problem is not None
        loaded = datasets.load_dataset(HUB_REPOSITORY, HUB_CONFIGURATION, revision=HUB_REVISION)
    except Exception as error:  # the client's errors have no common base class; the cause is chained and named
        reason = problem or f"{type(error).__name__}: {error}"
        raise DatasetNotFoundError(_where_to_put_it(f"the Hugging Face hub failed ({_one_line(reason)})")) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = online_setting
    # The client's cache is looked up without the revision, so only a download may claim it.
    source = f"huggingface {HUB_REPOSITORY}@{HUB_REVISION}"
    if problem is not None or online_setting:
        source = f"huggingface {HUB_REPOSITORY} from the local cache, revision not checked"
    return Corpus({split: _split_rows(loaded[split]["text"]) for split in SPLITS}, source)


def _split_rows(rows: Iterable[str]) -> Lines:
    return [row.split() for row in rows]


def _hub_problem() -> str | None:
    """Why the hub can't be reached, asked once with a short timeout; None if it answers."""
    import datasets
    from huggingface_hub.utils import get_session

    try:
        get_session().head(datasets.config.HF_ENDPOINT, timeout=HUB_PROBE_SECONDS)
    except Exception as error:  # whichever HTTP library the client uses, its error is reported, not hidden
        return f"{type(error).__name__}: {error}"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _where_to_put_it(reason: str) -> str:
    wanted = " or ".join(", ".join(f"{FOLDER}/{name}" for name in layout.values()) for layout in LAYOUTS)
    return (
        f"WikiText-2 not found: {reason}. Set the data root (environment variable TENSORMEM_DATA, or "
        f"data.root=...) to a folder that holds {wanted}."
    )


def _verify(corpus: Corpus, expected: Mapping[str, SplitCounts], names: Mapping[str, str]) -> None:
    for split in SPLITS:
        lines = corpus.splits[split]
        found = SplitCounts(lines=len(lines), words=sum(map(len, lines)))
        if found != expected[split]:
            raise CorpusMismatchError(
                f"WikiText-2 split '{split}' ({names[split]}): expected {expected[split].lines:,} lines and "
                f"{expected[split].words:,} words, found {found.lines:,} lines and {found.words:,} words. "
                "Replace it by the official word-level WikiText-2 (not the raw or the 103 variant)."
            )
