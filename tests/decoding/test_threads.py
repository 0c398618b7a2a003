"""Threads of the kernels: however many, however late, in two generators, and after a fork.

``make sanitize-threads`` runs this file with kernels that tell data races and come late at random.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader

from specdec_plugin.engine import NativeBackend
from specdec_plugin.engine.linear import NativeLinear
from tests.support import methods, tiny
from tests.support.compiled import needs_kernels

pytestmark = [needs_kernels, pytest.mark.usefixtures("threads_again")]

#: ThreadSanitizer does not follow the fork of a process that has threads.
forks = pytest.mark.skipif(
    os.environ.get("SPECDEC_SANITIZE") == "thread", reason="cannot be watched for data races"
)
#: More than the processors of most machines have.
MANY = 2 * (os.cpu_count() or 1) + 3
SAMPLE = tiny.sample([5, 1, 9, 3, 7], seed=4)
WAYS = ["greedy", "certified", "beam", "self-draft", "chain", "joint heads", "hybrid-jacobi"]


def decoder(way, sample=SAMPLE, options=None, **arguments):
    """Decodes a sample: tokens by sentence."""
    model = methods.verifier(way, **arguments)
    ours = methods.generator(way, model, NativeBackend(), options)

    def decode():
        return [rows[0]["tokens"].tolist() for rows in ours.generate([model], sample)]

    return decode


@pytest.mark.parametrize("way", WAYS)
def test_more_threads_than_processors(way):
    """With a model that is large enough for more than one."""
    torch.set_num_threads(1)
    wide = {f"{side}_embed_dim": 192 for side in ("encoder", "decoder")}
    decode = decoder(way, **wide)
    expected = decode()
    for threads in (2, MANY, 3):
        torch.set_num_threads(threads)
        for _ in range(2):
            assert decode() == expected


def test_two_generators_in_two_threads():
    ways = ["greedy", "self-draft", "beam", "hybrid-jacobi"]
    decoders = [decoder(way) for way in ways]
    expected = [decode() for decode in decoders]
    torch.set_num_threads(3)
    together = threading.Barrier(len(ways))

    def work(decode):
        torch.set_num_threads(3)  # PyTorch keeps it for each thread
        together.wait()
        return [decode() for _ in range(3)]

    with ThreadPoolExecutor(len(ways)) as pool:
        found = list(pool.map(work, decoders))
    assert found == [3 * [each] for each in expected]


def in_a_fork(work, seconds=60):
    """Whether ``work()`` is true in a forked process, which is killed if it hangs."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    alarm = threading.Timer(seconds, os.kill, [child, signal.SIGKILL])
    alarm.start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    alarm.cancel()
    return status == 0


#: What is registered first runs last, behind all finalizers.
LATE = """
import atexit
late = []
atexit.register(lambda: print(late[0]() == late[1]))
from tests.decoding.test_threads import decoder
late.append(decoder("self-draft"))
late.append(late[0]())
"""


def test_a_thread_may_decode_while_the_interpreter_ends():
    """Packed weights were freed under such a thread, as a server has."""
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


@forks
@pytest.mark.parametrize("threads", [1, 3])
def test_fork_after_first_use(threads):
    decode = decoder("self-draft")
    expected = decode()
    torch.set_num_threads(3)
    assert decode() == expected

    def work():
        torch.set_num_threads(threads)
        # A process of its own may fork again.
        return decode() == expected and in_a_fork(lambda: decode() == expected)

    assert in_a_fork(work) and in_a_fork(work)
    assert decode() == expected


@forks
@pytest.mark.parametrize("way", ["greedy", "certified", "beam"])
def test_large_batch_after_a_fork(way):
    """PyTorch shares operators between threads from 32,768 numbers on, and these hang in a fork."""
    lengths = [5 + 7 * row % 56 for row in range(600)]
    torch.set_num_threads(2)
    torch.ones(300, 300) @ torch.ones(300, 300)
    decode = decoder(way, sample=tiny.sample(lengths), encoder_embed_dim=96, decoder_embed_dim=96)
    expected = decode()
    assert in_a_fork(lambda: decode() == expected)


@forks
@pytest.mark.parametrize("way", WAYS)
def test_long_output_after_a_fork(way):
    """The cache grows behind 256 tokens: no thread of PyTorch may copy it."""
    torch.set_num_threads(2)
    torch.ones(300, 300) @ torch.ones(300, 300)
    options = {"min_len": 300, "max_len_b": 300}
    wide = {"encoder_embed_dim": 64, "decoder_embed_dim": 64, "max_target_positions": 512}
    decode = decoder(way, tiny.sample([9]), options, **wide)
    expected = decode()
    assert len(expected[0]) == 301
    assert in_a_fork(lambda: decode() == expected)


@forks
@pytest.mark.parametrize("way", ["greedy", "self-draft"])
def test_threads_that_share_a_processor_do_not_wait_out_their_time_slices(way):
    # A job of a tiny model is over too soon to show it.
    embeddings = dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim"), 384)
    shape = {**embeddings, "encoder_ffn_embed_dim": 1536, "decoder_ffn_embed_dim": 1536}
    decode = decoder(way, symbols=tiny.dictionary(4000), **shape)

    def seconds(threads):
        torch.set_num_threads(threads)
        decode()
        begin = time.process_time()  # of all threads; other programs do not count
        for _ in range(10):
            decode()
        return time.process_time() - begin

    def work():
        # Where others are busy, a system may put two threads on one processor, too.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        alone = min(seconds(1) for _ in range(5))
        # A call has dozens of meetings, each of which could last a time slice, some milliseconds.
        return min(seconds(2) for _ in range(5)) < 2.5 * alone

    assert in_a_fork(work)


class Products:
    """A data set whose examples are made by the kernels."""

    def __init__(self):
        self.inputs = torch.randn(8, 6, 16)
        self.linear = NativeLinear([torch.randn(70, 16)], None, torch.float32)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        torch.set_num_threads(2)
        return self.linear(self.inputs[index])


@forks
def test_workers_that_load_data():
    torch.set_num_threads(2)
    data = Products()
    expected = torch.stack([data[index] for index in range(8)])
    loader = DataLoader(
        data, batch_size=2, num_workers=2, timeout=60, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat(list(loader)), expected)


@forks
def test_a_system_that_has_no_more_threads():
    torch.manual_seed(1)
    linear, inputs = NativeLinear([torch.randn(700, 16)], None, torch.int8), torch.randn(40, 16)
    expected = linear(inputs)

    def work():
        if os.getuid() == 0:  # whom no limit binds
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        for threads in (4, 2, 5):
            torch.set_num_threads(threads)
            if not torch.equal(linear(inputs), expected):
                return False
        with pytest.raises(RuntimeError, match="start new thread"):
            threading.Thread(target=print).start()
        return True

    assert in_a_fork(work)
