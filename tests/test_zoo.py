"""Weights by name: from the package, a folder, an address; and never others than the known ones."""

import functools
import hashlib
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.narrow_networks import last

import invint.zoo as module
from invint import ConfigError, create_model, list_models
from invint.data import load_dataset
from invint.data.batches import scaled
from invint.errors import DataError
from invint.export import load_model
from invint.zoo import HERE, find_weights, zoo

DIGITS = "sfcnn-small.digits"
FILE = f"{DIGITS}.safetensors"
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", list(zoo()))
def test_files_are_small_and_the_ones_that_were_measured(name: str) -> None:
    known, content = zoo()[name], (HERE / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == known.sha256
    assert len(content) == known.size <= 300_000
    rows = json.loads((ROOT / "results" / "zoo.json").read_text())["rows"]
    (row,) = (row for row in rows if row["name"] == name)
    assert (row["sha256"], row["error"], row["data"]) == (known.sha256, known.error, known.data)


@pytest.mark.parametrize("name", list(zoo()))
def test_networks_are_as_invariant_as_they_are_said_to_be(name: str) -> None:
    assert zoo()[name].drift <= 1e-9
    model = create_model(name, pretrained=True).double().eval()
    x = torch.randn(2, *model.pretrained_cfg["input_size"], dtype=torch.float64)
    scale = model(x).abs().max()
    for quarters in (1, 2, 3):
        assert (model(torch.rot90(x, quarters, (-2, -1))) - model(x)).abs().max() <= 1e-9 * scale


@pytest.mark.slow
def test_the_digits_are_known_by_name() -> None:
    """The error that the table says, on the images that come with scikit-learn."""
    test = load_dataset("digits").test
    wrong = load_model(find_weights(DIGITS))(scaled(test.images)).argmax(1) != test.labels
    assert wrong.double().mean().item() == pytest.approx(zoo()[DIGITS].error, abs=2 / len(wrong))


def test_weights_are_listed_and_bring_what_they_were_trained_with() -> None:
    assert set(zoo()) < set(list_models(pretrained=True))
    model = create_model(DIGITS, pretrained=True, head="local-ws", image_size=20, in_channels=1)
    assert model.training
    cfg = model.pretrained_cfg
    assert cfg["input_size"] == (1, 20, 20)
    assert len(cfg["mean"]) == 1
    assert 0 < cfg["std"][0] < 1


def test_other_classes_start_afresh_and_other_arguments_are_refused() -> None:
    model = create_model(DIGITS, pretrained=True, num_classes=3).eval()
    assert model(torch.zeros(1, 1, 20, 20)).shape == (1, 3)
    with pytest.raises(ConfigError, match=r"num_classes alone can differ; leave out head, widths$"):
        create_model(DIGITS, pretrained=True, head="max", widths=(2, 3, 4))


def test_a_name_without_pretrained_is_the_network_with_fresh_weights() -> None:
    torch.manual_seed(0)
    fresh = create_model(DIGITS)
    learnt = create_model(DIGITS, pretrained=True)
    assert fresh.state_dict().keys() == learnt.state_dict().keys()
    assert not torch.equal(last(fresh), last(learnt))
    assert fresh.spec == learnt.spec


def test_a_folder_of_your_own_gives_its_network(tmp_path: Path) -> None:
    model = create_model("cnn-small", num_classes=3, in_channels=1)
    model.save_pretrained(tmp_path)
    again = create_model("cnn-small", pretrained=tmp_path)
    assert torch.equal(last(again), last(model))
    with pytest.raises(ConfigError, match="it holds cnn-small, not sfcnn-small"):
        create_model("sfcnn-small", pretrained=str(tmp_path))


def test_files_that_are_not_in_the_package_are_looked_for_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = shutil.copyfile(HERE / FILE, tmp_path / FILE)
    monkeypatch.setattr(module, "HERE", tmp_path / "nothing")
    monkeypatch.delenv("INVINT_ZOO", raising=False)
    message = f"{DIGITS}: {FILE} is not in this installation; give its folder or address as"
    with pytest.raises(ConfigError, match=message):
        find_weights(DIGITS)
    monkeypatch.setenv("INVINT_ZOO", str(tmp_path))
    assert find_weights(DIGITS) == elsewhere
    elsewhere.write_bytes(elsewhere.read_bytes()[:-1] + b"!")
    with pytest.raises(ConfigError, match=r"the SHA-256 is \w{16}…, expected \w{16}…; get the fi"):
        find_weights(DIGITS, tmp_path)


@pytest.mark.parametrize(("name", "source"), [("sfcnn-small.digit", True), ("a.b", "folder")])
def test_unknown_names_get_the_nearest(name: str, source: bool | str) -> None:
    with pytest.raises(ConfigError, match=f"no weights '{name}'; .*there are sfcnn-small.digits"):
        create_model(name, pretrained=source)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the files from a folder, as a release does, and return the address."""
    (tmp_path / "release").mkdir()
    shutil.copy(HERE / FILE, tmp_path / "release")
    monkeypatch.setenv("INVINT_DATA", str(tmp_path / "data"))
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "release")
    )
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_release_is_fetched_once_and_kept(release: str, tmp_path: Path) -> None:
    model = create_model(DIGITS, pretrained=release)
    kept = tmp_path / "data" / "zoo" / FILE
    assert kept.read_bytes() == (HERE / FILE).read_bytes()
    (tmp_path / "release" / FILE).unlink()
    again = create_model(DIGITS, pretrained=release)
    assert torch.equal(last(again), last(model))


def test_another_file_under_the_name_is_refused(release: str, tmp_path: Path) -> None:
    content = (HERE / FILE).read_bytes()
    (tmp_path / "release" / FILE).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        DataError, match=r"expected the checksum .* gave another file, which was re"
    ):
        create_model(DIGITS, pretrained=release)
    assert not (tmp_path / "data" / "zoo" / FILE).exists()


@pytest.mark.slow
def test_torch_hub_finds_the_networks() -> None:
    model = torch.hub.load(  # type: ignore[no-untyped-call]
        str(ROOT), "sfcnn_small_digits", source="local", pretrained=True
    )
    expected = create_model(DIGITS, pretrained=True)
    assert torch.equal(last(model), last(expected))
