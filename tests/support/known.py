"""What fairseq finds, computed once for the same weights, sentences and options."""

import functools
import hashlib

_PLAIN = (bool, int, float, str, type(None))


def _tensors(found):
    """All tensors of a batch, in order."""
    if isinstance(found, dict):
        return [each for key in sorted(found) for each in _tensors(found[key])]
    return [found] if hasattr(found, "numpy") else []


def _key(models, sample, prefix, options):
    """What a search depends on; the models are in evaluation mode and as they were built."""
    digest = hashlib.blake2b()
    for model in models:
        settings = getattr(model, "cfg", None) or getattr(model, "args", None)
        digest.update(f"{type(model)} {settings} {model.training}".encode())
        for name, weight in sorted(model.state_dict().items()):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().float().numpy().tobytes())
    for each in [*_tensors(sample["net_input"]), *_tensors(prefix)]:
        digest.update(f"{each.dtype} {tuple(each.shape)}".encode())
        digest.update(each.cpu().numpy().tobytes())
    digest.update(repr(sorted(options.items())).encode())
    return digest.digest()


def _replaced(model):
    """Whether a test has given a part of the model another ``forward``."""
    return any("forward" in vars(module) for module in model.modules())


def once(search):
    """Remember what ``search(models, sample, prefix, **options)`` gives: lists of hypotheses.

    Each call gets hypotheses of its own, whose tensors are not to be changed.
    """
    known = {}

    @functools.wraps(search)
    def remembered(models, sample, prefix=None, **options):
        plain = all(isinstance(each, _PLAIN) for each in options.values())
        if not plain or any(map(_replaced, models)):
            return search(models, sample, prefix, **options)
        key = _key(models, sample, prefix, options)
        if key not in known:
            known[key] = search(models, sample, prefix, **options)
        return [dict(row) for row in known[key]]

    return remembered
