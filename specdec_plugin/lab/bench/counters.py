"""Statistics as data: added up, stored and read back, whatever counters they have."""

from collections import Counter
from dataclasses import fields
from typing import Any, Dict, Iterable

from ...decoding.statistics import Statistics


def to_json(statistics: Statistics) -> Dict[str, Any]:
    """The counters as numbers and dictionaries; the keys of the latter become strings in JSON."""
    values = {item.name: getattr(statistics, item.name) for item in fields(Statistics)}
    return {
        name: dict(value) if isinstance(value, dict) else value for name, value in values.items()
    }


def from_json(data: Dict[str, Any]) -> Statistics:
    """The statistics that :func:`to_json` stored; LookupError where a counter is missing."""
    statistics = Statistics()
    for name, default in vars(statistics).items():
        value = data[name]
        if isinstance(default, Counter):
            value = Counter({int(length): times for length, times in value.items()})
        setattr(statistics, name, value)
    return statistics


def total(every: Iterable[Statistics]) -> Statistics:
    """The sum, counter by counter."""
    summed = Statistics()
    for each in every:
        for item in fields(Statistics):
            value, more = getattr(summed, item.name), getattr(each, item.name)
            if isinstance(value, dict):
                for key, amount in more.items():
                    value[key] = value.get(key, 0) + amount
            else:
                setattr(summed, item.name, value + more)
    return summed
