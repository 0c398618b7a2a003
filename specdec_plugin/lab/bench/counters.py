"""Traces as data: added up, stored and read back, whatever counters a trace has."""

from collections import Counter
from dataclasses import fields
from typing import Any, Dict, Iterable

from ...decoding.statistics import Statistics


def to_json(trace: Statistics) -> Dict[str, Any]:
    """The counters as numbers and dictionaries; the keys of the latter become strings in JSON."""
    values = {item.name: getattr(trace, item.name) for item in fields(Statistics)}
    return {
        name: dict(value) if isinstance(value, dict) else value for name, value in values.items()
    }


def from_json(data: Dict[str, Any]) -> Statistics:
    """The trace that :func:`to_json` stored; counters that it lacks are zero."""
    trace = Statistics()
    for item in fields(Statistics):
        value = data.get(item.name, getattr(trace, item.name))
        if isinstance(getattr(trace, item.name), Counter):
            value = Counter({int(length): times for length, times in value.items()})
        setattr(trace, item.name, value)
    return trace


def total(traces: Iterable[Statistics]) -> Statistics:
    """The sum, counter by counter."""
    trace = Statistics()
    for each in traces:
        for item in fields(Statistics):
            value, more = getattr(trace, item.name), getattr(each, item.name)
            if isinstance(value, dict):
                for key, amount in more.items():
                    value[key] = value.get(key, 0) + amount
            else:
                setattr(trace, item.name, value + more)
    return trace
