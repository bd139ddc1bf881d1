"""The glossary: every term that reports use, with one sentence.

Pages explain a term where it first stands and list those that occur; the terminal explains the
columns that it prints; ``docs/reference/words.md`` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: topic -> term -> its sentence; a term stands in one topic
GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "studies": {
        "held-out environment": "a given environment that the judged model was not trained on.",
        "given environment": (
            "one that a dataset offers for training (a source domain); leave-one-out holds each "
            "out once."
        ),
        "fold full": (
            "the model trained on all given environments; the ideal error is that of this model."
        ),
        "selection": (
            "how the step and hyperparameters of each model were chosen, from validation data "
            "alone unless it says oracle."
        ),
        "draw": (
            "one random set of hyperparameters (hparams_seed in DomainBed); 0 is the default set."
        ),
        "blind guess": "right once in K classes, whatever the image: a reference, never ranked.",
    },
    "measures": {
        "average": "mean of the N held-out errors (Hwang et al. 2024, eq. 2).",
        "worst": "largest of the N held-out errors.",
        "gap": "largest minus smallest of the N held-out errors.",
        "worst+gap": (
            "worst + gap / (N - 2): meant to bound errors in other environments; no rate, it may "
            "exceed 100% (Hwang et al. 2024, eq. 6)."
        ),
        "ideal": (
            "largest error over all environments, known only where all can be tested: the truth "
            "that the other measures try to predict (eq. 4)."
        ),
        "interval": (
            "of the difference in a paired t-test over seeds; above 95% where the leader is judged "
            "against several, so that all verdicts hold together (Bonferroni)."
        ),
        "cost": (
            "ideal error of the algorithm that a measure selects, minus the lowest ideal error."
        ),
        "exact": "errors expected over the spurious feature, such as the color: none is sampled.",
    },
    "accuracies": {
        "average accuracy": (
            "mean over the held-out environments of a dataset, then over the datasets; higher is "
            "better."
        ),
        "ranking score": (
            "datasets on which an algorithm is above the reference's error bar, minus those on "
            "which it is below (Ye et al. 2022)."
        ),
        "oracle gap": (
            "what choosing step and hyperparameters by test accuracy itself would gain (Zhang et "
            "al. 2023)."
        ),
    },
    "leakage": {
        "leakage": (
            "average accuracy of the draw that an oracle chooses, minus that of the one that "
            "validation data choose."
        ),
        "oracle, K": (
            "it chooses the draw with the highest mean accuracy over K of the model's test domains."
        ),
    },
    "power": {
        "deviation": (
            "standard deviation, over seeds, of the difference of two algorithms, paired by seed; "
            "of the median pair."
        ),
        "power": "share of studies in which a true difference of that size would be found.",
        "evidence": (
            "how much more likely the differences are if the first algorithm is lower; it may be "
            "looked at after every seed (an e-value: mixture t, right Haar prior; Lai 1976, Wang & "
            "Ramdas 2025). It takes differences over seeds to be about normal."
        ),
        "without that": (
            "the same whatever differences are like within the bounds of the measure: the capital "
            "of a bet on the first algorithm (Waudby-Smith & Ramdas 2024)."
        ),
        "more often lower": (
            "evidence of another claim: that the first algorithm is lower in more seeds than it is "
            "higher in. It assumes nothing of differences; a lower error in most seeds is no lower "
            "mean."
        ),
    },
    "claims": {
        "best": (
            "a column's highest value, whether or not the paper says so; it survives where Welch's "
            "t-tests separate it from every other value of the column, at 5% for all of them "
            "together (Bonferroni)."
        ),
        "A above B": (
            "two different values of a column; it survives by itself where Welch's two-sided "
            "t-test has p below 5%, and with all others where it has so after Holm's correction "
            "over the pairs of the column."
        ),
    },
    "trials": {
        "decided": (
            "a paired t-test over trials separates two algorithms at 5%, two-sided: alone, or with "
            "all others of the line after Holm's correction."
        ),
        "trials needed": (
            "for 80% power at 5%, two algorithms alone, if the difference and the deviation that "
            "were found are the true ones."
        ),
    },
    "components": {
        "moves": (
            "root mean square of what the levels add, in percentage points: the deviation that a "
            "random pick among them makes."
        ),
        "combinations": "what some levels do together beyond the sum of what each does.",
        "seed": "the deviation among models that differ in their seed alone.",
    },
    "errors": {
        "macro-F1": (
            "mean over the classes that labels hold of the harmonic mean of precision and recall "
            "(as in WILDS)."
        ),
        "AUROC": (
            "chance that an image of a class gets a higher probability of it than an image of "
            "another class."
        ),
        "ECE": (
            "expected calibration error: mean difference of confidence and accuracy, in bins of "
            "equal confidence."
        ),
        "worst group": (
            "the class and environment with the lowest accuracy, among those with 10 images or "
            "more."
        ),
    },
    "distribution": {
        "in distribution": (
            "on images like those that a model was trained on: validation data of its training "
            "environments, or what the table says."
        ),
        "effective robustness": (
            "accuracy out of distribution minus what the line expects of a model's accuracy in "
            "distribution (Taori et al. 2020)."
        ),
        "outlier": (
            "an algorithm whose distance from the line of all others is larger than chance allows, "
            "at 5% for all of them together (Bonferroni); related models count as independent."
        ),
    },
    "transfer": {
        "source": "the one environment that a model was trained in.",
        "target": "an environment that the model never saw, in which it is tested.",
    },
    "theory": {
        "slack": (
            "right side minus left side of a statement, percentage points of error; below 0 it "
            "does not hold."
        ),
        "M and m": (
            "largest and smallest error of one model over the N given environments; b and a those "
            "over all."
        ),
        "largest error": "over all environments, known where a model was tested in them.",
        "M_cov": (
            "covariate shift of two sides (Zhang et al. 2023): the largest difference of the "
            "disagreement of two functions, estimated as twice the accuracy of telling the sides "
            "apart, minus 1."
        ),
        "M_cpt": (
            "concept shift: disagreement of the labeling functions of two sides (Zhang et al. "
            "2023)."
        ),
    },
    "shift": {
        "diversity shift": (
            "share of images with features that occur on one side alone (Ye et al. 2022, "
            "Definition 1)."
        ),
        "correlation shift": (
            "change of the label's distribution given features of both sides (Ye et al. 2022)."
        ),
        "no shift": (
            "the same estimate between two halves of both sides together, where every shift is 0."
        ),
        "half-sampling": (
            "whole estimates on halves of the images; their standard deviation is the standard "
            "error."
        ),
        "EMD": "earth mover's distance: least mean distance over which features must be moved.",
        "MMD²": "squared maximum mean discrepancy, with a Gaussian kernel.",
        "NI": "non-i.i.d. index: difference of the means of features over their deviations.",
    },
}
WORDS: Mapping[str, str] = {
    term: sentence for terms in GLOSSARY.values() for term, sentence in terms.items()
}


def glossary(*topics: str, terms: Iterable[str] = ()) -> dict[str, str]:
    """Collect the terms of some topics, and single terms of others, with their sentences."""
    collected: dict[str, str] = {}
    for topic in topics:
        collected |= GLOSSARY[topic]
    return collected | {term: WORDS[term] for term in terms}
