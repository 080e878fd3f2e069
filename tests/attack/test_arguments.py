"""Values and paths on the command line that nobody in their right mind would type."""

import random
from pathlib import Path

import pytest
from support.attack import Judge, hostile_text

from invint.recipes.recipe import recipe_fields

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

ASSIGNMENTS = (
    *("", "=", ".=", "train", "train=", "train.=1", ".lr=1", "train.lr", "train..lr=1"),
    *("train.lr=", "train.lr=fast", "train.lr=NaN", "train.lr=-1", "train.lr=1e999"),
    *("train.lr=[1]", "train.lr={}", "train.lr=true", "train.lr=0x10", "train.lr=1_0"),
    *("train.epochs=0", "train.epochs=1.5", "train.epochs=1" + "0" * 400, "train.epochs=-3"),
    *("train.epochs=" + "1" * 5000, "train.lr=" + "[" * 5000, "train.lr=" + "," * 5000),
    *("train.batch_size=1", "train.optimizer=sgd\n", "train.__class__=1", "train.model_fields=1"),
    *("model.widths=[0]", "model.widths=-1,2,3", "model.widths=[[1]]"),
    *("model.widths=1e9,1e9,1e9",),
    *("model.n_fc=1e3", "model.name=", "model.name=../..", "model.head=\x1b[2J"),
    *("data.size=0", "data.size=-1", "data.size=1e400", "data.test_share=1", "data.test_share=2"),
    *("data.test_turns=361", "data.split_seed=-1", "data.side=three"),
    *("head.exponents=2,1", "head.exponents=1,2,3", "head.factors=0", "head.floor=0"),
    *("selection.steps=[[1]]", "selection.method=lse\x00"),
    *("selection.start=1" + "0" * 30, "source.a=b", "name=x", "\n=1", "[bold]=1", "évêque.lr=1"),
)


@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda text: repr(text)[:40])
def test_assignments(judge: Judge, assignment: str) -> None:
    judge.refused("recipes", "show", "digits/monomials", "--set", assignment)


@pytest.mark.parametrize("seed", range(40))
def test_assignments_of_chance(judge: Judge, seed: int) -> None:
    path = random.Random(seed).choice(recipe_fields()).path
    assignment = f"{path}={hostile_text(seed)}"
    judge.refused_or_taken("recipes", "show", "digits/monomials", "--set", assignment)


BUILT = (
    *("model.widths=0,0,0", "model.widths=2", "model.widths=2,3,4,5,6", "model.group=C1000000000"),
    *("model.widths=[]", "model.group=", "model.group=C0", "model.group=D-4"),
    *("model.name=nothing", "model.head=nothing", "model.name=cnn-small", "data.augment=explode"),
    *("model.group=Z7", "head.max_distance=9999", "head.kernel_size=2", "data.size=999999"),
    *("data.size=3", "data.name=nothing", "data.name=folder:", "data.name=folder:/dev/null"),
    *("data.name=arrays:/etc/passwd", "data.side=32", "data.name=mnist", "model.depths=50"),
    *("model.kernel_sizes=2,2,2"),
)


@pytest.mark.parametrize("assignment", BUILT)
def test_runs_that_cannot_be_built(judge: Judge, assignment: str) -> None:
    judge.refused("train", "digits/local-ws", "--quiet", "--set", assignment)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("train", "--device=toaster"),
    ("train", "--precision=float3"),
    ("train", "--threads=0"),
    ("train", "--threads=99999999"),
    ("train", "--scale=nan"),
    ("train", "--scale=-1"),
    ("train", "--size=0"),
    ("train", "--data=\n"),
    ("train", "--runs=/dev/null/runs"),
    ("train", "--runs=/proc/runs"),
    ("train", "."),
    ("train", ""),
    ("train", "--test-share=2"),
    ("train", "--side=3"),
    ("train", "--skip-class=a"),
    ("recipes", "show", ""),
    ("recipes", "show", "/etc/passwd"),
    ("recipes", "show", "/etc/passwd.toml"),
    ("recipes", "show", "digits/[bold]"),
    ("data", "check", ""),
    ("data", "check", ":"),
    ("data", "check", "folder:"),
    ("data", "check", "folder:/dev/null"),
    ("data", "check", "folder:/etc/passwd"),
    ("data", "check", "folder:/proc/self/fd"),
    ("data", "check", "arrays:/dev/zero"),
    ("data", "check", "arrays:."),
    ("data", "check", "mnist:x"),
    ("data", "check", "mnist", "--data-dir=/dev/null"),
    ("data", "fetch", "folder"),
    ("data", "fetch", "\x1b[2J"),
    ("data", "show", "digits", "--out=/dev/full"),
    ("data", "show", "digits", "--out=sheet.exe"),
    ("data", "show", "digits", "--augment=explode", "--out=sheet.png"),
    ("models", "\n"),
    ("models", "--head=[/]"),
    ("monomials", "/"),
    ("monomials", "none"),
    ("monomials", "/dev/null"),
    ("report", "none"),
    ("report", "/dev/null"),
    ("report", "."),
    ("report", ".", "--out=/dev/full"),
    ("evaluate", "/dev/zero"),
    ("evaluate", "."),
    ("evaluate", "none.onnx"),
    ("predict", ".", "picture.png"),
    ("predict", "none.onnx", "picture.png"),
    ("predict", "none.onnx", "picture.png", "--out=/dev/full"),
    ("predict", "none.onnx", "picture.png", "--out=answers.exe"),
    ("audit", "none.onnx", "--every=0"),
    ("audit", "none.onnx", "--every=nan"),
    ("audit", "none.onnx", "--every=1e-9"),
    ("audit", "none.onnx", "--images=0"),
    ("audit", "none.onnx", "--min-accuracy=7"),
    ("audit", "none.onnx", "--min-accuracy=nan"),
    ("audit", "none.onnx", "--out=/dev/full"),
    ("export", ".", "--format=exe"),
    ("export", "none.onnx"),
    ("export", "none.safetensors"),
    ("serve", "none.onnx"),
    ("serve", "."),
    ("serve", "none.onnx", "--host=\n"),
    ("serve", "none.onnx", "--token=short"),
    ("serve", "none.onnx", "--host=999.999.999.999"),
    ("study", "nothing"),
    ("study", "\x1b[2J"),
    ("study", "digits", "--seeds=0"),
    ("study", "digits", "--seeds=many"),
    ("study", "digits", "--sizes=a,b"),
    ("study", "digits", "--sizes=-1"),
    ("study", "digits", "--only=nothing"),
    ("study", "digits", "--jobs=0"),
    ("study", "digits", "--engine=warp"),
    ("study", "digits", "--format=pdf"),
    ("study", "digits", "--scale=0"),
    ("study", "digits", "--known=none.json"),
    ("study", "digits", "--width=nan", "--compare=cnn,pooling"),
    ("study", "digits", "--see=-1"),
    ("study", "digits", "--compare=cnn"),
    ("study", "digits", "--address=nowhere"),
    ("tune", "nothing"),
    ("tune", "digits/cnn", "--trials=0"),
    ("tune", "digits/cnn", "--hours=nan"),
    ("tune", "digits/cnn", "--min-scale=0"),
    ("tune", "digits/cnn", "--max-scale=nan"),
    ("tune", "digits/cnn", "--compare=nothing"),
    ("tune", "digits/cnn", "--jobs=-1"),
    ("tune", "digits/cnn", "--out=none/tuned.json"),
    ("tune", "digits/cnn", "--out=tuned.exe"),
    ("tune", "digits/cnn", "--engine=warp"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda each: repr(" ".join(each)))
def test_commands(judge: Judge, arguments: tuple[str, ...]) -> None:
    judge.refused(*arguments)


@pytest.mark.parametrize("seed", range(30))
def test_paths_of_chance(judge: Judge, at_home: Path, seed: int) -> None:
    """Names with line breaks, brackets and escape sequences, of what is not there."""
    draw = random.Random(seed)
    name = hostile_text(seed).lstrip("-~") + draw.choice(
        ["", ".onnx", ".safetensors", "/", ".json"]
    )
    command = draw.choice(
        [
            ("evaluate", str(at_home / name)),
            ("predict", str(at_home / name), "picture.png"),
            ("export", str(at_home / name)),
            ("serve", str(at_home / name)),
            ("monomials", str(at_home / name)),
            ("report", str(at_home / name)),
            ("data", "check", f"folder:{at_home / name}"),
            ("data", "check", f"arrays:{at_home / name}"),
            ("recipes", "show", f"{at_home / name}.toml"),
        ]
    )
    judge.refused(*command)


@pytest.mark.parametrize("length", [300, 1000])
@pytest.mark.parametrize("command", ["evaluate", "predict", "export", "serve", "report", "train"])
def test_paths_longer_than_any_system_takes(judge: Judge, command: str, length: int) -> None:
    name = "a" * length + (".toml" if command == "train" else ".onnx")
    judge.refused(command, name, *["picture.png"] * (command == "predict"))
