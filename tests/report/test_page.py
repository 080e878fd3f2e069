import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.browser import browser_page
from support.written_runs import tiny_dataset, write_json, write_run, write_study

from invint.audit import Audit
from invint.data.dataset import Dataset
from invint.errors import ConfigError, DataError
from invint.recipes.recipe import DataChoice
from invint.report import write_report
from invint.study.records import RunRecord, read_records, read_run, write_records
from invint.study.tables import make_table

ANCHORS = [
    "summary",
    "errors",
    "learning",
    "angles",
    "confusion",
    "classes",
    "calibration",
    "hardest",
    "saliency",
    "monomials",
    "filters",
    "runs",
    "environment",
]


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn a few images only."""
    monkeypatch.setattr("invint.report.measure.IMAGES", 6)


def load(choice: DataChoice) -> Dataset:
    assert choice == DataChoice(name="digits")
    return tiny_dataset()


def refuse(choice: DataChoice) -> Dataset:
    raise DataError(f"{choice.name}: there are no files; invint data fetch {choice.name}")


class Outline(HTMLParser):
    """Checks that elements are nested, and gathers what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.figures: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.figures += [values["data-name"] or ""] if tag == "figure" else []
        for name in ("src", "href", "srcset", "action", "data"):
            self.sources += [values[name] or ""] if name in values else []

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def outline(path: Path) -> Outline:
    parser = Outline()
    parser.feed(path.read_text())
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunRecord]]:
    folder = tmp_path_factory.mktemp("study")
    runs = write_study(folder / "runs")
    write_report(runs, folder / "report.html", title="Digits & <turns>", load=load)
    return folder, runs


def test_every_section_and_figure_is_there(study: tuple[Path, list[RunRecord]]) -> None:
    page = outline(study[0] / "report.html")
    assert [name for name in page.ids if name in ANCHORS] == ANCHORS
    expected = ["error-digits", "difference-digits", "learning-digits-100", "learning-digits-1000"]
    expected += ["angles-digits", "confidence-digits", "unsure-digits", "classes-digits"]
    expected += ["missed-digits", "hardest-digits", "monomials-digits-monomials"]
    expected += ["selection-digits-monomials"]
    for recipe in ("cnn", "pooling", "monomials", "local-ws"):
        expected += [f"confusion-digits-{recipe}", f"calibration-digits-{recipe}"]
        expected += [f"saliency-digits-{recipe}"]
    expected += [f"filter-digits-{name}" for name in ("pooling", "monomials", "local-ws")]
    assert sorted(page.figures) == sorted(expected)


def test_a_recipe_has_one_name_everywhere(tmp_path: Path) -> None:
    run = replace(read_run(write_run(tmp_path, "local-ws")), recipe="fit/local-ws")
    names = {"fit/local-ws": "network & integration"}
    write_report([run], tmp_path / "a.html", load=load, names=names)
    text = (tmp_path / "a.html").read_text()
    assert re.sub(r"aria-\w+|digits/local-ws|network &amp; integration", "", text).count("-ws") == 0
    assert text.count("network &amp; integration") >= 8


def test_training_images_are_counted_with_those_held_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    subset = json.loads((folder / "subset.json").read_text())
    write_json(folder / "subset.json", subset | {"validation": list(range(25))})
    run = read_run(folder)
    assert (run.size, run.held_out) == (100, 25)
    text = write_report([run], tmp_path / "a.html", load=load).read_text()
    assert "of 125 training images 100 are learned from and 25 held out to choose by" in text
    assert "<dt>training images</dt><dd>125</dd>" in text
    assert "Confusions of pooling, 125 images" in text
    assert "100 images" not in text


def test_the_page_asks_for_nothing(study: tuple[Path, list[RunRecord]]) -> None:
    page = outline(study[0] / "report.html")
    assert all(source.startswith(("#", "data:image/png;base64,")) for source in page.sources)
    text = (study[0] / "report.html").read_text()
    assert re.search(r"https?:|@import|url\((?!#)", text) is None
    assert "Digits &amp; &lt;turns&gt;" in text


def test_numbers_are_those_of_the_records(study: tuple[Path, list[RunRecord]]) -> None:
    text = (study[0] / "report.html").read_text()
    for row in make_table(study[1]).rows:
        for cell in row.cells:
            assert cell.ours is not None
            assert f'data-value="{cell.ours.mean}"><b>{cell.ours.mean:.2f}</b>' in text
            if cell.difference is not None:
                assert f'data-value="{cell.difference.mean}"' in text
                assert f">{cell.difference.verdict}</span>" in text
    for run in study[1]:
        assert f'data-value="{run.error}">{100 * run.error:.2f}</td>' in text
    for run in study[1]:
        if (run.recipe, run.size) == ("digits/cnn", 1000):
            assert sum(map(sum, run.confusion)) == 120


def test_angles_are_measured_once_and_kept(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    calls: list[DataChoice] = []

    def counted(choice: DataChoice) -> Dataset:
        calls.append(choice)
        return load(choice)

    write_report([read_run(folder)], tmp_path / "a.html", load=counted)
    assert len(calls) == 1
    audit = Audit.load(folder / "turns.json")
    assert audit.images == 6
    run = read_run(folder)
    assert audit.name == run.recipe
    assert run.turns == tuple((turn.angle, turn.accuracy) for turn in audit.turns)
    text = (tmp_path / "a.html").read_text()
    assert 'id="figure-angles-digits"' in text
    before = (folder / "turns.json").stat().st_mtime_ns
    write_report([run], tmp_path / "b.html", load=load)
    assert (folder / "turns.json").stat().st_mtime_ns == before
    assert (tmp_path / "b.html").read_text() == text


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, variant)) for variant in ("pooling", "local-ws")]
    text = write_report(runs, tmp_path / "a.html", load=refuse).read_text()
    assert text.count("digits: there are no files; invint data fetch digits") == 4
    assert "Not shown: no trained network with the head monomials among these runs" in text
    other = read_run(write_run(tmp_path / "other", fingerprint="feed"))
    text = write_report([other], tmp_path / "b.html", load=load).read_text()
    assert "is not the one of the runs (fingerprint" in text


def test_records_alone_give_tables_and_most_figures(tmp_path: Path) -> None:
    write_records(write_study(tmp_path / "runs"), tmp_path / "records.json")
    kept = read_records(tmp_path / "records.json")
    write_report(kept, tmp_path / "report.html", load=refuse)
    page = outline(tmp_path / "report.html")
    assert {"error-digits", "angles-digits", "confusion-digits-cnn"} <= set(page.figures)
    assert {"calibration-digits-cnn", "selection-digits-monomials"} <= set(page.figures)
    text = (tmp_path / "report.html").read_text()
    assert "the predictions are not there: records do not hold them" in text
    assert "read from a record, which holds no network" in text


def test_damaged_networks_are_left_out_with_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "model.safetensors").write_bytes(b"half")
    text = write_report([read_run(folder)], tmp_path / "a.html", load=load).read_text()
    assert "model.safetensors: damaged, or not the network of a run" in text
    (folder / "model.safetensors").unlink()
    text = write_report([read_run(folder)], tmp_path / "a.html", load=load).read_text()
    assert "model.safetensors: there is no such file" in text


def test_one_run_without_logs_and_predictions_still_makes_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for name in ("log.jsonl", "predictions.safetensors", "model.safetensors"):
        (folder / name).unlink()
    write_report([read_run(folder)], tmp_path / "a.html", load=load)
    page = outline(tmp_path / "a.html")
    assert page.figures == ["classes-digits"]
    assert (
        "Not shown: one number of training images alone; the table above has"
        in (tmp_path / "a.html").read_text()
    )
    text = (tmp_path / "a.html").read_text()
    assert "Not shown: the logs hold no epochs" in text
    assert text.count("Not shown: the runs hold no predictions") == 2


def test_faultless_runs_can_be_drawn(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=0)) for seed in range(2)]
    write_report(runs, tmp_path / "a.html", load=load)
    text = (tmp_path / "a.html").read_text()
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text)


def test_two_data_sets_have_a_table_each(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, data=data)) for data in ("digits", "rotmnist")]
    write_report(runs, tmp_path / "a.html", load=refuse)
    page = outline(tmp_path / "a.html")
    assert {f"confusion-{d}-{d}-pooling" for d in ("digits", "rotmnist")} <= set(page.figures)


def test_runs_that_cannot_be_reported_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished run to report on; `invint train` makes"):
        write_report([], tmp_path / "a.html")
    runs = [read_run(write_run(tmp_path, seed=s, version=f"0.{s}")) for s in (1, 2)]
    with pytest.raises(ConfigError, match=r"runs of invint 0.1 and 0.2 do not belong"):
        write_report(runs, tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


def test_advice_stands_first_and_is_reached_from_the_top(tmp_path: Path) -> None:
    advice = [("In short", ["Turn <b> & see 5 %."]), ("Where not", ["6 and 9.", "1 and 7."])]
    runs = [read_run(write_run(tmp_path))]
    text = write_report(runs, tmp_path / "a.html", load=load, advice=advice).read_text()
    page = outline(tmp_path / "a.html")
    assert "#advice" in page.sources
    assert page.ids.index("advice") == page.ids.index("summary") + 1
    start = text.index('<section id="advice">')
    own = text[start : text.index("</section>", start)]
    assert start < text.index("Test error in %")
    assert re.findall("<h3>(.*)</h3>", own) == ["In short", "Where not"]
    assert re.findall("<p>(.*)</p>", own) == [
        "Turn &lt;b&gt; &amp; see 5\u00a0%.",
        "6 and 9.",
        "1 and 7.",
    ]
    assert own.count('class="lead"') == 1
    assert own.index('class="lead"') < own.index("In short")


def test_a_page_without_advice_has_no_place_for_it(study: tuple[Path, list[RunRecord]]) -> None:
    page = outline(study[0] / "report.html")
    assert "advice" not in page.ids
    assert "#advice" not in page.sources


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_every_figure_can_be_seen(study: tuple[Path, list[RunRecord]], width: int) -> None:
    names = outline(study[0] / "report.html").figures
    with browser_page(study[0] / "report.html", width=width) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        for name in names:
            drawing = visit.page.locator(f"#figure-{name} svg")
            assert drawing.count() == 1
            box = drawing.bounding_box()
            assert box is not None
            assert box["width"] > 0.7 * min(width, 460)
            assert box["height"] > 30
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width


@pytest.mark.slow
def test_advice_and_a_long_title_fit_a_phone(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path))]
    advice = [("In short", ["Long " + 60 * "word" + " and 95.7 % right. " * 20])]
    title = "A folder with quite a long name: does rotation invariance help?"
    write_report(runs, tmp_path / "a.html", title=title, load=load, advice=advice)
    with browser_page(tmp_path / "a.html", width=390) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        for place in ("#advice p", "#theme"):
            box = visit.page.locator(place).bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390
        link = visit.page.locator("nav a", has_text="Advice")
        link.click()
        assert visit.page.url.endswith("#advice")


@pytest.mark.slow
def test_tables_sort_by_number_and_by_name(study: tuple[Path, list[RunRecord]]) -> None:
    with browser_page(study[0] / "report.html") as visit:
        head = visit.page.locator("#runs th", has_text="error %")
        cells = visit.page.locator("#runs tbody tr td:nth-child(5)")
        expected = sorted(f"{100 * run.error:.2f}" for run in study[1])
        head.click()
        assert cells.all_inner_texts() == sorted(expected, key=float)
        head.press("Enter")
        assert cells.all_inner_texts() == sorted(expected, key=float, reverse=True)
        assert head.get_attribute("aria-sort") == "descending"
        visit.page.locator("#runs th", has_text="recipe").click()
        names = visit.page.locator("#runs tbody th").all_inner_texts()
        assert names == sorted(run.recipe for run in study[1])


@pytest.mark.slow
def test_colours_follow_the_reader_and_the_button(study: tuple[Path, list[RunRecord]]) -> None:
    brightness = (
        "sum => getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"
        ".map(Number).reduce((a, b) => a + b)"
    )
    with browser_page(study[0] / "report.html", scheme="dark") as visit:
        assert visit.page.evaluate(brightness) < 150
        ink = visit.page.locator("#figure-error-digits svg text").first
        assert ink.evaluate("e => getComputedStyle(e).fill") != "rgb(27, 29, 33)"
        visit.page.locator("#theme").click()
        assert visit.page.evaluate(brightness) > 600
        assert ink.evaluate("e => getComputedStyle(e).fill") == "rgb(27, 29, 33)"
    with browser_page(study[0] / "report.html", scheme="light") as visit:
        assert visit.page.evaluate(brightness) > 600


@pytest.mark.slow
def test_figures_can_be_saved(study: tuple[Path, list[RunRecord]]) -> None:
    from PIL import Image

    with browser_page(study[0] / "report.html") as visit:
        for name in ("error-digits", "hardest-digits"):
            figure = visit.page.locator(f"#figure-{name}")
            for kind in ("svg", "png"):
                with visit.page.expect_download() as waiting:
                    figure.locator(f"[data-save={kind}]").click()
                assert waiting.value.suggested_filename == f"{name}.{kind}"
                waiting.value.save_as(study[0] / f"{name}.{kind}")
            text = (study[0] / f"{name}.svg").read_text()
            assert text.startswith("<svg")
            assert "var(--" not in text
            with Image.open(study[0] / f"{name}.png") as picture:
                assert picture.width > 1500
                assert len(picture.convert("RGB").getcolors(2**24) or ()) > 20


@pytest.mark.slow
def test_a_name_in_the_legend_hides_its_curve(study: tuple[Path, list[RunRecord]]) -> None:
    with browser_page(study[0] / "report.html") as visit:
        drawing = visit.page.locator("#figure-error-digits svg")
        curves = drawing.locator("[data-series]")
        shown = drawing.locator("[data-series]:not(.off)")
        count = curves.count()
        assert shown.count() == count
        drawing.locator("[data-key]", has_text="pooling").click()
        hidden = drawing.locator("[data-series].off")
        assert hidden.count() == 2  # the line and its band
        assert {hidden.nth(k).evaluate("e => getComputedStyle(e).display") for k in (0, 1)} == {
            "none"
        }
        drawing.locator("[data-key]", has_text="pooling").click()
        assert shown.count() == count


def test_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    before = torch.get_rng_state()
    write_report([run], tmp_path / "a.html", load=load)
    assert torch.equal(before, torch.get_rng_state())


def test_a_run_that_diverged_is_drawn_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, turned=True)
    log = folder / "log.jsonl"
    log.write_text(log.read_text() + '{"epoch": 21.0, "step": 315, "cross_entropy": NaN}\n')
    labels = tiny_dataset().test.labels
    logits = torch.full((120, 10), torch.nan)
    save_file({"logits": logits, "labels": labels}, folder / "predictions.safetensors")
    run = read_run(folder)
    assert run.calibration[0].count == 120
    write_report([run], tmp_path / "a.html", load=load)
    write_records([run], tmp_path / "records.json")
    assert len(read_records(tmp_path / "records.json")[0].curve) == 21
    assert "nan" not in re.sub(r"base64,[^\"]*", "", (tmp_path / "a.html").read_text()).lower()
