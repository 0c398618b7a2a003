"""What the noise program knows of Ukrainian: euphony, cases, sounds, keys of the keyboard.

The lists are short and written by hand for this project. The weights follow the shares of edits
in the training part of UA-GEC (Syvokon et al., 2023): dashes, commas, euphony, endings, letters.
"""

from language import Language, by_length, each_to_others

#: Words that differ by euphony, or are taken for one another. (As learners write and natives do.)
_REAL_WORDS = each_to_others(
    """
    в у
    з із зі
    і й та
    все усе
    всі усі
    всього усього
    всіх усіх
    весь увесь
    вже уже
    взагалі узагалі
    вчора учора
    вдома удома
    взяв узяв
    від од
    що який яка яке які
    що шо
    б би
    ж же
    їх їхній їхня їхнє їхні
    їх їхнього їхньої їхніх
    його її
    тим то
    також теж
    або чи
    але а
    не ні
    коли як
    де куди
    тут сюди
    там туди
    мене мені
    тебе тобі
    себе собі
    нас нам
    вас вам
    був була було були
    є був
    буде будуть
    може можуть
    цей ця це ці
    той та те ті
    один одна одне одні
    мій моя моє мої
    твій твоя твоє твої
    свій своя своє свої
    наш наша наше наші
    ваш ваша ваше ваші
    такий така таке такі
    самий сам
    проект проєкт
    слідуючий наступний
    приймати брати
    """.strip().splitlines()
)

#: Prepositions that are written for one another, many of them after Russian.
_PREPOSITIONS = each_to_others(
    """
    в у на
    в до
    до на
    по за
    по з
    з від
    з із зі
    через за
    за про
    о про
    при під
    для до
    від з
    на над
    біля коло
    """.strip().splitlines()
)

_FUNCTION_WORDS = frozenset(
    [*_PREPOSITIONS]
    + "і й та а але або чи що щоб як коли де бо тому якщо хоча не ні б би ж же".split()
    + "це той та те ті цей ця ці я ти він вона воно ми ви вони мене мені його її їх".split()
    + "є був була було були буде ще вже уже тут там так теж також лише навіть дуже".split()
)

#: Letters that are heard alike, and what Russian spelling suggests.
_MISSPELLINGS = tuple(
    (old, new)
    for old, _, new in (
        each.partition(":")
        for each in """
    и:і і:и и:ы е:и и:е о:а а:о у:в в:у ї:і і:ї є:е е:є г:х ґ:г х:г з:с с:з ж:ш д:т т:д б:п
    нн:н лл:л тт:т сс:с жж:ж чч:ч зз:з н:нн л:лл т:тт ться:тся ться:ця шся:сся тся:ться
    нь:н ль:л ть:т сь:с зь:з ць:ц н:нь л:ль т:ть ц:ць ська:ска ський:ский цький:цкий
    стн:сн ждн:жн здн:зн сн:стн зн:здн пре:при при:пре роз:рос без:бес з:із
    йо:ьо ьо:йо щ:шч шч:щ дз:з дж:ж ія:іа іа:ія ріа:рія ие:ье ові:еві еві:ові ою:ею ею:ою
    ува:ова ова:ува ир:ер ер:ир ір:ор ість:ость ції:циї
    """.split()
    )
)

#: The keys beside each key (ЙЦУКЕН).
_KEYBOARD = dict(
    key.split(":")
    for key in """
    й:цфі ц:йуфів у:цківа к:уеаві е:кнпа н:егрп г:нршо ш:гщол щ:шзлд з:щхдж х:зїжє ї:хє
    ф:йцяі і:цуфвчя в:укіасч а:кевпмс п:енармі р:нгпоти о:гшрлит л:шщодьб д:щзлжбю ж:здхєю є:хїж
    я:фчі ч:яісв с:чвам м:сапи и:мпрт т:ироь ь:толб б:ьлдю ю:бдж
    """.split()
)

#: Cases, numbers, genders and persons. Derivation is left out: learners err in inflection.
_ENDINGS = by_length(
    "ами ями ові еві єві ого его ому ему ими їми ої ій ою ею єю ах ях ам ям ів їв ей ом ем єм "
    "ий ій их їх им їм ого ньому ати яти ити іти увати ював ував ує ують уємо уєте ає ають аємо "
    "аєш аєте ив ила ило или ить ять иш имо ите ав ала ало али ати ять ють уть еш ете емо еть "
    "ість ості істю ння нню нням ть ться тися вся лася лося лися є"
)

_SOUNDS = (
    (r"[^а-яґєії]", ""),
    (r"ться|тся|цця", "Ц"),
    (r"шся|сся", "С"),
    (r"ь", ""),
    (r"щ", "шч"),
    (r"[иіеїєы]", "и"),
    (r"[оа]", "о"),
    (r"я", "о"),
    (r"ю", "у"),
    (r"в", "у"),
    (r"[гґх]", "х"),
    (r"[зс]", "с"),
    (r"[жш]", "ш"),
    (r"[дт]", "т"),
    (r"[бп]", "п"),
    (r"(.)\1+", r"\1"),
)

#: By what is corrected in 100 words of the training part of UA-GEC. Marks weigh more, because few
#: lines have one.
_MIX = {
    "spelling": 0.3,
    "misspelling": 0.9,
    "typo": 0.2,
    "spacing": 0.2,
    "real-word": 0.6,
    "preposition": 0.15,
    "derivation": 0.9,
    "case": 0.25,
    "comma": 1.3,
    "punctuation": 0.2,
    "deletion": 0.1,
    "insertion": 0.15,
    "swap": 0.05,
    "mark": 4.0,
}

UKRAINIAN = Language(
    mix=_MIX,
    real_words=_REAL_WORDS,
    prepositions=_PREPOSITIONS,
    inserted_prepositions=("в", "на", "з", "до", "по", "за"),
    function_words=_FUNCTION_WORDS,
    inserted_words=tuple(sorted(_FUNCTION_WORDS)),
    keyboard=_KEYBOARD,
    misspellings=_MISSPELLINGS,
    vowels="аеєиіїоуюя",
    heard="аеєиіїоуюя",
    silent="ь",
    marks={"—": ("-", "-", "-", "-", "–", ""), '"': ("",)},
    endings=_ENDINGS,
    loose="аеєиіїоуюяьй",
    shortest_stem=3,
    sounds=_SOUNDS,
)
