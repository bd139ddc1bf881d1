"""Terms are explained once, where they first stand, whatever the page holds around them."""

from __future__ import annotations

from dgbench.reports.render.formats import Explained

WORDS = {
    "gap": "Largest less smallest.",
    "worst+gap": 'Worst + "gap".',
    "held-out environment": "Not trained on.",
}


def test_the_first_occurrence_alone_in_the_order_of_the_page() -> None:
    explain = Explained(WORDS)
    first = str(explain("The worst+gap over held-out environments; again worst+gap."))
    assert first == (
        'The <dfn tabindex="0" aria-describedby="word-worst_gap" '
        'data-meaning="Worst + &#34;gap&#34;.">worst+gap</dfn> '
        'over <dfn tabindex="0" aria-describedby="word-held_out_environment" '
        'data-meaning="Not trained on.">held-out '
        "environments</dfn>; again worst+gap."
    )
    assert str(explain("No worst+gap here.")) == "No worst+gap here."
    assert str(explain("Gaps differ.")).startswith("<dfn ")


def test_whole_words_alone_and_safe_text() -> None:
    explain = Explained(WORDS)
    assert str(explain("stopgap, gap-free, <b>&")) == "stopgap, gap-free, &lt;b&gt;&amp;"
    assert str(Explained({})("gap")) == "gap"
