import pytest

from invint.errors import ConfigError
from invint.nn import HEADS
from invint.recipes import find_recipe
from invint.recipes.recipe import DataChoice
from invint.study.grid import STUDIES, Cell, Study, chosen_recipes, find_study, plan
from invint.study.paper import TABLES

SMALL = Study("two heads", ("digits/cnn", "digits/pooling"), (100, None), 2)


def thousand(choice: DataChoice) -> int:
    assert choice.name in ("digits", "mnist")
    return 1000


def listed(cells: list[Cell]) -> list[tuple[int, int, str]]:
    return [(cell.seed, cell.size, cell.recipe.name) for cell in cells]


def test_a_seed_is_complete_before_the_next_begins() -> None:
    assert listed(plan(SMALL, thousand)) == [
        (seed, size, name)
        for seed in (0, 1)
        for size in (100, 1000)
        for name in ("digits/cnn", "digits/pooling")
    ]


def test_a_part_of_a_study_is_planned_in_the_order_of_the_study() -> None:
    cells = plan(SMALL, thousand, seeds=[4, 2], sizes=[50], only=["pooling", "digits/cnn"])
    assert listed(cells) == [
        (4, 50, "digits/cnn"),
        (4, 50, "digits/pooling"),
        (2, 50, "digits/cnn"),
        (2, 50, "digits/pooling"),
    ]


def test_a_size_that_is_the_whole_set_is_the_run_without_a_size() -> None:
    (cell,) = plan(SMALL, thousand, seeds=[0], sizes=[1000, None], only=["cnn"])
    assert cell.recipe == find_recipe("digits/cnn")
    assert cell.size == 1000
    assert cell.label == "digits/cnn, 1,000 images, seed 0"


def test_what_is_asked_for_twice_is_planned_once() -> None:
    assert len(plan(SMALL, thousand, seeds=[0, 0], sizes=[100, 100], only=["cnn"])) == 1


def test_data_and_scale_are_those_asked_for() -> None:
    cells = plan(SMALL, thousand, seeds=[0], data={"name": "mnist"}, scale=0.25)
    assert {(cell.recipe.data.name, cell.recipe.train.scale) for cell in cells} == {("mnist", 0.25)}


def test_steps_are_those_of_training_on_the_full_set() -> None:
    (whole,) = plan(SMALL, thousand, seeds=[0], sizes=[100], only=["cnn"])
    (half,) = plan(SMALL, thousand, seeds=[0], sizes=[100], only=["cnn"], scale=0.5)
    assert whole.steps == 20 * 1000 // 64
    assert half.steps == 20 * 500 // 64
    pretrained = Cell(find_recipe("digits/monomials-lse"), 0, 1000)
    assert pretrained.steps == 40 * 1000 // 64


def test_sizes_of_the_study_that_other_data_do_not_have_are_left_out() -> None:
    cells = plan(
        find_study("table2"), lambda _: 1500, seeds=[0], only=["pooling"], data={"name": "digits"}
    )
    assert [cell.size for cell in cells] == [500, 1000, 1500]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"sizes": [1001]}, r"--sizes 1001: digits has 1,000 training images; ask for 1 to 1,000"),
        ({"sizes": [0]}, r"--sizes 0: digits has 1,000 training images"),
        ({"seeds": [-1]}, r"--seed: expected seeds of 0 or more, got \[-1\]"),
        ({"seeds": []}, r"--seed: expected seeds of 0 or more, got none"),
        ({"scale": 0.0}, r"--scale 0: expected a fraction of the iterations in \(0, 1\]"),
        (
            {"only": ["poling"]},
            "--only poling: no such recipe; did you mean 'pooling'. the study has cnn, pooling",
        ),
        ({"only": ["sf-ii"]}, "--only sf-ii: no such recipe; the study has cnn, pooling"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(options: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        plan(SMALL, thousand, **options)  # type: ignore[arg-type]


def test_a_settled_study_has_any_head_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "median", HEADS["avg"])
    study = find_study("settled-digits")
    asked = ["median", "local-ws", "settled-pooling"]
    names = ["settled-pooling", "settled-local-ws", "settled-median"]
    assert chosen_recipes(study, asked) == [f"digits/{name}" for name in names]
    assert chosen_recipes(study) == list(study.recipes)
    cells = plan(study, thousand, sizes=[100], only=["median"])
    assert [(cell.recipe.name, cell.seed) for cell in cells] == [
        ("digits/settled-median", seed) for seed in range(10)
    ]
    for other in (SMALL, find_study("digits")):  # the training of these is not ours
        with pytest.raises(ConfigError, match="--only median: no such recipe"):
            chosen_recipes(other, ["median"])


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no study 'tabel2'; did you mean 'table2'. there are"):
        find_study("tabel2")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_recipes_of_one_data_set_and_an_honest_baseline(name: str) -> None:
    recipes = [find_recipe(each) for each in STUDIES[name].recipes]
    assert len({recipe.data.name for recipe in recipes}) == 1
    settled = "settled-" if name.startswith("settled-") else ""
    assert f"{recipes[0].data.name}/{settled}pooling" in STUDIES[name].recipes
    if name not in ("table1", "digits-selection"):  # these compare selections alone
        honest = [recipe for recipe in recipes if recipe.data.test_turns > 1]
        assert [recipe.model.head for recipe in honest] == [None]
        assert "rotate" in honest[0].data.augment


@pytest.mark.parametrize("name", TABLES)
def test_the_studies_cover_the_papers_tables(name: str) -> None:
    study, table = STUDIES[name], TABLES[name]
    assert set(table.recipes) <= set(study.recipes)
    assert study.seeds == table.seeds
    assert tuple(size or table.sizes[-1] for size in study.sizes) == table.sizes
