"""The analyser, held against its definition: expectations are written by hand or follow from Unicode's own tables."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.limits import WORD_LETTERS_MAX
from omnigraph.store.index.text_analysis import STOP_WORDS, count_terms, joined_terms, spellings_of, terms_of
from tools import built_docs

GUIDE = (Path(__file__).parents[2] / "docs" / "languages.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (yes|no) \|$", GUIDE, re.MULTILINE)

TERMS = {
    # Case, accents, forms of Unicode.
    "The running Boats": "run boat",
    "straße STRASSE Straße Strasse": "strass strass strass strass",
    "\u0130stanbul istanbul ISTANBUL \u0131stanbul I\u0307stanbul": "istanbul " * 5,
    "caf\u00e9 Cafe\u0301 CAF\u00c9 cafes": "cafe cafe cafe cafe",
    "r\u00e9sum\u00e9 resume": "resum resum",
    "ΟΔΟΣ οδος οδός": "οδοσ οδοσ οδοσ",
    "ﬁne ＡＢＣ ２０２４ Ⅷ x²": "fine abc 2024 viii x2",
    "Øre ægir łódź þing": "ore aegir lodz thing",
    "\u0439 \u0438\u0306 \u0451 \u0435\u0308 не\u0301бо небо": "й й ё ё небо небо",
    "العَرَبِيَّة العربية שָׁלוֹם שלום": "العربية العربية שלום שלום",
    # What separates, and what does not.
    "snake_case kebab-case x.y 3.14 a/b@c": "snake case kebab case x y 3 14 b c",
    "don't it's": "don t s",
    "sea😀wind 👩\u200d👩\u200d👧 🇩🇪 ❤\ufe0f 1\ufe0f\u20e3": "sea wind 1",
    "co\u00adoperate zero\u200bwidth می\u200cخواهم": "cooper zero width میخواهم",
    "\u0301sea = \u0338wind \u0640": "sea wind",
    "½ … ㈱": "1 2 株",
    # Stop words are words without accents; negations are none.
    "the THE th\u00e9 no not nor can will": "the no not nor",
    # Long words.
    "x" * 60: "x" * 60,
    "X" * (WORD_LETTERS_MAX + 9): "x" * WORD_LETTERS_MAX,
    # Scripts without spaces, and others.
    "東京都に行く": "東京 都 に 行く",
    "我爱北京天安门": "我 爱 北京 天安门",
    "ｶﾀｶﾅ カタカナ か\u3099 が": "カタカナ カタカナ が が",
    "สวัสดีชาวโลก น้ำตาล": "สวัสดี ชาว โลก น้ำตาล",
    "ພາສາລາວ": "ພາສາ ລາວ",
    "ไทยEnglish東京Tokyo": "ไทย english 東京 tokyo",
    "한국어 문장 हिन्दी бегущий бегущая": "한국어 문장 हिन्दी бегущий бегущая",
    "": "",
    "!? of the": "",
}


@pytest.mark.parametrize("text", TERMS, ids=lambda text: text[:12])
def test_terms_of_texts_are_those_of_the_definition(text: str) -> None:
    assert terms_of(text) == TERMS[text].split()


@pytest.mark.parametrize(("text", "query", "answer"), EXAMPLES)
def test_examples_of_the_guide_hold(text: str, query: str, answer: str) -> None:
    assert bool(set(terms_of(text)) & set(terms_of(query))) == (answer == "yes")


def test_guide_lists_the_stop_words_and_examples() -> None:
    assert len(EXAMPLES) > 15
    assert all(f"`{word}`" in built_docs.render_reference("stop_words") for word in STOP_WORDS)


@pytest.mark.slow
def test_texts_analysed_together_have_the_terms_of_each() -> None:
    """Pieces that texts share are looked at once, whatever stands around them."""
    chooser = random.Random(4)
    texts = [" ".join(chooser.choices(list(TERMS), k=chooser.randint(0, 4))) for _ in range(60)]
    together = joined_terms(pa.array([*texts, None])).to_pylist()
    assert [Counter(one.split()) for one in together] == [*(Counter(terms_of(text)) for text in texts), Counter()]


def test_counted_terms_are_those_of_the_texts() -> None:
    texts = list(TERMS)
    sought = sorted({term for text in texts for term in TERMS[text].split()})
    counts = count_terms(pa.array(texts), sought)
    for place, text in enumerate(texts):
        assert {term: counts[term][place] for term in sought if counts[term][place]} == Counter(TERMS[text].split())


def test_whole_words_keep_their_endings() -> None:
    assert sorted(spellings_of(pa.array(["The running Boats", "Résumés", None])).to_pylist()) == [
        "boats",
        "resumes",
        "running",
    ]


def is_iota_below(letter: str) -> bool:
    return "\u0345" in unicodedata.normalize("NFD", letter)


def test_case_and_form_of_no_letter_count() -> None:
    """Every letter of every script below U+3000 that has a case or a decomposition; the exceptions are named."""
    letters = [chr(code) for code in range(0x80, 0x3000) if unicodedata.category(chr(code))[0] == "L"]
    letters = [one for one in letters if unicodedata.normalize("NFKD", one) != one or one.casefold() != one]
    # Iota below a letter is an accent here, but an own letter in upper case; variants of Old Cyrillic stay apart.
    letters = [one for one in letters if not is_iota_below(one) and not "\u1c80" <= one <= "\u1c88"]
    forms = {
        "NFC": [unicodedata.normalize("NFC", one) for one in letters],
        "NFD": [unicodedata.normalize("NFD", one) for one in letters],
        "NFKD": [unicodedata.normalize("NFKD", one) for one in letters],
        "upper case": [one.upper() for one in letters],
        "case folding": [one.casefold() for one in letters],
    }
    plain = joined_terms(pa.array([f"x{one}x" for one in letters])).to_pylist()
    for name, changed in forms.items():
        terms = joined_terms(pa.array([f"x{one}x" for one in changed])).to_pylist()
        different = [
            (one, term, other) for one, term, other in zip(letters, plain, terms, strict=True) if term != other
        ]
        assert different == [], name
    assert len(letters) > 1_000


def test_stop_words_are_in_lower_case_ascii() -> None:
    assert all(word == word.lower() and word.isascii() and word.isalpha() for word in STOP_WORDS)
    assert len(STOP_WORDS) == 122
