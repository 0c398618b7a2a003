"""What the noise program knows of English: confusable words, endings, keys of the keyboard.

The lists are short and written by hand for this project. They need not be complete: a
model that was trained on made errors meets the rest when it is fine-tuned on real ones.
"""

from typing import Dict, Iterator, List, Set

from language import Language, by_length, each_to_others

#: Words that are taken for one another although each is spelt correctly.
REAL_WORDS = each_to_others(
    """
    their there they're
    its it's
    your you're
    whose who's
    to too two
    then than
    affect effect
    accept except
    advice advise
    practice practise
    lose loose
    quite quiet
    weather whether
    were where we're
    here hear
    know now no
    new knew
    by buy bye
    of off
    for four
    right write
    piece peace
    past passed
    principal principle
    complement compliment
    personal personnel
    already all-ready
    among between
    amount number
    fewer less
    many much
    few little
    some any
    each every
    also too
    other another
    other others
    this these
    that those
    which what
    who which that
    make do
    say tell
    see look watch
    hear listen
    learn teach
    bring take
    lend borrow
    rise raise
    lay lie
    sit set
    economic economical
    historic historical
    sensible sensitive
    interested interesting
    bored boring
    good well
    bad badly
    hard hardly
    late lately
    near nearly
    most almost
    high highly
    because cause
    although despite
    since for
    during while
    until by
    if whether
    like as
    so such
    very too
    hole whole
    wait weight
    through threw thorough
    desert dessert
    dose does
    chose choose
    breath breathe
    costumer customer
    form from
    trail trial
    belief believe
    life live
    safe save
    proof prove
    use used
    will would
    can could
    may might
    should must
    is was
    are were
    has had
    do did
    i me my
    you your
    he him his
    she her
    it its
    we us our
    they them their
    there they
    who whom
    and but or
    so because
    when while
    more most
    all every
    everyone everybody
    another other
    always usually
    also too
    """.strip().splitlines()
)

ARTICLES = ("a", "an", "the")
#: Words after which no article belongs; none is inserted there.
DETERMINERS = frozenset(
    "my your his her its our their this that these those each every some any no which what".split()
)

#: Each preposition with those that are often written for it.
PREPOSITIONS = each_to_others(
    """
    in on at
    in into inside
    on onto upon over
    to for
    to towards into
    at to
    of from
    of for about
    by with from
    with to for
    about on over
    during in for
    since from for
    until to by
    between among
    through by across
    before until
    after since
    under below
    above over
    """.strip().splitlines()
)

#: Forms of auxiliary verbs, with those of another person or number.
AGREEMENT = {
    **each_to_others(
        """
        is are
        was were
        has have
        does do
        isn't aren't
        wasn't weren't
        hasn't haven't
        doesn't don't
        """.strip().splitlines()
    ),
    "am": ("is", "are"),
}

#: Base, past, participle (and -s or -ing where that is irregular too).
IRREGULAR_VERBS = each_to_others(
    """
    be been being
    become became becoming
    begin began begun beginning
    break broke broken breaking
    bring brought bringing
    build built building
    buy bought buying
    catch caught catching
    choose chose chosen choosing
    come came coming
    do did done doing
    draw drew drawn drawing
    eat ate eaten eating
    fall fell fallen falling
    feel felt feeling
    find found finding
    fly flew flown flying
    forget forgot forgotten forgetting
    get got gotten getting
    give gave given giving
    go went gone going
    grow grew grown growing
    have had having
    hear heard hearing
    hold held holding
    keep kept keeping
    know knew known knowing
    lead led leading
    leave left leaving
    lose lost losing
    make made making
    mean meant meaning
    meet met meeting
    pay paid paying
    read reading
    rise rose risen rising
    run ran running
    say said saying
    see saw seen seeing
    sell sold selling
    send sent sending
    set setting
    show showed shown showing
    sit sat sitting
    speak spoke spoken speaking
    spend spent spending
    stand stood standing
    take took taken taking
    teach taught teaching
    tell told telling
    think thought thinking
    understand understood understanding
    win won winning
    write wrote written writing
    """.strip().splitlines()
)

#: Nouns whose plural is not made with -s.
IRREGULAR_NOUNS = each_to_others(
    """
    man men
    woman women
    child children childs
    person people persons
    foot feet
    tooth teeth
    mouse mice
    life lives
    wife wives
    knife knives
    leaf leaves
    half halves
    datum data datas
    medium media
    criterion criteria
    phenomenon phenomena
    analysis analyses
    basis bases
    information informations
    advice advices
    knowledge knowledges
    equipment equipments
    furniture furnitures
    homework homeworks
    evidence evidences
    """.strip().splitlines()
)

PRONOUNS = frozenset("i you he she it we they me him us them who one".split())
#: Small words; the ones that are left out, and written once too often, most easily.
FUNCTION_WORDS = frozenset(
    [*ARTICLES, *DETERMINERS, *PREPOSITIONS, *AGREEMENT, *PRONOUNS]
    + "and or but so if as be been will would can could should may might must not".split()
    + "do did had just also very too there here when where how why then than because".split()
)
INSERTED_WORDS = tuple(sorted(word for word in FUNCTION_WORDS if "'" not in word))

#: Spellings that are written for one another, wherever in a word.
MISSPELLINGS = tuple(
    (old, new)
    for old, _, new in (
        each.partition(":")
        for each in """
    ie:ei ei:ie ance:ence ence:ance ant:ent ent:ant able:ible ible:able tion:sion sion:tion ph:f
    ough:ou ck:k que:k sc:s wh:w ful:full ally:aly ely:ly cess:ces ss:s ll:l mm:m nn:n pp:p rr:r
    tt:t cc:c ff:f ea:ee ee:ea ou:u ai:ei ary:ery ate:ite ite:ate ise:ice cy:sy eous:ious
    ious:eous uous:ous gue:ge ure:er er:or or:er al:el el:al il:ill xc:x ci:si ce:se se:ce si:ci
    ch:k ch:c sh:ch g:j j:g c:k k:c s:z z:s v:b y:i tion:cion th:t th:d wh:h h: d:t t:d kn:n
    qu:kw ough:o ight:ite igh:i mb:m gh:g tch:ch ture:cher ies:ys ied:yed ily:ly m:n i:e e:i
    ou:o oo:u ee:i ea:e ai:a a:e ly:lly lly:ly full:ful less:les ness:nes ment:mant
    """.split()
    )
)

#: The keys beside each key (QWERTY).
KEYBOARD = dict(
    key.split(":")
    for key in """
    q:wa w:qeas e:wrsd r:etdf t:ryfg y:tugh u:yihj i:uojk o:ipkl p:ol
    a:qwsz s:awedzx d:serfxc f:drtgcv g:ftyhvb h:gyujbn j:huiknm k:jiolm l:kop
    z:asx x:zsdc c:xdfv v:cfgb b:vghn n:bhjm m:njk
    """.split()
)

VOWELS = "aeiou"
_HISSING = ("s", "x", "z", "ch", "sh")


def with_s(word: str) -> str:
    """The plural of a noun, or the third person of a verb.

    >>> [with_s(word) for word in "file class copy key".split()]
    ['files', 'classes', 'copies', 'keys']
    """
    if word.endswith("y") and word[-2:-1] not in VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(_HISSING) else "s")


def without_s(word: str) -> List[str]:
    """What may have got an -s to become ``word``; nothing where that is no ending.

    >>> without_s("files"), without_s("classes"), without_s("copies"), without_s("less")
    (['file'], ['classe', 'class'], ['copy', 'copie'], [])
    """
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return []
    if word.endswith("ies"):
        return [word[:-3] + "y", word[:-1]]
    return [word[:-1]] + ([word[:-2]] if word[:-2].endswith(_HISSING) else [])


def verb_endings(base: str) -> List[str]:
    """The regular -ed and -ing forms, with the last consonant doubled and not.

    >>> verb_endings("stop"), verb_endings("close"), verb_endings("try")
    (['stoped', 'stoping', 'stopped', 'stopping'], ['closed', 'closing'], ['tried', 'trying'])
    """
    if base.endswith("e"):
        return [base + "d", base[:-1] + "ing"]
    if base.endswith("y") and base[-2:-1] not in VOWELS:
        return [base[:-1] + "ied", base + "ing"]
    forms = [base + "ed", base + "ing"]
    if base[-1:] not in VOWELS + "wxy" and base[-2:-1] in tuple(VOWELS):
        forms += [base + base[-1] + "ed", base + base[-1] + "ing"]
    return forms


def regular_endings(word: str) -> List[str]:
    """The word inflected as if all words were regular.

    >>> regular_endings("chose"), regular_endings("families"), regular_endings("child")
    (['choosed', 'chosed', 'choses'], ['familys'], ['childed', 'childs'])
    """
    if word.endswith("ies"):
        return [word[:-3] + "ys"]
    regular = [verb_endings(base)[0] for base in IRREGULAR_VERBS.get(word, ())[:1]]
    return [*regular, verb_endings(word)[0], word + "s"]


def _bases(word: str) -> Iterator[str]:
    """What may be the base of a verb in -ed or -ing."""
    for ending in ("ing", "ed"):
        if word.endswith(ending):
            stem = word[: -len(ending)]
            yield from (stem, stem + "e")
            if stem[-2:-1] == stem[-1:]:
                yield stem[:-1]
            if ending == "ed" and stem.endswith("i"):
                yield stem[:-1] + "y"


def verb_forms(word: str, known: "Set[str] | Dict[str, int]") -> List[str]:
    """Other forms of a verb; regular ones only as far as they are ``known`` words.

    A base counts as a verb when its -ed form is known: there is no tagger here.

    >>> verb_forms("closed", {"close", "closing"}), verb_forms("wrote", set())
    (['close', 'closing'], ['write', 'written', 'writing'])
    """
    if word in IRREGULAR_VERBS:
        return list(IRREGULAR_VERBS[word])
    bases = [base for base in _bases(word) if len(base) > 1 and base in known]
    if not bases and any(form in known for form in verb_endings(word) if form.endswith("ed")):
        bases = [word]
    forms = [form for base in bases for form in (base, *verb_endings(base)) if form in known]
    return [form for form in dict.fromkeys(forms) if form != word]


def noun_forms(word: str, known: "Set[str] | Dict[str, int]") -> List[str]:
    """The other number of a noun (or person of a verb), as far as it is a ``known`` word.

    >>> noun_forms("copy", {"copies"}), noun_forms("classes", {"class"}), noun_forms("men", set())
    (['copies'], ['class'], ['man'])
    """
    if word in IRREGULAR_NOUNS:
        return list(IRREGULAR_NOUNS[word])
    return [form for form in without_s(word) or [with_s(word)] if form in known]


#: Letters and what they sound like. Capitals stand for sounds that no rule below looks at again.
#: A small key in the manner of Metaphone (Philips 1990): consonants become classes of sounds by a
#: few context rules, silent letters go, and vowels after the first letter are one sound.
_SOUNDS = (
    (r"[^a-z]", ""),  # apostrophes and hyphens are silent; so are letters with accents
    (r"^[kgp]n|^mn", "n"),  # knife, gnome, pneumonia
    (r"^wr", "r"),  # write
    (r"^ps", "s"),  # psychology
    (r"^x", "s"),  # xylophone
    (r"^wh", "w"),  # which
    (r"mb$", "m"),  # thumb
    (r"gh(?=t|$)", ""),  # light, though
    (r"tch|ch", "X"),  # catch, choose
    (r"sh|(?:[sct])i(?=[ao])", "X"),  # shell, mission, special, station
    (r"th", "0"),
    (r"ph", "f"),
    (r"dge|dg|g(?=[eiy])", "J"),  # edge, gem
    (r"j", "J"),
    (r"sc(?=[eiy])|c(?=[eiy])|z", "s"),  # science, city, size
    (r"ck|c|q", "k"),  # back, can, quick
    (r"x", "ks"),
    (r"v", "f"),
    (r"(?<=[aeiou])[wh](?![aeiou])", ""),  # know, oh
    (r"(?<=..)e$", ""),  # site
    (r"(?<!^)[aeiouy]+", "A"),  # but for the first letter, one vowel is as another
    (r"h", ""),  # rhyme
    (r"(.)\1+", r"\1"),  # double letters
)

_ENDINGS = by_length(
    "ly ness ment tion ation ion al ical ic ive able ible er or ful less y ity ance ence ous "
    "ist ism ing ed ant ent ize ise ized ised est ally fully ability s ship hood th"
)

#: Errors in 100 words that learners make, by ``count_edits.py`` on JFLEG's development set, even
#: lines, counted from 0.
_MIX = {
    "spelling": 0.4,
    "misspelling": 2.0,
    "typo": 0.3,
    "spacing": 0.3,
    "real-word": 1.0,
    "article": 1.0,
    "preposition": 0.6,
    "agreement": 0.3,
    "number": 0.9,
    "verb": 0.45,
    "ending": 0.25,
    "derivation": 0.35,
    "case": 0.5,
    "comma": 1.5,
    "punctuation": 0.25,
    "deletion": 0.6,
    "insertion": 0.4,
    "swap": 0.2,
}

ENGLISH = Language(
    mix=_MIX,
    real_words=REAL_WORDS,
    prepositions=PREPOSITIONS,
    inserted_prepositions=("of", "to", "in", "for", "on", "at"),
    function_words=FUNCTION_WORDS,
    inserted_words=INSERTED_WORDS,
    keyboard=KEYBOARD,
    misspellings=MISSPELLINGS,
    vowels=VOWELS,
    heard=VOWELS + "y",
    silent="e",
    marks={},
    endings=_ENDINGS,
    loose="eiy",
    shortest_stem=4,
    sounds=_SOUNDS,
)
