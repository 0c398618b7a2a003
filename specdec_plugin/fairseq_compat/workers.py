"""The processes of ``--num-workers``, which read data."""

import multiprocessing


def fork_workers() -> None:
    """Let these processes be forks also on Linux from Python 3.14 on, whose usual start is another.

    Others would be sent the task with its models, of which kernels and open files cannot be sent.
    How processes start is a setting of the whole process, which fairseq's programs leave as it is.
    """
    usual = multiprocessing.get_all_start_methods()[0]
    if (multiprocessing.get_start_method(allow_none=True) or usual) == "forkserver":
        multiprocessing.set_start_method("fork", force=True)
