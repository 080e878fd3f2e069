from pathlib import Path

import pytest

from invint.errors import ConfigError
from invint.recipes import Recipe, changed, find_recipe
from invint.recipes.recipe import HeadChoice, with_choices

BASE = find_recipe("digits/monomials")


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("train.lr=3e-4", 3e-4),
        ("train.lr=1", 1.0),
        ("train.batch_size=16", 16),
        ("train.class_weights=true", True),
        ("train.class_weights=False", False),
        ("train.lr_decay_epochs=30", (30.0,)),
        ("train.lr_decay_epochs=30,60", (30.0, 60.0)),
        ("data.size=100", 100),
        ("data.size=none", None),
        ("data.augment=[]", ()),
        ("data.augment=", ()),
        ("data.augment=flip,rotate", ("flip", "rotate")),
        ('data.augment=["crop"]', ("crop",)),
        ("data.name=folder:/a=b,c", "folder:/a=b,c"),
        ("data.name=12", "12"),
        ("model.group=D4", "D4"),
        ("model.widths=4,6,8", (4, 6, 8)),
        ("head.max_distance=4", 4),
        ("head.own_angles=true", True),
        ("head.floor=none", None),
        ("selection.method=connectivity", "connectivity"),
        ("selection.steps=[[1, 10], [2.5, 4]]", ((1.0, 10), (2.5, 4))),
    ],
)
def test_a_value_is_read_as_its_choice_wants_it(assignment: str, value: object) -> None:
    part, key = assignment.partition("=")[0].split(".")
    found = getattr(getattr(changed(BASE, [assignment]), part), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "train.speed=3",
            "no value 'train.speed'; train has epochs, batch_size, optimizer, lr, decay, lr_decay, "
            "lr_decay_epochs, warmup, momentum, weight_decay, reg, elastic, norm_penalty, "
            "class_weights, label_smoothing, clip_norm, ema, statistics, keep_statistics, "
            "one_copy, accumulate, scale",
        ),
        (
            "selection.step=3",
            "no value 'selection.step'; did you mean 'steps'? selection has method, initial, "
            "start, steps, pretrain, candidates, patience, ridge, signed, statistics",
        ),
        (
            "speed=3",
            "--set speed=3: no part 'speed'; there are data, model, head, train and selection",
        ),
        ("train.lr", "--set train.lr: expected PART.NAME=VALUE, as in train.lr=3e-4"),
        ("train.lr=fast", "train.lr must be a number, got 'fast'"),
        ("train.lr=none", "train.lr must be a number, got None"),
        (
            "train.batch_size=2.5",
            "train.batch_size must be a whole number, got 2.5",
        ),
        (
            "train.batch_size=true",
            "train.batch_size must be a whole number, got True",
        ),
        (
            "train.class_weights=1",
            "train.class_weights must be true or false, got 1",
        ),
        (
            "selection.steps=[[1, 2, 3]]",
            "selection.steps must be a list like [[10, 5]], got [[1, 2, 3]]",
        ),
        (
            "train.decay=sudden",
            "no decay 'sudden'; there are exponential, step, milestones, cosine and linear",
        ),
        (
            "train.lr_decay_epochs=0",
            "expected one or more epochs above 0 for the decay of the learning rate, got (0.0,)",
        ),
        (
            "train.accumulate=33",
            "train.accumulate must leave two images or more in each part of a batch of 64, "
            "got 33 parts; choose at most 32",
        ),
        ("selection.steps=5", "selection.steps must be a list like [[10, 5]], got 5"),
        ("model.widths=[0]", "model.widths must each be at least 1, got [0]"),
        ("model.widths=4,-1,8", "model.widths must each be at least 1, got [4, -1, 8]"),
        ("model.widths=100001", "model.widths must each be at most 100,000, got 100001"),
        (
            "model.widths=wide",
            "model.widths must be a list like [5], got 'wide'",
        ),
        (
            "data.size=many",
            "data.size must be a whole number, got 'many'",
        ),
        ("data.size=0", "data.size must be at least 1, got 0"),
        ("data.size=" + "7" * 5000, f"data.size must be a whole number, got '{'7' * 199}…"),
        ("data.size=" + "[" * 100_000, f"data.size must be a whole number, got '{'[' * 199}…"),
        ("selection.start=100001", "selection.start must be from 1 to 100,000, got 100001"),
        ("data.test_share=1", "data.test_share must be above 0 and below 1, got 1"),
        ("train.lr=NaN", "train.lr must be from 0 to 1e+30, got nan"),
        (
            "train.optimizer=adan",
            "no optimizer 'adan'; did you mean 'adam'? there are adam, sgd and adamw",
        ),
        (
            "train.lr_decay_epochs=[NaN]",
            "train.lr_decay_epochs must be a list like [10], got [nan]",
        ),
    ],
)
def test_a_wrong_assignment_is_explained(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(BASE, [assignment])
    assert str(caught.value) == message


def test_changes_that_make_sense_only_together_may_come_in_any_order() -> None:
    assignments = ["model.head=max", "selection.method=none", "selection.steps=[]"]
    assert changed(BASE, assignments) == changed(BASE, assignments[::-1])
    parts = {"model": {"head": "max"}, "selection": {"method": "none", "steps": []}}
    assert with_choices(BASE, parts, "mine.toml") == changed(BASE, assignments)
    with pytest.raises(ConfigError, match="selection 'magnitude' needs the head 'monomials'"):
        changed(BASE, ["model.head=max"])


def test_the_later_of_two_assignments_counts() -> None:
    assert changed(BASE, ["train.lr=1", "train.lr=2"]).train.lr == 2


def test_a_changed_number_no_longer_comes_from_the_paper() -> None:
    base = find_recipe("rotmnist/local-ws")
    mine = changed(base, ["train.lr=0.5"])
    assert set(base.source) - set(mine.source) == {"train.lr"}
    assert "train.lr" in base.source


HEAD_OPTIONS = (
    "factors=2 max_distance=2 own_angles=true places=9 seed=9 exponents=2 floor=0.2 "
    "scale_free=true across=true kernel_size=5 layers=3 head_channels=9 scaled=false power=9 "
    "sharpness=9"
)
OTHERS = {
    "data": "name=mnist augment=flip size=9 validation=0.3 test_turns=3 skip_bad=true side=32 "
    "test_share=0.3 split_seed=9 drop_leaks=true min_per_class=9 skip_class=nine",
    "model": "name=sfcnn head=max group=D4 n_fc=9 dropout=0.9 attention_heads=9 "
    "attention_dropout=0.9 widths=9,9,9 norm_features=true depths=2 group_pool=mean kernel_size=9 "
    "kernel_sizes=9,9,9 pool_after=1 pretrained=true",
    "head": HEAD_OPTIONS,
    "train": "epochs=9 batch_size=9 optimizer=sgd lr=0.9 decay=exponential lr_decay=0.9 "
    "lr_decay_epochs=8 warmup=2 momentum=0.8 weight_decay=0.9 reg=0.9 elastic=0.9 norm_penalty=0.9 "
    "class_weights=true label_smoothing=0.1 clip_norm=9 ema=0.9 statistics=9 "
    "keep_statistics=true one_copy=true accumulate=9 scale=0.9",
    "selection": "method=connectivity initial=catalog start=30 steps=[[9,9]] pretrain=9 "
    "candidates=9 patience=9 ridge=9 signed=true statistics=batch",
}


@pytest.mark.parametrize("part", OTHERS)
def test_the_hash_differs_whenever_a_choice_does(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeadChoice, "check_head", lambda *_: None)  # no head has all options
    assignments = OTHERS[part].split()
    fields = type(getattr(BASE, part)).model_fields
    assert [each.partition("=")[0] for each in assignments] == list(fields)
    hashes = set()
    for assignment in assignments:
        base = base_of(part, assignment)
        hashes |= {changed(base, [f"{part}.{assignment}"]).hash} - {base.hash}
    assert len(hashes) == len(fields)


def base_of(part: str, assignment: str) -> Recipe:
    """Return a recipe that can be changed in this one choice alone."""
    if assignment.startswith("pretrain"):
        return find_recipe("digits/monomials-lse")
    if assignment.startswith("ema"):
        return changed(BASE, ["train.statistics=5"])
    if assignment.startswith("one_copy"):
        orbit = ["model.name=orbit-efficientnet-lite0", "model.head=avg"]
        return changed(BASE, [*orbit, "selection.method=none", "selection.steps=[]"])
    if assignment.startswith(("signed", "statistics")):
        return find_recipe("digits/monomials-connectivity")
    if part == "model":
        return changed(BASE, ["selection.method=none", "selection.steps=[]"])
    return BASE


def test_the_hash_does_not_depend_on_how_a_number_is_written() -> None:
    assert changed(BASE, ["train.lr_decay_epochs=9"]).hash == BASE.hash
    assert changed(BASE, ["train.lr_decay_epochs=9.0"]).hash == BASE.hash
    assert len(BASE.hash) == 12


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user is: a folder, a file, and a link to each."""
    place = tmp_path / "home"
    (place / "set" / "sub").mkdir(parents=True)
    (place / "set" / "own.npz").touch()
    (place / "link").symlink_to("set")
    (place / "link.npz").symlink_to("set/own.npz")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("folder:set", "set"),
        ("folder:./set/", "set"),
        ("folder:../home/set", "set"),
        ("folder:set/sub/..", "set"),
        ("folder:link", "set"),
        ("folder:~/set", "set"),
        ("folder:.", ""),
        ("folder:nowhere/", "nowhere"),
        ("folder:~nobody-at-all/set", "~nobody-at-all/set"),
        ("arrays:set/own.npz", "set/own.npz"),
        ("arrays:link/own.npz", "set/own.npz"),
        ("arrays:link.npz", "link.npz"),
    ],
)
def test_one_place_is_one_choice_however_it_is_named(name: str, place: str, home: Path) -> None:
    absolute = f"{name.partition(':')[0]}:{home / place}"
    found, same = (changed(BASE, [f"data.name={each}"]) for each in (name, absolute))
    assert found.data.name == same.data.name == absolute
    assert found.hash == same.hash


def test_a_path_is_not_looked_for_where_one_goes_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = changed(BASE, ["data.name=folder:set"])
    monkeypatch.chdir(home.parent)
    assert found.replace(name="x", data={}).data == found.data


@pytest.mark.parametrize("name", ["mnist", "folder:", "arrays", "mnist:set"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert changed(BASE, [f"data.name={name}"]).data.name == name


def test_the_hash_does_not_depend_on_words() -> None:
    other = BASE.replace(about="other", source={"train.lr": "elsewhere"})
    assert other.hash == BASE.hash


def test_none_is_nothing_where_nothing_is_allowed_and_a_word_where_not() -> None:
    recipe = find_recipe("digits/pooling")
    changes = ["model.name=cnn-small", "model.head=none", "selection.method=none"]
    changed_recipe = changed(recipe, changes)
    assert changed_recipe.model.head is None
    assert changed_recipe.selection.method == "none"
