"""``--num-shards`` and ``--shard-id`` through fairseq's command lines."""

import pytest

from tests.support.command_lines import TRACEBACK, generate_args, run_cli

#: The 21 sentences in 6 batches, the last of which has one.
BATCHES = ["--batch-size", 4]


def printed(done):
    """The lines with hypotheses, as fairseq prints them."""
    return [line for line in done.stdout.splitlines() if line.startswith("H-")]


def shards_of(args, shards, **more):
    """What each shard prints."""
    each = (
        run_cli([*args, "--num-shards", shards, "--shard-id", shard], **more)
        for shard in range(shards)
    )
    return [printed(done) for done in each]


def joined(parts):
    """What all shards print, sorted."""
    return sorted(line for part in parts for line in part)


SEARCHES = {
    "fairseq": [],
    # A limit that depends on the longest source of the batch.
    "specdec": ["--decoding", "specdec", "--max-len-a", "0.8", "--max-len-b", "2"],
    "samples": ["--decoding", "greedy", "--sampling", "--nbest", "2", "--beam", "2"],
}


@pytest.mark.parametrize("search", SEARCHES)
def test_the_parts_are_the_whole(corpus, tiny_verifier, search):
    args = generate_args(corpus.data_dir, tiny_verifier, *BATCHES, *SEARCHES[search])
    whole = printed(run_cli(args))
    assert len({line.split("\t")[0] for line in whole}) == 21
    parts = shards_of(args, 3)
    assert joined(parts) == sorted(whole) and len(set(whole)) == len(whole)
    assert all(parts)


def test_a_shuffled_subset_beside_workers(corpus, tiny_verifier):
    more = ["--gen-subset", "train", "--max-tokens", 60, "--required-batch-size-multiple", 8]
    more += ["--num-workers", 1, "--decoding", "greedy"]
    args = generate_args(corpus.data_dir, tiny_verifier, *more)
    parts = shards_of(args, 3)
    assert joined(parts) == sorted(printed(run_cli(args)))
    assert len(joined(parts)) == 240 and min(map(len, parts)) > 40


@pytest.mark.slow
def test_processes_of_a_distributed_run_share_a_shard(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier, *BATCHES, "--decoding", "greedy")
    found = []
    for rank in range(2):
        world = ["--distributed-world-size", 2, "--distributed-rank", rank]
        found += joined(shards_of([*args, *world], 2))
    assert sorted(found) == sorted(printed(run_cli(args)))


def test_an_empty_shard_succeeds_and_says_so(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier, "--batch-size", 30)
    done = run_cli([*args, "--num-shards", 3, "--shard-id", 2])
    assert printed(done) == []
    assert "shard 2 of 3 is empty: all data make 1 batches" in done.stderr
    assert len(printed(run_cli([*args, "--num-shards", 3]))) == 21  # --shard-id 0


@pytest.mark.parametrize("buffer", [1, 8])
def test_interactive(corpus, tiny_verifier, buffer):
    args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy", "--beam", 2)
    args = ["fairseq-interactive", *args[1:], "--sampling", "--nbest", 2, "--seed", 3]
    args += ["--batch-size", min(3, buffer), "--buffer-size", buffer]
    text = "".join(line + "\n" for line in corpus.lines("test", "en"))
    parts = shards_of(args, 3, input=text)
    assert joined(parts) == sorted(printed(run_cli(args, input=text)))
    assert len(joined(parts)) == 2 * 21 and min(map(len, parts)) >= 6


@pytest.mark.parametrize(
    "shards, shard, told",
    [
        (3, 3, "--shard-id 3 is none of --num-shards 3: give 0 to 2."),
        (3, -1, "--shard-id -1 is none of --num-shards 3: give 0 to 2."),
        (1, 2, "--shard-id 2 is none of --num-shards 1: 0 is the only one."),
        (0, 0, "--num-shards 0: give 1 or more shards."),
    ],
)
def test_shards_that_are_not_there(corpus, shards, shard, told):
    args = generate_args(corpus.data_dir, "none.pt", "--num-shards", shards, "--shard-id", shard)
    done = run_cli(args, check=False)
    assert done.returncode == 1 and told in done.stderr and TRACEBACK not in done.stderr
