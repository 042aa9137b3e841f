"""How `kvwise digest` finds the places of 40 questions in the King James Bible.

    bible -f gen1:1-rev22:21 | sed 's/^[A-Za-z0-9]*:[0-9]* //' > kjv.txt    (Debian: bible-kjv)
    kvwise digest kjv.txt --embed-model MODEL --out FOLDER
    python benchmarks/digest_search.py MODEL FOLDER

Questions and the words that mark their places were written down before anything was searched; both
halves were seen while the ways to join the scores were compared. A question is found by a chunk in
which one of its places begins. Printed: how often the right chunk is first, is among five, and the
mean of 1/rank, by the cosine alone, by BM25 alone and by both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from kvwise.digest.engines import EngineTokenizer, bytes_to_floats, embed
from kvwise.digest.lexical import Words, fused
from kvwise.digest.pool import cosine
from kvwise.digest.search import read
from kvwise.digest.shelf import Row, Shelf
from kvwise.engine.server import Server
from kvwise.launch import Launch

FIRST = (
    (
        "Who built the ark?",
        (
            "Make thee an ark of gopher wood",
            "Thus did Noah; according to all that God commanded him",
            "prepared an ark to the saving of his house",
        ),
    ),
    (
        "Who killed Goliath?",
        (
            "smote the Philistine in his forehead",
            "David prevailed over the Philistine with a sling",
        ),
    ),
    ("What swallowed Jonah?", ("prepared a great fish to swallow up Jonah",)),
    (
        "How did the walls of Jericho fall?",
        (
            "the wall fell down flat",
            "the wall of the city shall fall down flat",
        ),
    ),
    (
        "Which commandments forbid killing and stealing?",
        (
            "Thou shalt not kill.",
            "Thou shalt not steal",
            "Neither shalt thou steal",
        ),
    ),
    (
        "Who betrayed Jesus for thirty pieces of silver?",
        (
            "covenanted with him for thirty pieces of silver",
            "brought again the thirty pieces of silver",
        ),
    ),
    (
        "Who was thrown into the den of lions?",
        (
            "c",
            "a",
            "s",
            "t",
            " ",
            "h",
            "i",
            "m",
            " ",
            "i",
            "n",
            "t",
            "o",
            " ",
            "t",
            "h",
            "e",
            " ",
            "d",
            "e",
            "n",
            " ",
            "o",
            "f",
            " ",
            "l",
            "i",
            "o",
            "n",
            "s",
        ),
    ),
    ("What is love like: is it patient and kind?", ("Charity suffereth long, and is kind",)),
    (
        "Whose brothers sold him into Egypt?",
        (
            "sold Joseph to the Ishmeelites",
            "the Midianites sold him into Egypt",
            "Joseph your brother, whom ye sold into Egypt",
        ),
    ),
    (
        "What did Pharaoh dream about cows?",
        (
            "seven well favoured kine",
            "seven other kine came up",
            "The seven good kine are seven years",
        ),
    ),
    ("Who was turned into a pillar of salt?", ("became a pillar of salt",)),
    ("Who cut the hair of Samson?", ("shave off the seven locks of his head",)),
    (
        "Which king ordered a child to be cut in two with a sword?",
        ("Divide the living child in two",),
    ),
    (
        "Where was Jesus born?",
        (
            "Jesus was born in Bethlehem",
            "unto the city of David, which is called Bethlehem",
            "she brought forth her firstborn son, and wrapped him",
        ),
    ),
    ("Who washed his hands before the crowd?", ("washed his hands before the multitude",)),
    (
        "How many loaves and fishes fed the five thousand?",
        (
            "five loaves, and two fishes",
            "five barley loaves",
            "Five, and two fishes",
            "five loaves and two fishes",
            "five loaves and the two fishes",
        ),
    ),
    (
        "What happened to Saul on the road to Damascus?",
        (
            "there shined round about him a light from heaven",
            "there shone from heaven a great light",
            "a light from heaven, above the brightness of the sun",
        ),
    ),
    ("Who climbed a sycamore tree to see Jesus?", ("climbed up into a sycomore tree",)),
    ("What did the writing on the wall say at the feast of Belshazzar?", ("MENE, MENE, TEKEL",)),
    (
        "What did Esau sell for a meal?",
        (
            "he sold his birthright unto Jacob",
            "sold his birthright",
        ),
    ),
)
SECOND = (
    (
        "What food fell from heaven in the wilderness?",
        (
            "I will rain bread from heaven",
            "the manna was as coriander seed",
            "the house of Israel called the name thereof Manna",
        ),
    ),
    (
        "Who wrestled with Jacob until the morning?",
        ("wrestled a man with him until the breaking of the day",),
    ),
    ("Why did people build the tower of Babel?", ("a tower, whose top may reach unto heaven",)),
    (
        "Which plague turned the river into blood?",
        (
            "they shall be turned to blood",
            "waters that were in the river were turned to blood",
        ),
    ),
    (
        "How did Absalom die?",
        (
            "thrust them through the heart of Absalom",
            "his head caught hold of the oak",
        ),
    ),
    ("Who was taken up to heaven by a chariot of fire?", ("Elijah went up by a whirlwind",)),
    (
        "Which three men were thrown into the fiery furnace?",
        (
            "cast them into the burning fiery furnace",
            "fell down bound into the midst of the burning fiery furnace",
        ),
    ),
    (
        "What did the queen of Sheba bring to Solomon?",
        (
            "an hundred and twenty talents of gold, and of spices",
            "camels that bare spices",
        ),
    ),
    (
        "Who denied Jesus three times before the rooster crowed?",
        (
            "I know not the man. And immediately the cock crew",
            "the second time the cock crew",
            "Peter then denied again",
            "while he yet spake, the cock crew",
            "Before the cock crow, thou shalt deny me thrice",
            "before the cock crow, thou shalt deny me thrice",
            "The cock shall not crow, till thou hast denied me thrice",
            "the cock shall not crow this day",
        ),
    ),
    ("What is promised to the poor in spirit?", ("Blessed are the poor in spirit",)),
    (
        "Who asked for the head of John the Baptist?",
        (
            "head in a charger",
            "The head of John the Baptist",
        ),
    ),
    (
        "How long had Lazarus been in the grave?",
        (
            "lain in the grave four days",
            "he hath been dead four days",
        ),
    ),
    ("Which apostle was bitten by a snake?", ("there came a viper out of the heat",)),
    ("What is the number of the beast?", ("Six hundred threescore and six",)),
    (
        "Who was the mother in law of Ruth?",
        (
            "the name of his wife Naomi",
            "Ruth clave unto her",
            "Ruth the Moabitess, her daughter in law",
            "Naomi said unto Ruth",
        ),
    ),
    (
        "Which trees grew in the middle of the garden of Eden?",
        (
            "the tree of life also in the midst of the garden",
            "the tree which is in the midst of the garden",
        ),
    ),
    ("Who was the mother of Samuel?", ("called his name Samuel",)),
    ("What did the prodigal son do with his money?", ("wasted his substance with riotous living",)),
    (
        "What guided the wise men from the east?",
        (
            "we have seen his star in the east",
            "the star, which they saw in the east",
        ),
    ),
    (
        "How many years did Job live after his trials?",
        ("After this lived Job an hundred and forty years",),
    ),
)


def rank(scores: Sequence[float], right: set[int]) -> int:
    """Of the best of the right ones, from 1."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    return next(number for number, at in enumerate(order, 1) if at in right)


def places(rows: Sequence[Row], data: bytes, marks: Sequence[str]) -> set[int]:
    """The chunks in which one of the places begins."""
    found: set[int] = set()
    for mark in marks:
        at = data.find(mark.encode())
        while at >= 0:
            found |= {number for number, row in enumerate(rows) if row.start <= at < row.end}
            at = data.find(mark.encode(), at + 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    launch = Launch(n_ctx=512, n_batch=512, n_ubatch=512, embeddings=True, fit=False)
    with Shelf(given.folder) as shelf, Server.start(given.model, launch) as server:
        (document,) = shelf.documents()
        data, rows = Path(document.source).read_bytes(), list(shelf.chunks())
        texts = [read(shelf, document, row.start, row.end) for row in rows]
        vectors = [bytes_to_floats(shelf.vector(row.vector)) for row in rows]
        tokenizer = EngineTokenizer(server)
        for name, questions in (("first", FIRST), ("second", SECOND)):
            ranks: dict[str, list[int]] = {"cosine": [], "BM25": [], "both": []}
            for question, marks in questions:
                (vector,) = map(bytes_to_floats, embed(server, [tokenizer.ids(question)]))
                words = Words(question)
                for row, text in zip(rows, texts, strict=True):
                    words.add(text, row.tokens)
                near, said = [cosine(vector, each) for each in vectors], words.scores()
                right = places(rows, data, marks)
                for how, scores in zip(ranks, (near, said, fused(near, said)), strict=True):
                    ranks[how].append(rank(scores, right))
            for how, found in ranks.items():
                first, five = sum(each == 1 for each in found), sum(each <= 5 for each in found)
                mean = statistics.fmean(1 / each for each in found)
                print(f"{name:7} {how:7} first {first:2}  in five {five:2}  1/rank {mean:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
