"""Tokenised sentences that belong together line by line: sources, hypotheses, what is right."""

import argparse
from dataclasses import dataclass
from typing import List, Optional

from ...errors import PluginError
from ...textfiles import read_lines
from .m2 import Annotations, Edit, read_m2_file

Sentences = List[List[str]]


@dataclass
class Corpus:
    """Tokenised sentences, line by line: every list is as long as the others."""

    sources: Sentences
    hypotheses: Sentences
    references: List[Sentences]
    annotations: Optional[List[Annotations]]


def read_corpus(options: argparse.Namespace, hypothesis: str) -> Corpus:
    """All files, with one hypothesis; PluginError where their numbers of lines differ."""
    if not (options.source or options.m2):
        raise PluginError("The source is missing. Give --source, or --m2, which has it too.")
    m2 = list(read_m2_file(options.m2)) if options.m2 else []
    annotated = [tokens for tokens, _ in m2]
    sources = read_sentences(options.source) if options.source else annotated
    source_name = options.source or options.m2
    hypotheses = read_sentences(hypothesis)
    references = [read_sentences(path) for path in options.references]
    files = [(hypothesis, hypotheses), *zip(options.references, references)]
    if options.m2:
        files.append((options.m2, annotated))
    for path, sentences in files:
        if len(sentences) != len(sources):
            raise PluginError(
                f"{path} has {len(sentences)} sentences, and {source_name} has {len(sources)}. "
                "Give files that belong together line by line, empty lines included."
            )
    if not sources:
        raise PluginError(f"{source_name} is empty. Give at least one sentence.")
    for line, (tokens, ours) in enumerate(zip(annotated, sources), start=1):
        same = " ".join(tokens), " ".join(ours)
        if len({text.lower() for text in same} if options.lower else {*same}) > 1:
            raise PluginError(
                f"Sentence {line} of {options.m2} is '{same[0]}', and of {source_name} "
                f"'{same[1]}'. Give the source that was annotated, tokenised alike."
            )
    annotations = [edits for _, edits in m2] if options.m2 else None
    corpus = Corpus(sources, hypotheses, references, annotations)
    return lowercased(corpus) if options.lower else corpus


def read_sentences(path: str) -> Sentences:
    """The tokens of each line."""
    return [line.split() for line in read_lines(path)]


def lowercased(corpus: Corpus) -> Corpus:
    """Everything in lower case, without the edits that then change nothing."""
    sources, hypotheses, *references = [
        [[token.lower() for token in tokens] for tokens in sentences]
        for sentences in (corpus.sources, corpus.hypotheses, *corpus.references)
    ]
    annotations: Optional[List[Annotations]] = None
    if corpus.annotations is not None:
        annotations = [
            {number: _lowercased(edits, tokens) for number, edits in annotation.items()}
            for annotation, tokens in zip(corpus.annotations, sources)
        ]
    return Corpus(sources, hypotheses, references, annotations)


def _lowercased(edits: List[Edit], source: List[str]) -> List[Edit]:
    lower = [
        edit._replace(
            replacement=edit.replacement.lower(),
            alternatives=tuple(text.lower() for text in edit.alternatives),
        )
        for edit in edits
    ]
    # Where the annotator's first choice changes nothing, who leaves the words alone is right.
    return [edit for edit in lower if edit.replacement.split() != source[edit.start : edit.end]]
