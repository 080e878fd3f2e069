"""The audit passes what is sound, finds what is not, and measures what it says it measures."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate

from invint import ConfigError, Cyclic, ShapeError, create_model
from invint.audit import Audit, Model, Turn, audit_model, turned
from invint.models import Network
from invint.nn import LiftConv2d
from invint.ops.grids import rotate

SIDE = 24
QUARTERS = (0, 90, 180, 270)


def narrow(group: str, **options: Any) -> Network:
    return create_model(
        "sfcnn-small",
        num_classes=3,
        in_channels=1,
        image_size=SIDE,
        group=group,
        widths=(2, 3, 4),
        n_fc=6,
        **options,
    )


def smooth(count: int, side: int = SIDE) -> Tensor:
    """Random images without detail, fading to zero at the border: interpolation can turn them."""
    coarse = torch.randn(count, 1, 4, 4, dtype=torch.float64)
    window = torch.hann_window(side, dtype=torch.float64)
    return interpolate(coarse, size=(side, side), mode="bicubic") * window * window[:, None]


def see(model: nn.Module, images: Tensor) -> nn.Module:
    """Let normalisation take its statistics from images, so that logits depend on them."""
    for module in model.modules():
        if hasattr(module, "momentum"):
            vars(module)["momentum"] = 1.0
    model.double().train()
    with torch.no_grad():
        model(images)
    return model


class Strided(nn.Module):
    """A steerable convolution with stride 2 that asks nobody: faulty on even sides."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = LiftConv2d(1, 4, 3, Cyclic(4))

    def forward(self, images: Tensor) -> Tensor:
        maps = conv2d(images, self.lift.filters(), stride=2, padding=1)
        responses: Tensor = rearrange(maps.relu(), "b (o g) y x -> b o (g y x)", g=4)
        return responses.amax(dim=2)


class Seen:
    """Remember all images and return their sums."""

    def __init__(self) -> None:
        self.images: list[Tensor] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.images.append(images)
        return images.sum(dim=(2, 3))


def energy(images: Tensor) -> Tensor:
    """Return the sum of squares, which no turn of the plane changes."""
    return images.square().sum(dim=(1, 2, 3))[:, None]


def quadrants(images: Tensor) -> Tensor:
    """Return the sums of the quarters of an image, counter-clockwise from the upper right."""
    half = images.shape[-1] // 2
    top, bottom = images.sum(dim=1).split(half, dim=1)  # type: ignore[no-untyped-call]
    parts = (top[..., half:], top[..., :half], bottom[..., :half], bottom[..., half:])
    return torch.stack([part.sum(dim=(1, 2)) for part in parts], dim=1)


def corners() -> Tensor:
    """Four images, each with one bright pixel, in the upper right, upper left, … quarter."""
    images = torch.zeros(4, 1, 8, 8)
    for number, (row, column) in enumerate([(2, 5), (2, 2), (5, 2), (5, 5)]):
        images[number, 0, row, column] = 1
    return images


def an_audit(*drifts: float, accuracy: float | None = None) -> Audit:
    turns = [
        Turn(angle, False, angle % 90 == 0, drift / 2, drift, 0.25, accuracy)
        for angle, drift in zip((0, 45, 90), drifts, strict=True)
    ]
    return Audit("net", 4, (8, 9), "disc", "float64", tuple(turns))


@pytest.mark.parametrize("border", ["disc", "pad"])
@pytest.mark.parametrize(("group", "flips"), [("C8", False), ("D4", True)])
def test_a_sound_network_passes_to_rounding(group: str, flips: bool, border: str) -> None:
    images = torch.randn(4, 1, SIDE, SIDE, dtype=torch.float64)
    model = see(narrow(group), images)
    audit = audit_model(model, images, angles=QUARTERS, flips=flips, border=border)
    assert len(audit.turns) == (8 if flips else 4)
    assert audit.precision == "float64"
    assert audit.worst_exact_drift < 1e-12
    assert audit.exit_status(exact_drift=1e-12) == 0


def test_a_rotation_group_does_not_promise_mirrors() -> None:
    images = torch.randn(4, 1, SIDE, SIDE, dtype=torch.float64)
    audit = audit_model(see(narrow("C4"), images), images, angles=QUARTERS, flips=True)
    assert all((turn.max_drift > 0.01) == turn.mirrored for turn in audit.turns)
    assert audit.worst.mirrored


@pytest.mark.slow
def test_between_quarter_turns_steerable_networks_drift_less_than_ordinary_ones() -> None:
    images, drifts = smooth(16), {"sfcnn-small": 0.0, "cnn-small": 0.0}
    for _ in range(6):  # one random network says little about the next
        steerable = narrow("C8", pool_after=())
        ordinary = create_model("cnn-small", num_classes=3, in_channels=1, widths=(4, 6, 8), n_fc=6)
        for name, model in zip(drifts, (steerable, ordinary), strict=True):
            audit = audit_model(see(model, images), images, angles=[45])
            drifts[name] += audit.turns[0].mean_drift / 6
    assert 0 < drifts["sfcnn-small"] < drifts["cnn-small"]


@pytest.mark.parametrize("border", ["disc", "pad"])
def test_a_strided_convolution_on_an_even_side_is_found(border: str) -> None:
    images = torch.randn(8, 1, 28, 28, dtype=torch.float64)
    audit = audit_model(Strided().double(), images, angles=QUARTERS, border=border)
    assert audit.worst_exact_drift > 0.05
    assert not audit.passes()
    assert audit.exit_status() == 1


def test_the_same_convolution_on_an_odd_side_is_sound() -> None:
    images = torch.randn(8, 1, 27, 27, dtype=torch.float64)
    audit = audit_model(Strided().double(), images, angles=QUARTERS)
    assert audit.worst_exact_drift < 1e-12
    assert audit.exit_status(exact_drift=1e-12) == 0


@pytest.mark.parametrize("border", ["disc", "pad"])
def test_the_border_is_not_taken_for_a_fault(border: str) -> None:
    images = 1 + 0.1 * smooth(4)  # bright corners, cut off by a turn
    audit = audit_model(energy, images, angles=[45], border=border)
    still, turned = energy(images), energy(rotate(images, math.pi / 4, mode="bicubic"))
    effect = ((turned - still).norm() / still.norm()).item()
    assert effect > 0.1
    assert audit.worst_drift < effect / 10


def test_the_disc_hides_the_corners_of_every_image() -> None:
    images = torch.zeros(1, 1, 9, 9)
    images[..., 0, 0] = 1.0
    seen = Seen()
    audit_model(seen, images, angles=[0, 90, 180])
    assert len(seen.images) == 4
    assert all(torch.equal(x, torch.zeros_like(images)) for x in seen.images)


def test_padding_cuts_nothing_and_keeps_the_centre() -> None:
    images = torch.rand(1, 1, 8, 11, dtype=torch.float64)
    seen = Seen()
    audit = audit_model(seen, images, angles=[0, 30, 45, 90], border="pad")
    shapes = [tuple(x.shape[2:]) for x in seen.images]
    assert audit.size == (8, 11)
    assert shapes == [(16, 17), (16, 17), (16, 17), (16, 17), (17, 16)]
    assert audit.worst_exact_drift < 1e-15


def test_multiples_of_90_permute_pixels_and_nothing_else_does() -> None:
    images = torch.rand(2, 1, 7, 7, dtype=torch.float64)
    audit = audit_model(lambda x: x.flatten(1).sort().values, images, flips=True)
    assert [turn.angle for turn in audit.turns] == 2 * [*range(0, 360, 15)]
    assert all(turn.exact == (turn.angle % 90 == 0) for turn in audit.turns)
    assert all((turn.max_drift == 0) == turn.exact for turn in audit.turns)


def test_turns_are_counter_clockwise_after_the_mirror() -> None:
    image = torch.randn(1, 1, 5, 5)
    seen = Seen()
    audit_model(seen, image, angles=[90], flips=True, border="pad")
    still, turned, mirrored = seen.images
    assert torch.equal(turned, still.rot90(dims=(2, 3)))
    assert torch.equal(mirrored, still.flip(2).rot90(dims=(2, 3)))


def test_accuracy_by_angle_as_computed_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 2])  # the last label is wrong: the model will say 3
    audit = audit_model(quadrants, corners(), labels, angles=QUARTERS)
    # a turn by 90° takes quarter q to q + 1: the answers become 1 2 3 0, then 2 3 0 1, then 3 0 1 2
    assert [turn.accuracy for turn in audit.turns] == [0.75, 0, 0, 0.25]
    assert [turn.changed for turn in audit.turns] == [0, 1, 1, 1]
    assert audit.worst_accuracy == 0
    assert [turn.max_drift for turn in audit.turns] == pytest.approx([0] + 3 * [math.sqrt(2)])
    assert audit.passes(exact_drift=None, min_accuracy=0)
    assert not audit.passes(exact_drift=None, min_accuracy=0.1)


def test_confidence_is_the_mean_probability_of_the_answer() -> None:
    images = torch.rand(5, 1, 8, 8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    audit = audit_model(model, images, angles=range(0, 360, 90))
    sure = []
    for quarters, turn in enumerate(audit.turns):
        logits = model(turned(images, 90.0 * quarters, False, "disc"))
        sure.append(logits.softmax(dim=1).max(dim=1).values.mean().item())
        assert turn.confidence == pytest.approx(sure[-1])
    assert audit.least_sure is audit.turns[sure.index(min(sure))]
    assert an_audit(0, 0.5, 1).least_sure is None


def test_drift_is_the_mean_and_the_largest_over_images() -> None:
    images = corners()
    images[:2] = 0.0  # no signal: nothing changes
    audit = audit_model(lambda x: quadrants(x) + 1, images, angles=[90], batch_size=3)
    drift = math.sqrt(2) / math.sqrt(7)  # logits 1 1 2 1 become 1 1 1 2
    assert audit.worst_drift == pytest.approx(drift)
    assert audit.turns[0].mean_drift == pytest.approx(drift / 2)
    assert audit.turns[0].changed == 0.5


def test_half_precision_is_measured_and_named() -> None:
    images = torch.randn(4, 1, SIDE, SIDE)
    model = see(narrow("C8"), images.double())
    drifts = {}
    for precision in (torch.float64, torch.float32, torch.bfloat16):
        audit = audit_model(model, images, angles=[90], precision=precision)
        drifts[audit.precision] = audit.worst_drift
    assert list(drifts) == ["float64", "float32", "bfloat16 autocast"]
    assert drifts["float64"] < 1e-12
    assert drifts["float32"] < 1e-4
    assert math.isfinite(drifts["bfloat16 autocast"])
    assert next(model.parameters()).dtype == torch.float64  # left as it was
    own = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 3)).bfloat16()
    assert audit_model(own, images, angles=[90]).precision == "bfloat16"


def test_bfloat16_is_really_used() -> None:
    images = torch.randn(4, 1, 8, 8)
    dtypes: list[torch.dtype] = []

    class Spy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x.flatten(1))
            dtypes.append(out.dtype)
            return out

    audit_model(Spy(64, 3).double(), images, angles=[90], precision=torch.bfloat16)
    assert set(dtypes) == {torch.bfloat16}


def test_a_module_is_audited_in_evaluation_mode_and_left_in_its_own() -> None:
    norm = nn.BatchNorm1d(64).eval()
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), norm, nn.Linear(64, 3))
    audit = audit_model(model, torch.rand(8, 1, 8, 8), angles=[0])
    assert audit.worst_drift == 0
    assert [module.training for module in model] == [True, True, False, True]
    assert norm.num_batches_tracked == 0


def test_logits_that_are_not_finite_fail(tmp_path: Path) -> None:
    def breaks(x: Tensor) -> Tensor:
        return x.sum(dim=(2, 3)).expand(-1, 2) / (x[:, :, 2, 5] > 0)

    audit = audit_model(breaks, corners()[:1], torch.tensor([0]), angles=[0, 90])
    assert [turn.max_drift for turn in audit.turns] == [0, math.inf]
    assert audit.turns[1].accuracy == 0
    assert audit.exit_status() == 1
    audit.save(tmp_path / "audit.json")
    assert Audit.load(tmp_path / "audit.json") == audit
    audit.draw(tmp_path / "audit.svg")


def test_angles_are_sorted_and_brought_into_the_circle() -> None:
    audit = audit_model(energy, torch.rand(1, 1, 5, 5), angles=[360, -90, 450, 30, 390, 1e-12])
    assert [turn.angle for turn in audit.turns] == [0, 30, 90, 270]


def test_the_model_is_called_as_it_calls_itself() -> None:
    class Named(Seen):
        name = "my network"

    class Odd(Seen):
        name = 3

    images = torch.rand(2, 1, 8, 8)
    models: list[Model] = [Named(), Odd(), Seen(), energy]
    names = [audit_model(model, images, angles=[0]).name for model in models]
    assert names == ["my network", "Odd", "Seen", "energy"]
    assert audit_model(Named(), images, angles=[0]).table().startswith("my network: 2 images")


def export(path: Path, images: Tensor, **options: Any) -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    torch.onnx.export(model, (images,), path, dynamo=True, verbose=False, **options)
    return model


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_file_is_audited_as_the_model_it_came_from(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    images, path = torch.rand(5, 1, 8, 8), tmp_path / "net.onnx"
    model = export(path, images[:2])  # takes two images at a time
    expected = audit_model(model, images, angles=[0, 45, 90])
    for given in (path, str(path)):
        audit = audit_model(given, images, angles=[0, 45, 90], batch_size=3)
        assert (audit.name, audit.precision) == ("net.onnx", "float32 in onnxruntime")
        for turn, other in zip(audit.turns, expected.turns, strict=True):
            assert turn.max_drift == pytest.approx(other.max_drift, rel=1e-3, abs=1e-5)
    with pytest.raises(ShapeError, match=r"takes 1 x 8 x 8, got 1 x 14 x 14; border='pad'"):
        audit_model(path, images, border="pad")
    with pytest.raises(ConfigError, match=r"computes in float32, got torch.float64; leave"):
        audit_model(path, images, precision=torch.float64)


def test_an_onnx_file_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, path = torch.rand(1, 1, 8, 8), tmp_path / "net.onnx"
    with pytest.raises(ConfigError, match=r"audit_model: there is no file '.*net.onnx'"):
        audit_model(path, images)
    path.write_bytes(b"not a network")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(ConfigError, match=r"net.onnx: needs onnxruntime; .*invint\[onnx\]"):
            audit_model(path, images)
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match=r"net.onnx is not an ONNX file"):
        audit_model(path, images)


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_the_table_lines_up_and_says_how_it_was_measured(accuracy: float | None) -> None:
    audit = an_audit(0, 0.5, 1e-9, accuracy=accuracy)
    head, body, _ = audit.table().split("\n\n")
    (about, border), table = head.splitlines(), body.splitlines()
    assert about == "net: 4 images of 8 x 9 pixels, float64"
    assert border.startswith("border disc: every image, the upright one too, masked")
    assert len({len(line) for line in table}) == 1
    assert re.split(r" {2,}", table[2].strip()) == [
        *("45°", "no", "-", "2.5e-01", "5.0e-01", "25.0%"),
        *(() if accuracy is None else ("50.0%",)),
    ]
    assert "worst drift 0.5 at 45°\nworst drift where pixels are permuted 1e-09" in audit.table()
    assert ("worst accuracy 50.0% at 0°" in audit.table()) == (accuracy is not None)
    rows = [line for line in audit.table(markdown=True).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert len({row.count("|") for row in rows}) == 1


def test_the_table_of_padded_mirrors_says_so() -> None:
    audit = audit_model(energy, torch.rand(1, 1, 5, 5), angles=[45], flips=True, border="pad")
    assert "border pad: every image, the upright one too, padded with zeros" in audit.table()
    mirrored = replace(audit, turns=audit.turns[1:])
    assert "at 45°, mirrored" in mirrored.table()
    assert "permuted" not in mirrored.table()


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_json_round_trip(tmp_path: Path, accuracy: float | None) -> None:
    audit, path = an_audit(0, 0.5, 1e-9, accuracy=accuracy), tmp_path / "audit.json"
    audit.save(path)
    assert json.loads(path.read_text()) == audit.to_dict()
    assert Audit.load(path) == audit


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "turns": [{}]}', '{"format": 1}'])
def test_a_file_that_is_no_audit_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        Audit.load(path)
    path.write_text(text)
    with pytest.raises(ConfigError, match="not an audit"):
        Audit.load(path)
    path.write_text('{"format": 2}')
    with pytest.raises(ConfigError, match="not an audit of format 1; audit again"):
        Audit.load(path)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_polar_plot_is_drawn(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"audit.{suffix}"
    audit = audit_model(quadrants, corners(), torch.arange(4), angles=[0, 45, 90], flips=True)
    audit.draw(path)
    assert path.stat().st_size > 5000
    an_audit(0, 0.5, 1).draw(path)


def test_drawing_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"expected a .png, .* got 'audit.gif'"):
        an_audit(0, 0.5, 1).draw("audit.gif")


def test_thresholds_decide() -> None:
    audit = an_audit(0, 0.5, 1e-9, accuracy=0.5)
    assert (audit.worst_drift, audit.worst_exact_drift, audit.worst_accuracy) == (0.5, 1e-9, 0.5)
    assert audit.passes()
    assert audit.passes(max_drift=0.5, exact_drift=1e-9, min_accuracy=0.5)
    assert audit.exit_status(max_drift=0.4) == 1
    assert audit.exit_status(exact_drift=1e-10) == 1
    assert audit.exit_status(min_accuracy=0.6) == 1
    assert an_audit(0, 0.5, math.inf).exit_status() == 1


def test_thresholds_without_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="give at least one threshold"):
        an_audit(0, 0.5, 1).passes(exact_drift=None)
    with pytest.raises(ConfigError, match="audited without labels; give audit_model some"):
        an_audit(0, 0.5, 1).passes(min_accuracy=0.5)
    audit = an_audit(0, 0.5, 1)
    with pytest.raises(ConfigError, match="no turn permutes pixels; audit 90, 180 or 270 degrees"):
        replace(audit, turns=audit.turns[:2]).passes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": torch.rand(1, 8, 8)}, r"audit_model: expected 4 axes, got 3 \(axes: b c h w"),
        ({"images": torch.ones(1, 1, 8, 8).int()}, "expected a float tensor, got torch.int32"),
        ({"images": torch.rand(0, 1, 8, 8)}, r"no images to turn \(shape: \(0, 1, 8, 8\)\)"),
        (
            {"images": torch.ones(2, 1, 8, 8)},
            "do not change under a quarter turn and prove nothing",
        ),
        ({"labels": torch.zeros(3)}, r"one label for each of 4 images, got shape \(3,\)"),
        ({"labels": torch.zeros(4)}, "whole numbers as labels, got torch.float32"),
        ({"labels": torch.tensor([0, 1, 2, 4])}, "4 logits allow labels from 0 to 3, got 0 to 4"),
        ({"angles": []}, r"expected finite angles in degrees, got \[\]"),
        ({"angles": [math.nan]}, r"expected finite angles in degrees, got \[nan\]"),
        ({"border": "crop"}, "border must be 'disc' or 'pad', got 'crop'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"precision": torch.int8}, r"one of torch.float32, .*, got torch.int8"),
        ({"model": lambda x: x.sum()}, r"logits \(b, classes\) with b=4, got shape \(\)"),
        ({"model": lambda x: x.numpy()}, "must return a tensor of logits .*, got ndarray"),
        ({"model": lambda x: energy(x) / 0}, "logits of 4 of 4 upright images are not finite"),
    ],
)
def test_every_mistake_is_named(options: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"model": quadrants, "images": corners()}
    with pytest.raises((ConfigError, ShapeError), match=message):
        audit_model(**(defaults | options))
