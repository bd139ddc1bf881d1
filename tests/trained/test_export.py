"""An exported run is the run: with dgbench, with plain timm, as a program; and its card says what its rows say."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

import dgbench
from dgbench.analysis.intervals import wilson
from dgbench.cli.models import EXPORT_OPTIONS, export_command
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError, DgbenchError, RecordError
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.trained.export import FILES, initial_weights
from dgbench.trained.foreign import foreign
from dgbench.trained.formats import refuse_program
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import ModelRecord
from tests.complaints import refused
from tests.trained.conftest import ENVIRONMENTS, Trained


def images_for(model: Any, n: int) -> Tensor:
    return torch.randn(n, *model.preprocessing.image, generator=torch.Generator().manual_seed(0))


def logits(model: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(x)
    return found


@pytest.fixture(scope="module")
def resnet(pictures_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ResNet-18, exported."""
    return dgbench.export(pictures_run, tmp_path_factory.mktemp("export") / "resnet")


@pytest.fixture(scope="module")
def mlp(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MLP, exported in every format."""
    return dgbench.export(trained(), tmp_path_factory.mktemp("export") / "mlp", formats=["pt2", "onnx"])


# ---- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("averaging=eoa", "averaging.rule.start=2"),
        ("averaging=swad", "averaging.rule.n_converge=1", "averaging.rule.n_tolerance=1", "trainer.steps=8"),
        ("algorithm=arm",),
        ("algorithm=mtl",),
        ("trainer.precision=64-true",),
    ],
    ids=lambda words: words[0],
)
def test_the_export_is_the_run(words: tuple[str, ...], trained: Trained, tmp_path: Path) -> None:
    run = trained(*words)
    own = dgbench.load(run)
    back = dgbench.load(dgbench.export(run, tmp_path / "new"))
    assert isinstance(own, LoadedModel)
    assert isinstance(back, LoadedModel)
    x = images_for(own, 7).to(own.run.networks.dtype)
    assert torch.equal(logits(own, x), logits(back, x))
    assert (back.step, back.classes, back.preprocessing) == (own.step, own.classes, own.preprocessing)


def test_the_best_weights_are_exported_when_asked_for(trained: Trained, tmp_path: Path) -> None:
    """Learning that goes wrong after the first evaluation: the best step is the first one."""
    run = trained("hparams.lr=0.05", "trainer.steps=6")
    steps = {}
    for step in ("last", "best"):
        back = dgbench.load(dgbench.export(run, tmp_path / step, step=step))
        own = dgbench.load(run, step)
        x = images_for(own, 5)
        assert torch.equal(logits(own, x), logits(back, x))
        assert isinstance(back, LoadedModel)
        steps[step] = back.step
        assert f"after {back.step} steps" in (tmp_path / step / "README.md").read_text()
    assert steps["last"] == 6


def test_a_resnet_has_the_same_logits(pictures_run: Path, resnet: Path) -> None:
    own, back = dgbench.load(pictures_run), dgbench.load(resnet)
    x = images_for(own, 5)
    assert torch.equal(logits(own, x), logits(back, x))


PLAIN = """
import json, sys
sys.modules["dgbench"] = None
import timm, torch
folder, pictures = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1)
x = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
local = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
named = timm.create_model("resnet18", num_classes=2, checkpoint_path=f"{folder}/model.safetensors").eval()
from PIL import Image
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(local))
seen = torch.stack([transform(Image.open(file)) for file in pictures])
with torch.no_grad():
    found = {"local": local(x), "named": named(x), "pictures": local(seen)}
torch.save({**found, "labels": local.pretrained_cfg["label_names"]}, f"{folder}/found.pt")
"""


@pytest.mark.thorough
def test_plain_timm_reads_the_folder(pictures_run: Path, resnet: Path, pictures: Path, tmp_path: Path) -> None:
    """In a process that has no dgbench: bit-equal logits, also from picture files through timm's own transform."""
    folder = Path(shutil.copytree(resnet, tmp_path / "elsewhere"))
    files = [str(file) for file in sorted(pictures.glob("art_painting/*/*.png"))[:6]]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, "-c", PLAIN, str(folder), *files],
        env={**environment, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    found, own = torch.load(folder / "found.pt"), dgbench.load(pictures_run)
    expected = logits(own, images_for(own, 5))
    assert torch.allclose(found["local"], expected, rtol=0, atol=1e-6)
    assert torch.equal(found["named"], found["local"])
    assert torch.allclose(found["pictures"], own.predict(files).logits, rtol=0, atol=1e-6)
    assert tuple(found["labels"]) == own.classes == ("cat", "dog")


def test_what_is_exported_says_no_path_of_this_machine(resnet: Path, pictures: Path) -> None:
    """What only training needs, DANN's discriminator, is left out."""
    for file in ("README.md", "model.json", "config.json"):
        assert str(pictures) not in (resnet / file).read_text()
    from safetensors import safe_open

    with safe_open(resnet / "model.safetensors", "pt") as opened:
        names = set(opened.keys())
    assert {"conv1.weight", "fc.weight", "fc.bias"} <= names
    assert not [name for name in names if "discriminator" in name or "networks" in name]


@pytest.mark.thorough
@pytest.mark.parametrize("n", [1, 2, 5])
def test_programs_have_the_same_logits_for_any_batch(n: int, trained: Trained, mlp: Path) -> None:
    own = dgbench.load(trained())
    x = images_for(own, n)
    program = foreign(str(mlp / "model.pt2"), trust=True)(Preprocessing((1, 5, 5), (0,), (1,)))
    assert (program.classes, program.preprocessing) == (own.classes, own.preprocessing)
    assert torch.equal(logits(program, x), logits(own, x))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(mlp / "model.onnx")
    (found,) = session.run(["logits"], {"images": x.numpy()})
    assert torch.allclose(torch.from_numpy(found), logits(own, x), rtol=0, atol=1e-5)


def errors_in(folder: Path, step: int) -> dict[tuple[Any, ...], float]:
    rows = [row for row in read_rows(folder / ROW_FILE)[0] if row["step"] == step]
    return {(row["env"], row["subset"], row["seen"], row["wrong"]): round(row["loss"], 5) for row in rows}


@pytest.mark.thorough
def test_exports_are_evaluated_as_the_run_was(trained: Trained, mlp: Path, tmp_path: Path) -> None:
    """The folder on the dataset that it names, the program on the same one, typed."""
    expected = errors_in(trained(), 4)
    again = dgbench.evaluate(mlp, ["trainer.device=cpu"], output=tmp_path)
    assert [errors_in(folder, 4) for folder in again.folders] == [expected]
    words = ["dataset=sr_cmnist", "dataset.base=digits", "trainer.device=cpu", "protocol.folds=[0]"]
    program = dgbench.evaluate(str(mlp / "model.pt2"), words, name="program", trust=True, output=tmp_path)
    assert [errors_in(folder, 0) for folder in program.folders] == [expected]


def test_an_export_of_pictures_asks_where_they_are(
    pictures_run: Path, resnet: Path, pictures: Path, tmp_path: Path
) -> None:
    with refused(r"dataset\.root", DgbenchError):
        dgbench.evaluate(resnet, ["trainer.device=cpu"], output=tmp_path)
    words = [f"dataset.root={pictures}", f"dataset.cache_dir={tmp_path}", "trainer.device=cpu"]
    found = dgbench.evaluate(resnet, words, output=tmp_path)
    assert [errors_in(folder, 2) for folder in found.folders] == [errors_in(pictures_run, 2)]


# ---- the card -------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_card_are_those_of_the_rows(pictures_run: Path, resnet: Path) -> None:
    text = (resnet / "README.md").read_text()
    rows = [row for row in read_rows(pictures_run / ROW_FILE)[0] if row["step"] == 2 and row["subset"] == "test"]
    assert {row["env"] for row in rows} == {"art_painting"}
    for row in rows:
        low, high = (f"{100 * end:.1f}" for end in wilson(row["wrong"], row["seen"]))
        error = f"{100 * row['wrong'] / row['seen']:.1f}"
        assert f"| {row['env']} | held out | test | {row['seen']} | {error} | {low} to {high} |" in text
    head = yaml.safe_load(text.split("---\n")[1])
    assert (head["library_name"], head["license"]) == ("timm", "unknown")
    assert "dann" in head["tags"]
    for said in (
        f"trained on the environments {', '.join(ENVIRONMENTS[1:])} of pacs",
        "it never saw art_painting",
        "`batch_size=3`",
        "the last, after 2 steps",
        "license: not stated by its authors; for research",
    ):
        assert said in text


def test_many_environments_are_three_lines(trained: Trained, tmp_path: Path) -> None:
    """A model of all given environments is judged in 101."""
    run = trained("protocol.folds=[full]")
    text = (dgbench.export(run, tmp_path / "full") / "README.md").read_text()
    assert re.search(r"Lowest, median.*highest.*1\d\d environments", text)
    table = text.split("## Error")[1].split("## Training")[0]
    assert len(re.findall(r"^\| [\d.]+ \|", table, re.MULTILINE)) == 3


@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_the_code_of_the_card_runs(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(request.getfixturevalue(name), tmp_path / "folder"))
    Image.new("RGB", (50, 40), (200, 10, 10)).save(folder / "picture.png")
    monkeypatch.chdir(folder)
    programs = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == {"mlp": 3, "resnet": 2}[name]
    for program in programs:
        exec(program, {})


PUBLISHED = {"resnet18": {"tv_in1k": {"url": "https://hub/x", "license": "bsd-3-clause"}, "mine": {"url": "u"}}}


@pytest.mark.parametrize(
    ("init", "keys", "found"),
    [
        ("supervised_tv_in1k:0123456789ab", {}, ("https://hub/x", "bsd-3-clause")),
        ("supervised_mine:0123456789ab", {}, ("u", "")),
        ("supervised:0123456789ab", {"path": "my.pth"}, ("", "")),
        ("supervised:0123456789ab", {"url": "https://other"}, ("https://other", "")),
        ("other:0123456789ab", {}, ("", "")),
    ],
)
def test_initial_weights_bring_their_license(
    init: str, keys: dict[str, str], found: tuple[str, str], tmp_path: Path
) -> None:
    config = {"init": {"name": "supervised", "published": PUBLISHED, **keys}, "backbone": {"arch": "resnet18"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert initial_weights(tmp_path, init) == found


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vit_base_patch16_224"])
def test_licenses_of_published_weights_are_those_that_timm_states(name: str) -> None:
    import timm

    from dgbench.configuration import CONF

    versions = yaml.safe_load((CONF / "init" / "supervised.yaml").read_text())["published"][name]
    for version, about in versions.items():
        assert about["license"] == timm.get_pretrained_cfg(f"{name}.{version}").license


# ---- what cannot be exported ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [(("algorithm=arm",), "8 images together"), (("algorithm=mtl",), "random numbers")],
    ids=["arm", "mtl"],
)
def test_a_program_cannot_express_every_model(
    words: tuple[str, ...], why: str, trained: Trained, tmp_path: Path
) -> None:
    for name in ("pt2", "onnx"):
        with pytest.raises(ConfigError, match=why):
            dgbench.export(trained(*words), tmp_path / "new", formats=[name])
    assert not list(tmp_path.iterdir())


def test_onnx_is_an_extra(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = dgbench.load(trained())
    assert isinstance(model, LoadedModel)
    with pytest.raises(ConfigError, match=r"pip install 'dgbench\[onnx\]'"):
        refuse_program(model, "onnx")


def test_wrong_inputs_are_one_line_and_write_nothing(trained: Trained, mlp: Path, tmp_path: Path) -> None:
    run, new = trained(), tmp_path / "new"
    unfinished = Path(shutil.copytree(run, tmp_path / "unfinished"))
    (unfinished / "status").write_text("RUNNING\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"run": tmp_path / "nowhere"}, "does not exist"),
        ({"run": full}, "holds no model.json"),
        ({"run": run / "model.json"}, "is a file"),
        ({"run": mlp}, "exported model already"),
        ({"run": unfinished}, "not finished (RUNNING)"),
        ({"output": full}, "no exported model"),
        ({"output": run}, "no exported model"),
        ({"output": full / "thesis.tex"}, "no exported model"),
        ({"formats": ["tflite"]}, "format holds tflite, which is unknown"),
        ({"step": "foo"}, "step=foo is unknown"),
        ({"push": "mine"}, "push=mine"),
    ]
    before = sorted(tmp_path.rglob("*"))
    for given, message in wrong:
        with refused(re.escape(message), DgbenchError):
            dgbench.export(**{"run": run, "output": new, **given})
    assert sorted(tmp_path.rglob("*")) == before


def test_an_earlier_export_is_replaced_and_what_others_put_there_stays(trained: Trained, tmp_path: Path) -> None:
    target = dgbench.export(trained(), tmp_path / "mine", formats=["pt2"])
    (target / "notes.txt").write_text("mine")
    assert dgbench.export(trained("algorithm=mtl"), target) == target
    assert sorted(path.name for path in target.iterdir()) == [
        "README.md",
        "model.json",
        "model.safetensors",
        "notes.txt",
    ]
    assert ModelRecord.load(target).identity["algorithm"] == "mtl"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("featurizer", {"_target_": "os.system", "command": "touch pwned"}, "os.system"),
        ("featurizer", {"_target_": "subprocess.Popen", "args": ["touch", "pwned"]}, "trust=true"),
        ("averaging", {"_target_": "subprocess.Popen", "args": ["touch", "pwned"]}, "trust=true"),
        ("averaging", {"_target_": "dgbench.callbacks.averaging.Averaging", "rule": None}, "averages no weights"),
        ("objective", "subprocess.Popen", "subprocess.Popen"),
        ("featurizer", {"_target_": "dgbench.networks.small.MLPFeaturizer", "wrong": 1}, "cannot be built"),
        ("identity", {}, "no record"),
    ],
)
def test_a_record_that_names_code_is_refused(
    key: str, value: Any, message: str, trained: Trained, mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = trained() if key == "averaging" else mlp  # an export has no average any more
    folder = Path(shutil.copytree(source, tmp_path / "given"))
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**content, key: value}))
    with refused(message, DgbenchError):
        dgbench.load(folder)
    assert not (tmp_path / "pwned").exists()


# ---- the command ----------------------------------------------------------------------------------------------------


def run_command(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["dgbench export", *map(str, words)])
    export_command()


def test_the_command_writes_the_usual_folder(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained()
    monkeypatch.chdir(tmp_path)
    run_command(monkeypatch, f"run={run}", "format=[pt2]")
    folder = Path("exports") / f"{run.parent.name}-fold-0"
    assert capsys.readouterr().out == f"model: {folder} (README.md, model.json, model.pt2, model.safetensors)\n"
    assert {path.name for path in folder.iterdir()} < set(FILES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["output=x"], "run= is missing"),
        (["runs=x"], "run=, output=, step=, format=, push="),
        (["run=nowhere"], "run=nowhere does not exist"),
        (["run="], "run is empty"),
        (["run=x", "output="], "output is empty"),
        (["run=x", "output=[a]"], "output=[a] is no folder"),
        (["run=x", "step=[last]"], "step=[last] is unknown"),
        (["run=x", "format=5"], "format holds 5"),
        (["run=x", "format=[onnx"], "format=[onnx is no list"),
        (["run=x", "trust=maybe"], "trust=maybe is unknown"),
    ],
)
def test_what_is_typed_wrongly_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_command(monkeypatch, *words)
    assert ended.value.code == 1
    line = capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()[-1]
    assert line.startswith("dgbench: ") and message in line


def test_help_names_every_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(monkeypatch, "--help")
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in EXPORT_OPTIONS)


# ---- a hub that stands in -------------------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    """The endpoints that an upload calls: create a repository, check the card, how to send files, send, commit."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        seen: list[tuple[str, str]] = self.server.seen  # type: ignore[attr-defined]
        seen.append((self.path, self.headers.get("Authorization", "")))
        files: dict[str, bytes] = self.server.files  # type: ignore[attr-defined]
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self._answer({"error": "who are you?"}, 401)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            self.server.created = asked  # type: ignore[attr-defined]
            return self._answer({"url": f"{self._own()}/{asked['organization']}/{asked['name']}"})
        if self.path == "/api/validate-yaml":
            return self._answer({"warnings": [], "errors": []})
        if self.path == "/api/models/lab/mine/preupload/main":
            about = json.loads(body)["files"]
            modes = [
                {"path": each["path"], "uploadMode": "lfs" if each["path"].endswith("tensors") else "regular"}
                for each in about
            ]
            return self._answer({"files": [{**each, "shouldIgnore": False} for each in modes]})
        if self.path == "/lab/mine.git/info/lfs/objects/batch":
            objects = [
                {**each, "actions": {"upload": {"href": f"{self._own()}/lfs/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": objects})
        if self.path == "/api/models/lab/mine/commit/main":
            for line in body.splitlines():
                item = json.loads(line)
                if item["key"] == "file":
                    files[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
                elif item["key"] == "lfsFile":
                    files[item["value"]["path"]] = files.pop(item["value"]["oid"])
            return self._answer({"commitUrl": f"{self._own()}/lab/mine/commit/{'0' * 40}", "commitOid": "0" * 40})
        return self._answer({"error": f"no {self.path}"}, 404)

    def do_PUT(self) -> None:
        files: dict[str, bytes] = self.server.files  # type: ignore[attr-defined]
        files[self.path.rpartition("/")[2]] = b"".join(self._chunks())
        self._answer({})

    def _chunks(self) -> Iterator[bytes]:
        if self.headers["Content-Length"]:
            yield self.rfile.read(int(self.headers["Content-Length"]))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _own(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hub on the loopback device: ``.files`` by name, ``.created``, and ``.seen`` requests."""
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.seen, server.created = {}, [], None
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # it speaks to servers of its own
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub 2.4 with httpx2
def test_an_export_is_pushed(trained: Trained, hub: Any, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    dgbench.export(trained(), target)
    (target / "notes.txt").write_text("private")
    dgbench.export(trained(), target, push="lab/mine")
    written = {path.name: path.read_bytes() for path in target.iterdir() if path.name != "notes.txt"}
    assert hub.files == written
    assert set(written) == {"README.md", "model.json", "model.safetensors"}
    assert (hub.created["organization"], hub.created["name"], hub.created["visibility"]) == ("lab", "mine", "private")
    assert b"hf download lab/mine" in hub.files["README.md"]


def test_a_hub_that_refuses_is_one_line(
    trained: Trained, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(RecordError, match=r"push=lab/mine: http://127\.0\.0\.1:\d+") as raised:
        dgbench.export(trained(), tmp_path / "mine", push="lab/mine")
    assert "\n" not in str(raised.value)
    assert "401" in str(raised.value)
    assert hub.files == {}


def test_without_a_network_the_export_is_there(
    trained: Trained, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    with refused("ConnectError", RecordError):
        dgbench.export(trained(), tmp_path / "mine", push="lab/mine")
    assert dgbench.load(tmp_path / "mine")


def test_without_a_token_nothing_is_written(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ConfigError, match="HF_TOKEN"):
        dgbench.export(trained(), tmp_path / "mine", push="lab/mine")
    assert not list(tmp_path.iterdir())
