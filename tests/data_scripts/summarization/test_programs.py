"""Pairs for summarisation from both forms of SciTLDR, and ROUGE with several references."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List

import pytest
import score_summaries
import summary_pairs
from rouge_score.rouge_scorer import RougeScorer

from specdec_plugin.errors import PluginError

PUBLISHED = [
    {"source": [f"We test model {n}.", "It works."], "target": [f"Model {n} works.", "Fine."]}
    for n in range(30)
]


def write(path: Path, records: List[Dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return str(path).removesuffix(".jsonl")


def read(path: Path) -> List[str]:
    return path.read_text("utf-8").splitlines()


def test_published_files(tmp_path: Path) -> None:
    prefix = write(tmp_path / "train.jsonl", PUBLISHED)
    output = tmp_path / "pairs"
    summary_pairs.main([prefix, prefix, "--output", str(output)])
    sources, targets = read(output / "train.src"), read(output / "train.tgt")
    assert sources[:2] == ["We test model 0. It works."] * 2
    assert targets[:2] == ["Model 0 works.", "Fine."] and len(targets) == 58
    assert read(output / "valid.src") == ["We test model 29. It works."] * 2
    assert read(output / "test.lead")[3] == "We test model 3."
    assert read(output / "test.tgt")[3] == "Model 3 works."
    assert json.loads(read(output / "test.jsonl")[3]) == {"summaries": ["Model 3 works.", "Fine."]}


def test_texts_in_a_file_of_their_own(tmp_path: Path) -> None:
    prefix = write(tmp_path / "dev.jsonl", [{"summaries": ["Short.", ""]}] * 2)
    (tmp_path / "dev.src").write_text("One thing. Another e.g. Thing.\nNo end\n", "utf-8")
    summary_pairs.main([prefix, prefix, "--output", str(tmp_path)])
    assert read(tmp_path / "test.lead") == ["One thing.", "No end"]
    assert read(tmp_path / "test.tgt") == ["Short."] * 2


def test_an_article_without_a_text_is_left_out(tmp_path: Path) -> None:
    records = [*PUBLISHED[:2], {"source": [], "target": ["Nothing."]}, {"target": ["No text."]}]
    prefix = write(tmp_path / "dev.jsonl", records)
    summary_pairs.main([prefix, prefix, "--output", str(tmp_path)])
    assert read(tmp_path / "test.lead") == ["We test model 0.", "We test model 1."]


def test_the_best_of_several_references_counts(tmp_path: Path, capsys) -> None:
    references = [["a cat sat here", "the dogs ran away"], ["nothing at all"]]
    write(tmp_path / "refs.jsonl", [{"summaries": each} for each in references])
    hypotheses = tmp_path / "hyp"
    hypotheses.write_text("the dog ran\nsomething else\n", "utf-8")
    lead = tmp_path / "lead"
    lead.write_text("a cat\nnothing\n", "utf-8")
    arguments = [str(hypotheses), "--references", str(tmp_path / "refs.jsonl"), "--samples", "50"]
    score_summaries.main([*arguments, "--baseline", str(lead), "--json"])
    scores = json.loads(capsys.readouterr().out)["scores"]
    # Stems: the, dog, ran of the, dog, ran, away; two pairs in order; nothing of the second.
    assert scores["ROUGE-1"]["score"] == pytest.approx(100 * (2 * 3 / 7) / 2)
    assert scores["ROUGE-2"]["score"] == pytest.approx(100 * (2 * 2 / 5) / 2)
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    theirs = [
        max(scorer.score(wanted, line)["rougeL"].fmeasure for wanted in each)
        for line, each in zip(["a cat", "nothing"], references, strict=True)
    ]
    gain = scores["ROUGE-L"]["score"] - 50 * sum(theirs)
    assert scores["ROUGE-L gain"]["score"] == pytest.approx(gain)
    assert scores["ROUGE-L gain"]["low"] <= gain <= scores["ROUGE-L gain"]["high"]
    score_summaries.main(arguments)
    assert re.search(r"ROUGE-L +\d+\.\d\d +\d+\.\d\d to ", capsys.readouterr().out)
    arguments[-1] = "0"
    score_summaries.main(arguments)
    assert re.search(r"ROUGE-L +\d+\.\d\d$", capsys.readouterr().out.strip())
    score_summaries.main([*arguments, "--json"])
    without = json.loads(capsys.readouterr().out)["scores"]
    assert without["ROUGE-1"] == {"score": scores["ROUGE-1"]["score"]}


def test_refusals(tmp_path: Path) -> None:
    output = ["--output", str(tmp_path / "out")]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n[\n", "utf-8")
    prefix = str(tmp_path / "broken")
    with pytest.raises(PluginError, match=r"Line 2 of .*broken\.jsonl is no JSON object"):
        summary_pairs.main([prefix, prefix, *output])
    empty = write(tmp_path / "empty.jsonl", [{"source": ["Text."], "target": []}])
    with pytest.raises(PluginError, match="holds no article with a summary"):
        summary_pairs.main([empty, empty, *output])
    for key in ("source", "target"):
        joined = write(tmp_path / "joined.jsonl", [PUBLISHED[0], {**PUBLISHED[1], key: "Text."}])
        with pytest.raises(PluginError, match=f'Line 2 of .*: "{key}" is no list of texts'):
            summary_pairs.main([joined, joined, *output])
    joined = write(tmp_path / "joined.jsonl", [{"summaries": "Text."}])
    with pytest.raises(PluginError, match=r'Line 1 of .*: "summaries" is no list of texts'):
        score_summaries.main([f"{joined}.jsonl", "--references", f"{joined}.jsonl"])
    alone = write(tmp_path / "alone.jsonl", [{"summaries": ["One."]}])
    (tmp_path / "alone.src").write_text("One.\nTwo.\n", "utf-8")
    with pytest.raises(PluginError, match=r"alone\.src has 2 lines and .* has 1"):
        summary_pairs.main([alone, alone, *output])
    for references, told in ((alone, "has 2 lines and .* has 1"), (empty, "has no summary")):
        with pytest.raises(PluginError, match=told):
            score_summaries.main(
                [str(tmp_path / "alone.src"), "--references", f"{references}.jsonl"]
            )
