"""A made-up world: 2,000 articles on people, towns and what these founded, wrote and built; drawn from a name.

Each fact stands in one article, once. Some are where a reader looks for them, others in the article at their far end:
who founded a guild stands in the founder's life.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

Kind: TypeAlias = Literal["person", "town", "guild", "book", "river", "academy"]
_COUNTS: Final[Mapping[Kind, int]] = {
    "person": 900,
    "town": 320,
    "guild": 220,
    "book": 300,
    "river": 120,
    "academy": 140,
}
_SYLLABLE: Final = ("bdfghjklmnprstvwz", "aeiou", ("", "", "l", "n", "r", "s"))
"""Beginnings, middles and ends."""
_NUM_GIVEN, _NUM_FAMILIES = 60, 180
_ADJECTIVES: Final = ("Silent", "Burning", "Seven", "Hollow", "Forgotten", "Northern", "Broken", "Golden")
_NOUNS: Final = ("Lanterns", "Gardens", "Letters", "Bells", "Voyages", "Shadows", "Songs", "Orchards")
_YEARS: Final = range(1100, 1900)


class Relation(NamedTuple):
    """What one thing is to another; each subject has exactly one object."""

    name: str
    subject: Kind
    object: Kind | None
    """None: a year."""
    phrase: str
    """The object, said by its subject."""
    keywords: str
    """What to search for, beside the subject."""
    sentences: tuple[str, ...]
    """Ways to tell it."""
    is_in_object_article: bool = False
    """It stands in the article of the object."""


RELATIONS: Final[Sequence[Relation]] = (
    Relation(
        *("birthplace", "person", "town", "the town in which {} was born", "born town"),
        ("{s} was born in the town of {o}.", "{o} is the town in which {s} was born."),
    ),
    Relation(
        *("teacher", "person", "person", "the teacher of {}", "teacher learned"),
        ("{s} learned from the teacher {o}.", "The only teacher of {s} was {o}."),
    ),
    Relation(
        *("birth", "person", None, "the year in which {} was born", "born year"),
        ("{s} was born in the year {o}.", "The year of birth of {s} is {o}."),
    ),
    Relation(
        *("river", "town", "river", "the river on which {} lies", "lies on river"),
        ("{s} lies on {o}.", "The walls of {s} stand on both banks of {o}."),
    ),
    Relation(
        *("mayor", "town", "person", "the first mayor of {}", "first mayor"),
        ("{o} was the first mayor of {s}.", "The people of {s} chose {o} as their first mayor."),
        is_in_object_article=True,
    ),
    Relation(
        *("charter", "town", None, "the year in which {} got its charter", "charter year"),
        ("{s} got its charter in the year {o}.", "Its charter, which {s} still keeps, is of the year {o}."),
    ),
    Relation(
        *("founder", "guild", "person", "the founder of {}", "founder founded"),
        ("{o} was the founder of {s}.", "{s} was founded by {o}."),
        is_in_object_article=True,
    ),
    Relation(
        *("seat", "guild", "town", "the town in which {} has its seat", "seat town"),
        ("{s} has its seat in the town of {o}.", "The seat of {s} is {o}."),
    ),
    Relation(
        *("author", "book", "person", "the author of {}", "author wrote"),
        ("{s} was written by {o}.", "The author of {s} is {o}."),
    ),
    Relation(
        *("printer", "book", "guild", "the guild that printed {}", "printed guild"),
        ("{s} was printed by {o}.", "{o} printed {s}."),
    ),
    Relation(
        *("bridge", "river", "person", "the builder of the oldest bridge over {}", "oldest bridge builder"),
        ("The oldest bridge over {s} was built by {o}.", "{o} built the oldest bridge over {s}."),
    ),
    Relation(
        *("place", "academy", "town", "the town in which {} stands", "stands town"),
        ("{s} stands in the town of {o}.", "The halls of {s} are in {o}."),
    ),
    Relation(
        *("rector", "academy", "person", "the first rector of {}", "first rector"),
        ("{o} was the first rector of {s}.", "When {s} opened, its first rector was {o}."),
        is_in_object_article=True,
    ),
)
_ASIDES: Final = (
    "Travellers like to compare it with {x}.",
    "A song that is sung on feast days also names {x}.",
    "Nothing connects it with {x}, whatever people say.",
    "An old map, which shows {x} as well, has a note on it.",
    "Its entry in the chronicle follows that of {x}.",
)


class Entity(NamedTuple):
    """One thing of the world, with the id of its article."""

    kind: Kind
    name: str
    article: int


class Fact(NamedTuple):
    """One fact, and the id of the article that tells it."""

    relation: Relation
    subject: Entity
    object: Entity | None
    """None: a year."""
    value: str
    """Name of the object, or the year."""
    article: int


class Article(NamedTuple):
    """One article of the library."""

    id: int
    title: str
    body: str


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What is true, and what is written."""

    articles: Mapping[int, Article]
    facts: Mapping[int, Sequence[Fact]]
    """Facts by the article of their subject."""
    entities: Sequence[Entity]


@lru_cache(maxsize=4)
def draw_world(name: str) -> World:
    """Return the world of this name; equal names give equal bytes."""
    rng = Random(f"world {name}")
    entities = _draw_entities(rng)
    of_kind: dict[Kind, list[Entity]] = {kind: [] for kind in _COUNTS}
    for entity in entities:
        of_kind[entity.kind].append(entity)
    facts: dict[int, list[Fact]] = {entity.article: [] for entity in entities}
    sentences: dict[int, list[str]] = {entity.article: [] for entity in entities}
    for entity in entities:
        for relation in RELATIONS:
            if relation.subject != entity.kind:
                continue
            fact = _draw_fact(relation, entity, of_kind, rng)
            facts[entity.article].append(fact)
            sentences[fact.article].append(rng.choice(relation.sentences).format(s=entity.name, o=fact.value))
    articles = {
        entity.article: Article(entity.article, entity.name, _write(entity, sentences[entity.article], entities, rng))
        for entity in entities
    }
    return World(articles=articles, facts=facts, entities=entities)


def _draw_entities(rng: Random) -> list[Entity]:
    coined = _coin_words(rng)
    given = [next(coined) for _ in range(_NUM_GIVEN)]
    families = [next(coined) for _ in range(_NUM_FAMILIES)]
    people = rng.sample([f"{first} {last}" for first in given for last in families], _COUNTS["person"])
    ids = iter(rng.sample(range(1000, 10000), sum(_COUNTS.values())))
    entities = [Entity("person", name, next(ids)) for name in people]
    for kind, count in _COUNTS.items():
        if kind != "person":
            entities += [Entity(kind, _name(kind, next(coined), rng), next(ids)) for _ in range(count)]
    return entities


def _coin_words(rng: Random) -> Iterator[str]:
    """Yield words that no language has, each once."""
    seen: set[str] = set()
    while True:
        letters = [rng.choice(part) for _ in range(rng.choice((2, 3, 3))) for part in _SYLLABLE]
        word = "".join(letters).capitalize()
        if word not in seen:
            seen.add(word)
            yield word


def _name(kind: Kind, word: str, rng: Random) -> str:
    match kind:
        case "guild":
            return f"the {word} {rng.choice(('Guild', 'League', 'Company'))}"
        case "book":
            return f"{rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)} of {word}"
        case "river":
            return f"the River {word}"
        case "academy":
            return f"the {word} Academy"
        case _:
            return word


def _draw_fact(relation: Relation, subject: Entity, of_kind: Mapping[Kind, Sequence[Entity]], rng: Random) -> Fact:
    if relation.object is None:
        return Fact(relation, subject, None, str(rng.choice(_YEARS)), subject.article)
    found = subject
    while found == subject:
        found = rng.choice(of_kind[relation.object])
    article = found.article if relation.is_in_object_article else subject.article
    return Fact(relation, subject, found, found.name, article)


def _write(entity: Entity, sentences: Sequence[str], entities: Sequence[Entity], rng: Random) -> str:
    asides = [aside.format(x=rng.choice(entities).name) for aside in rng.sample(_ASIDES, rng.choice((1, 2)))]
    lines = [*sentences, *asides]
    rng.shuffle(lines)
    article = "an" if entity.kind == "academy" else "a"
    body = " ".join([f"This article is about {entity.name}, {article} {entity.kind}.", *lines])
    return body.replace(". the ", ". The ")
