"""One glossary: hover texts, the terminal and a page of the docs have the same sentences."""

from __future__ import annotations

from pathlib import Path

from dgbench.analysis.selection import Last
from dgbench.reports.choices import Choice, choices_table
from dgbench.reports.document import Document, Section, problem_table, words_used
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import plain_document, render_html
from dgbench.reports.words import GLOSSARY, WORDS, glossary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "words.md"


def test_a_term_has_one_sentence() -> None:
    terms = [term for topic in GLOSSARY.values() for term in topic]
    assert len(terms) == len(set(terms)) == len(WORDS)
    assert all(sentence.endswith(".") for sentence in WORDS.values())


def test_the_page_of_the_docs_has_every_term() -> None:
    text = " ".join(PAGE.read_text().split())
    assert [term for term, sentence in WORDS.items() if f"{term} | {sentence} |" not in text] == []


def test_page_and_terminal_explain_with_the_same_sentence(small_study: Path) -> None:
    document = MeasuresReport()(collect([small_study]), Last())
    assert f'data-meaning="{WORDS["worst+gap"]}"' in render_html(document)
    assert f"  worst+gap: {WORDS['worst+gap']}" in plain_document(document)
    assert "fold full" not in words_used(document)


def test_a_document_takes_the_words_that_occur() -> None:
    words = glossary("measures", terms=["draw"])
    section = Section("s", "S", answer=["Worst+gap of two draws, gap-free."])
    document = Document("T", "", [section], problem_table([]), words=words)
    assert list(words_used(document)) == ["worst+gap", "draw"]


def choice(fold: str, validation: float, test: float) -> Choice:
    return Choice(
        dataset="sr_cmnist",
        variant={},
        setting={},
        algorithm="vrex",
        fold=fold,
        held_out=["0.10"],
        space="default",
        trial=0,
        seed=0,
        draw=0,
        step=100,
        hparams={},
        validation=validation,
        test=test,
        chance=0.5,
        run="0",
        folder="f",
        candidates=[],
    )


def test_a_fold_below_chance_is_explained_where_it_is_printed() -> None:
    """Validation 87 %, test 10 %: named; 55 and 48 %, near a blind guess, and 87 and 60 %: not."""
    normal = [choice("0", 0.55, 0.48), choice("1", 0.87, 0.6)]
    assert len(choices_table(normal).notes) == 1
    explained, _ = choices_table([*normal, choice("3", 0.87, 0.1)]).notes
    assert explained.startswith("1 of 3 models does worse than a blind guess in the held-out")
    assert "vrex, fold 3, has 87.0% there and 10.0% in 0.10" in explained
    assert "is reversed in the held-out one" in explained
