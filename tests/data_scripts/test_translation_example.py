"""examples/translation_pydocs/run.sh with tiny models: from text to a table."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import List

import pytest

from tests.support.command_lines import run_example
from tests.support.teachers import LAYERS_2_DIM_16, train_teacher

run = partial(run_example, "translation_pydocs", forked=True)
TINY = dict(
    LAYERS="2", DIM="16", SIZE="60", SHARDS="1", UPDATES_VERIFIER="2", UPDATES_DRAFTER="2",
    OMP_NUM_THREADS="1",
)  # fmt: skip


def lines(path: Path) -> List[str]:
    return path.read_text("utf-8").splitlines()


@pytest.mark.slow
def test_from_text_to_a_table(text: Path, tmp_path: Path) -> None:
    """Also with further source text for the drafter, which starts from an existing one then."""
    given, output = tmp_path / "given", tmp_path / "out"
    train_teacher(text, given, 300, *LAYERS_2_DIM_16)
    done = run(text, output, given, **TINY)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    report = json.loads((output / "results" / "results.json").read_text("utf-8"))
    assert {"greedy", "specdec", "specdec self"} <= {row["method"] for row in report["rows"]}
    unseen, held_out = "nine and nine and nine", lines(text / "test.en")[0]
    more = tmp_path / "more.en"
    more.write_text(f"{unseen}\n{held_out}\n{lines(text / 'train.en')[0]}\n", "utf-8")
    old = shutil.move(output / "drafter.pt", tmp_path / "old.pt")
    for folder in ("drafter", "greedy", "results"):
        shutil.rmtree(output / folder)
    settings = dict(TINY, DRAFTER_TEXT=str(more), DRAFTER_VARIANTS="2", DRAFTER_START=str(old))
    done = run(text, output, given, **settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    sources = lines(output / "more" / "text.en")
    assert sources.count(unseen) == 1 and held_out not in sources
    assert {*sources} == {*lines(text / "train.en"), unseen} - {
        *lines(text / "dev.en"), *lines(text / "test.en"),
    }  # fmt: skip
    assert len(lines(output / "more" / "all.en")) == 3 * len(sources)
    assert len(sources) < len(lines(output / "greedy" / "filtered" / "train.en"))
    assert f"'finetune_from_model': '{old}'" in done.stdout + done.stderr
