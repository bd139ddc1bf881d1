"""Tables of images as the Hugging Face hub has them, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgbench.data.datasets.ood_bench import camelyon17 as camelyon17_reader
from dgbench.data.fetch import arrange as from_parquet
from dgbench.data.fetch.arrange import camelyon17, domains
from dgbench.errors import DataError, RecordError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

PNG, JPG = b"\x89PNG one", b"\xff\xd8 two"
Columns = dict[str, list[Any]]


def table(file: Path, columns: Columns, names: dict[str, list[str]] | None = None) -> None:
    """A table with images of these bytes, and names of classes noted as the hub's library notes
    them.
    """
    images = [{"bytes": content, "path": None} for content in columns["image"]]
    made = pa.table({**columns, "image": images})
    features = {
        column: {"names": own, "_type": "ClassLabel"} for column, own in (names or {}).items()
    }
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(made.replace_schema_metadata(about), file)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("batch", [1, 1000])
def test_domains_and_classes_become_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """A domain by its name or by a number; images are counted through all tables."""
    monkeypatch.setattr(from_parquet, "BATCH_ROWS", batch)
    names = {"label": ["dog", "house"]}
    table(
        tmp_path / "0.parquet",
        {"image": [PNG, JPG], "domain": ["photo", "sketch"], "label": [1, 0]},
        names,
    )
    table(
        tmp_path / "1.parquet",
        {"image": [JPG], "domain": [1], "label": [1]},
        {**names, "domain": ["Art", "Real"]},
    )
    domains(tmp_path)
    assert tree(tmp_path) == {
        "photo/house/00000.png": PNG,
        "sketch/dog/00001.jpg": JPG,
        "Real/house/00002.jpg": JPG,
    }


def test_camelyon17_is_laid_out_as_its_reader_wants_it(tmp_path: Path) -> None:
    """One patch of each part; validation is of the training hospitals (split 1) and of hospital 1
    (split 3).
    """
    rows = {
        "train-00000-of-00001": [(4, 4, 3328, 21792, 1, 0, 0)],
        "validation-00000-of-00001": [(17, 1, 1, 2, 0, 11, 3), (46, 3, 5, 6, 1, 30, 1)],
        "test-00000-of-00001": [(42, 3, 7, 8, 0, 23, 2)],
    }
    for name, own in rows.items():
        values = [list(column) for column in zip(*own, strict=True)]
        columns = dict(
            zip(
                ("patient", "node", "x_coord", "y_coord", "label", "slide", "center"),
                values,
                strict=True,
            )
        )
        table(
            tmp_path / f"{name}.parquet",
            {"image": [PNG + bytes([row[0]]) for row in own], **columns},
        )
    camelyon17(tmp_path)
    assert (tmp_path / "metadata.csv").read_text().splitlines() == [
        ",patient,node,x_coord,y_coord,tumor,slide,center,split",
        "0,042,3,7,8,0,23,2,2",
        "1,004,4,3328,21792,1,0,0,0",
        "2,017,1,1,2,0,11,3,1",
        "3,046,3,5,6,1,30,1,3",
    ]
    read = camelyon17_reader(tmp_path)
    assert read[1] == (
        "patches/patient_004_node_4/patch_patient_004_node_4_x_3328_y_21792.png",
        "hospital_0",
        "tumor",
        None,
    )
    assert {(tmp_path / path).read_bytes()[-1] for path, *_ in read} == {42, 4, 17, 46}
    assert len(tree(tmp_path)) == 5


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", "", ".hidden", None, 3])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: object) -> None:
    table(
        tmp_path / "0.parquet", {"image": [PNG], "domain": [name], "label": [0]}, {"label": ["dog"]}
    )
    with pytest.raises(DataError, match=r"folder.*trust"):
        domains(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["0.parquet"]


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table.*; fetch.*dataset again"):
        domains(tmp_path)
    table(tmp_path / "0.parquet", {"image": [PNG], "domain": ["a"], "label": [0]})
    with pytest.raises(DataError, match=r"0\.parquet.*column patient.*table.*expected"):
        camelyon17(tmp_path)
    with pytest.raises(
        DataError, match=r"0\.parquet calls.*domain.*class 0"
    ):  # no names of classes
        domains(tmp_path)
    content = (tmp_path / "0.parquet").read_bytes()
    for broken in (content[:100], content[:20] + bytes(40) + content[60:], b""):
        (tmp_path / "0.parquet").write_bytes(broken)
        with pytest.raises(
            DataError, match=r"^0\.parquet.*cut short.*corrupt \(.*\); delete.*fetch.*again$"
        ):
            domains(tmp_path)


def test_a_table_that_expands_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    """Five million times the same value, in a few kilobytes; nothing of it is read."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["photo"]))
    lines = pa.table({"image": column, "domain": column, "label": column})
    with pq.ParquetWriter(tmp_path / "0.parquet", lines.schema, compression="zstd") as writer:
        writer.write_table(pa.concat_tables([lines] * 100))
    with pytest.raises(RecordError, match=r"0\.parquet expands to more than 32 MB"):
        domains(tmp_path)
