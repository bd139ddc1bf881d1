"""Files of others as they are: one for each environment, two rows of names, LaTeX, broken lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest

from dgbench.errors import ConfigError, RecordError
from dgbench.plan.names import our_name
from dgbench.reports.importers.latex import tabulars
from dgbench.reports.importers.table import read_table
from dgbench.reports.published import published
from dgbench.reports.reading.collect import Collection
from tests.complaints import refused

OTHERS = Path(os.environ.get("DGBENCH_DATA_DIR", "absent")) / "results_of_others"
needs_others = pytest.mark.skipif(not OTHERS.is_dir(), reason="needs results_of_others")


def said(collection: Collection) -> str:
    return "; ".join(f"{problem.kind}: {problem.reason}" for problem in collection.problems)


def accuracies(collection: Collection) -> dict[tuple[str, str], float]:
    runs = [run.identity for run in collection.runs]
    return {
        (runs[line.run]["algorithm"], line.env): round(line.accuracy, 9)
        for line in collection.rows.itertuples()
    }


TIMM = "model,img_size,top1,top1_err,param_count\n{}"


def timm_folder(folder: Path) -> None:
    for number, name in enumerate(("results-a", "results-sketch", "results-v2-matched")):
        lines = [f'net{k},224,{50 + 10 * number + k}.125,1,"1,013.{k}1"\n' for k in range(3)]
        (folder / f"{name}.csv").write_text(TIMM.format("".join(lines)))


def test_a_file_for_each_environment(tmp_path: Path) -> None:
    timm_folder(tmp_path)
    with refused("no column is the environment.*import.environment_from=file", RecordError):
        read_table(tmp_path)
    collection = read_table(tmp_path, environment_from="file")
    read = accuracies(collection)
    assert len(read) == 9 and read["net2", "sketch"] == 0.62125
    assert {env for _, env in read} == {"a", "sketch", "v2-matched"}
    assert "environment from the name of the file: a, sketch, v2-matched" in said(collection)
    (tmp_path / "results-r.csv").write_text(TIMM.format("net0,224,bad,1,1\n"))
    with refused(r"top1 is bad in line 2 of .*results-r\.csv", RecordError):
        read_table(tmp_path, environment_from="file")


def test_an_origin_that_says_nothing_is_refused(tmp_path: Path) -> None:
    timm_folder(tmp_path)
    with refused("import.environment_from=part.*holds one table"):
        read_table(tmp_path, environment_from="part")
    with refused("import.environment_from names a file"):
        read_table(pd.DataFrame({"algorithm": ["erm"]}), environment_from="file")


@needs_others
def test_timm_is_read_as_pandas_does() -> None:
    """1,267 networks; models of several image sizes differ in these alone."""
    keys: dict[str, Any] = {"environment_from": "file", "unit": "percent"}
    with refused("they differ in img_size", RecordError):
        read_table(OTHERS / "timm", **keys)
    collection = read_table(OTHERS / "timm", {"hparams": {"img_size": "img_size"}}, **keys)
    sketch = pd.read_csv(OTHERS / "timm" / "results-sketch.csv", keep_default_na=False)
    rows = collection.rows
    assert len(rows) == 6 * len(sketch)
    read = rows.loc[rows["env"] == "sketch", "accuracy"].tolist()
    assert read == pytest.approx((sketch["top1"] / 100).tolist())


ROBUSTBENCH = """,snow,snow,snow,fog,fog,fog
,1,2,3,1,2,3
Standard,0.7365,0.6571,0.5794,0.7231,0.6504,0.5736
Hendrycks2020,0.7501,0.6602,0.5811,0.7302,0.6611,0.5822
"""


def robustbench(file: Path, form: str) -> None:
    lines = [line.split(",") for line in ROBUSTBENCH.splitlines()]
    if form == "named":
        lines.insert(2, ["model", *[""] * 6])
    if form in ("merged", "excel"):
        lines[0] = ["", "snow", "", "", "fog", "", ""]
    if form != "excel":
        file.write_text("".join(",".join(line) + "\n" for line in lines))
        return
    book = openpyxl.Workbook()
    for line in lines:
        book.active.append([float(cell) if "." in cell else cell or None for cell in line])
    book.active.merge_cells("B1:D1")
    book.save(file)


@pytest.mark.parametrize("form", ["plain", "named", "merged", "excel"])
def test_two_rows_of_names(form: str, tmp_path: Path) -> None:
    file = tmp_path / f"robustbench.{'xlsx' if form == 'excel' else 'csv'}"
    robustbench(file, form)
    collection = read_table(file)
    read = accuracies(collection)
    assert len(read) == 12 and read["Standard", "fog 2"] == 0.6504
    assert "two rows of names: " in said(collection)


def test_two_columns_of_one_name_are_no_two_rows_of_names(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("algorithm,acc,acc\nerm,0.5,0.6\nirm,0.7,0.8\n")
    with refused(r"a\.csv has two columns acc", RecordError):
        read_table(file)


PAPER = r"""\documentclass{article}
\subsection{Training-domain validation}
\subsubsection{PACS}
% \begin{tabular}{lc} an old one
\begin{tabular}{lcccc}
\toprule
\multirow{2}{*}{\textbf{Algorithm}} & \multicolumn{3}{c}{Domains} & \textbf{Avg} \\
\cmidrule(lr){2-4}
 & A & C & P & \\
\midrule
ERM~\cite{vapnik} & 84.7 $\pm$ 0.4 & 80.8$_{\pm 0.6}$ & $97.2 \pm 0.3$ & 87.6 \\
ERM$^\dagger$ & 83.7 {\scriptsize$\pm$ 0.4} & 80.1 $\pm$ 0.6 & 97.1 $\pm$ 0.3 & 87.0 \\
\multicolumn{5}{l}{\textit{with augmentation}} \\
CORAL & \textbf{88.3 $\pm$ 0.2} & \textcolor{red}{80.0}$\pm$0.5 & \underline{97.5}$\pm$0.3 & 90.1 \\
\bottomrule
\end{tabular}
\subsubsection{VLCS}
\begin{tabular}{lcc}
\hline
Algorithm & C & L \\ \hline
ERM & 97.7 & 64.3 \\[2pt]
CORAL & 98.3 & 66.1\\
\hline
\end{tabular}
\end{document}
"""


def test_latex(tmp_path: Path) -> None:
    file = tmp_path / "paper.tex"
    file.write_text(PAPER)
    titles = [tabular.title for tabular in tabulars(PAPER, "paper.tex")]
    assert titles == [f"Training-domain validation, {name}" for name in ("PACS", "VLCS")]
    with refused(r"paper\.tex holds 2 tables \(1 Training.*import\.part=", RecordError):
        read_table(file)
    collection = read_table(file, part="PACS", seeds=3)
    (paper,) = collection.published
    means = {row: [value.mean for value in line.values()] for row, line in paper.values.items()}
    assert means == {
        "ERM": [84.7, 80.8, 97.2],
        "ERM†": [83.7, 80.1, 97.1],
        "CORAL": [88.3, 80.0, 97.5],
    }
    assert [value.error for value in paper.values["ERM"].values()] == [0.4, 0.6, 0.3]
    text = said(collection)
    assert "line 13, a footnote: with augmentation" in text
    assert "average: Avg: line 14 prints 90.1, its environments average 88.6" in text
    assert len(accuracies(read_table(file, part=2))) == 4


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (r"80.1 $\pm$ 0.6 &", r"80.1 $\pm$ 0.6", "4 cells in line 12, 5 in the first row"),
        ("83.7", r"\mystery{83}", r"is \\\\?mystery.* in line 12"),
        ("83.7", "83.7$^1$", r"in line 12"),
        (r"\end{tabular}", "", r"no .?\\end.tabular. for line 5"),
    ],
)
def test_faults_of_latex_are_named_with_their_line(
    old: str, new: str, fault: str, tmp_path: Path
) -> None:
    file = tmp_path / "paper.tex"
    broken = PAPER.replace(old, new)
    file.write_text(broken if old != r"\end{tabular}" else broken.split(r"\subsubsection{VLCS}")[0])
    with pytest.raises((RecordError, ConfigError), match=fault):
        read_table(file, part=1)


@needs_others
def test_domainbeds_source_holds_what_is_published() -> None:
    file = OTHERS / "domainbed_2020_results.tex"
    part = "Model selection: leave-one-domain-out cross-validation, TerraIncognita"
    (paper,) = read_table(file, part=part, seeds=3, bar="domainbed").published
    (ours,) = (
        table
        for table in published("domainbed2020_loo_val").domains
        if table.dataset == "terra_incognita"
    )
    assert {our_name(row): list(line.values()) for row, line in paper.values.items()} == {
        row: list(line.values()) for row, line in ours.values.items()
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("algorithm,env,acc\nerm,a,0.5\nerm,b\n", "2 cells in line 3, 3 in"),
        ("algorithm,env,acc\n", "no line of values"),
        ("algorithm,env,acc\nerm,a,0.5\n\n\nerm,b,0.5,1\n", "4 cells in line 5, 3 in"),
        ("# note\nalgorithm,env,acc\nerm,a,0.5\nerm,b,x\n", "acc is x in line 4"),
        ('{"algorithm": "erm", "env": "a", "acc": 0.5}\n{"algorithm": "erm"', "line 2"),
        ('{"algorithm": "erm", "acc": 0.5, "acc": 0.6}\n', "line 1 .acc is there twice"),
        ("algorithm,env,acc\nerm,a,0.5\nerm,b\0,0.6\n", "NUL character in line 3"),
    ],
)
def test_faults_are_named_with_their_line(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / ("a.jsonl" if text.startswith("{") else "a.csv")
    file.write_text(text)
    with refused(rf"{file.name}.*{fault}", RecordError):
        read_table(file)
