"""Networks as folders and repositories."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from support.narrow_networks import NARROW
from torch import nn

from invint import ConfigError, create_model
from invint.audit import audit_model
from invint.export import ModelCard, load_model
from invint.models import Network

REPOSITORY = "someone/turned-digits"


def network(**options: Any) -> Network:
    arguments = {"in_channels": 1, "image_size": 12, **NARROW["sfcnn-small"]} | options
    return create_model("sfcnn-small", head="mlp", group="C4", **arguments).eval()


def test_a_folder_gives_the_same_network_back(tmp_path: Path) -> None:
    model, x = network(num_classes=3, head_options={"kernel_size": 3}), torch.randn(2, 1, 12, 12)
    assert model.save_pretrained(tmp_path / "saved") == tmp_path / "saved"
    again = Network.from_pretrained(tmp_path / "saved")
    assert torch.equal(again(x), model(x))
    assert not again.training
    assert again.spec["group"] == "C4"
    assert load_model(tmp_path / "saved" / "model.safetensors").card.class_names == ("0", "1", "2")


def test_what_the_card_says_goes_on_to_the_next_folder(tmp_path: Path) -> None:
    card = ModelCard(
        ("cat", "dog"),
        (12, 12),
        1,
        "C4",
        (0.5,),
        (0.25,),
        "sfcnn-small",
        "mlp",
        NARROW["sfcnn-small"],
    )
    network(num_classes=2).save_pretrained(tmp_path / "first", card)
    Network.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    assert load_model(tmp_path / "second" / "model.safetensors").card == card
    tuned = Network.from_pretrained(tmp_path / "first" / "model.safetensors")
    tuned.reset_classifier(3)
    tuned.save_pretrained(tmp_path / "third")
    third = load_model(tmp_path / "third" / "model.safetensors").card
    assert (third.class_names, third.mean) == (("0", "1", "2"), (0.5,))


def test_the_page_says_group_head_data_error_and_audit(tmp_path: Path) -> None:
    model = network()
    audit = audit_model(model, torch.rand(4, 1, 12, 12), angles=(0, 90))
    model.save_pretrained(tmp_path, data="digits | turned", error=0.0123, audit=audit)
    page = (tmp_path / "README.md").read_text()
    for line in (
        "| group | C4 |",
        "| head | mlp |",
        "| test error | 1.23 % |",
        "| trained on | digits \\| turned |",
        audit.table(markdown=True),
    ):
        assert line in page
    assert page.startswith("---\nlibrary_name: invint\n")
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["name"], config["group"]) == ("sfcnn-small", "C4")
    model.save_pretrained(tmp_path)
    assert "Not measured." in (tmp_path / "README.md").read_text()


def test_a_network_put_together_by_hand_needs_a_card(tmp_path: Path) -> None:
    model = Network(nn.Identity(), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="save_pretrained: the network was put together by hand"):
        model.save_pretrained(tmp_path)


def test_folders_without_a_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"there is no model\.safetensors in it; write it with sa"
    ):
        Network.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no such folder or file, and no such repository name"):
        Network.from_pretrained(tmp_path / "nothing")
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=r"model\.safetensors: it is not a safetensors file"):
        Network.from_pretrained(tmp_path)


def test_pushing_makes_the_repository_and_uploads_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uploaded: list[str] = []

    def upload(*, repo_id: str, folder_path: str) -> SimpleNamespace:
        uploaded.extend(sorted(each.name for each in Path(folder_path).iterdir()))
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    api = mock.Mock(upload_folder=upload)
    module = mock.Mock(HfApi=mock.Mock(return_value=api))
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    address = network().push_to_hub(REPOSITORY, private=True, token="secret", data="digits")
    assert address == f"https://hub/{REPOSITORY}/commit/1"
    assert uploaded == ["README.md", "config.json", "model.safetensors"]
    module.HfApi.assert_called_once_with(token="secret")
    api.create_repo.assert_called_once_with(repo_id=REPOSITORY, private=True, exist_ok=True)
    api.create_repo.side_effect = OSError("401: not you\nmany lines")
    with pytest.raises(ConfigError, match=f"^push_to_hub: {REPOSITORY}: 401: not you$"):
        network().push_to_hub(REPOSITORY)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve one repository as the Hub does, to the real library."""
    constants = pytest.importorskip("huggingface_hub.constants")
    folder = network(num_classes=3).save_pretrained(tmp_path / "served")

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            file = folder / Path(self.path).name
            found = self.path.startswith(f"/{REPOSITORY}/resolve/main/") and file.is_file()
            self.send_response(200 if found else 404)
            if found:
                self.send_header("ETag", '"1234"')
                self.send_header("X-Repo-Commit", "0" * 40)
                self.send_header("Content-Length", str(file.stat().st_size))
            else:
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write((folder / Path(self.path).name).read_bytes())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("hub")
def test_the_library_of_the_hub_fetches_a_network(tmp_path: Path) -> None:
    x = torch.randn(2, 1, 12, 12)
    expected = Network.from_pretrained(tmp_path / "served")(x)
    assert torch.equal(Network.from_pretrained(REPOSITORY)(x), expected)
    assert any((tmp_path / "cache").rglob("model.safetensors"))
    with pytest.raises(ConfigError, match=r"^from_pretrained: someone/else: ."):
        Network.from_pretrained("someone/else")


def test_the_library_of_the_hub_takes_our_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")
    api = mock.create_autospec(library.HfApi)
    monkeypatch.setattr(library, "HfApi", api)
    network().push_to_hub(REPOSITORY)
    api.return_value.create_repo.assert_called_once()
    api.return_value.upload_folder.assert_called_once()
