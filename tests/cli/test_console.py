import pytest
from rich.text import Text

from invint.cli.console import Counting, printable, say, show, show_table, status, write

HOSTILE = "runs[old]/a[/b] :smile: [bold]\\x"


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_a_line_goes_out_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"{HOSTILE} {'long ' * 20}end"
    say(line)
    say(line, error=True, bold=HOSTILE)
    assert capsys.readouterr() == (f"{line}\n", f"{line}\n")


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb\rc\x1b[31md\t\udcffé日")
    assert capsys.readouterr().out == "a\\nb\\rc\\x1b[31md\\t\\xffé日\n"
    assert printable("plain text, ½ → ∞") == "plain text, ½ → ∞"


def test_what_is_bold_is_so_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    say("12.50% error on digits", bold="12.50% error")
    assert capsys.readouterr().out == "\x1b[1m12.50% error\x1b[0m on digits\n"


def test_data_for_programs_is_written_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    write('{"path": "a[b]"}\t\r\n')
    assert capsys.readouterr() == ('{"path": "a[b]"}\t\r\n', "")


@pytest.mark.parametrize("terminal", [False, True])
def test_paragraphs_are_wrapped_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    show(Text("word " * 50 + "end"))
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 40) == terminal
    assert (len(lines) == 1) != terminal


def test_cells_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "n"), [(HOSTILE, "1"), ("b\nc", "22")], right=("n",))
    lines = capsys.readouterr().out.splitlines()
    width = len(HOSTILE)
    names = ("name", HOSTILE, r"b\nc")
    assert [line[:width].rstrip() for line in lines] == list(names)
    assert [line[width:].rstrip() for line in lines] == ["   n", "   1", "  22"]


def test_columns_to_spare_are_left_out_one_by_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("x" * 12, "y" * 12, "z" * 12)]
    for columns, kept in ((40, "abc"), (39, "ac"), (26, "ac"), (25, "a"), (5, "a")):
        monkeypatch.setenv("COLUMNS", str(columns))
        show_table(("a", "b", "c"), rows, spare=("b", "c"))
        out, err = capsys.readouterr()
        assert out.splitlines()[0].split() == list(kept)
        assert ("left out" in err) == (kept != "abc")
        assert "".join(out.split()[len(kept) :]).count("x") == 12  # whole, if need be in two lines


def test_sentences_are_wrapped_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "about"), [("n" * 10, "some words " * 5)], wrap=("about",))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert all(word in ("some", "words", "n" * 10) for line in lines[1:] for word in line.split())


def test_a_bar_needs_somebody_to_look_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for forced in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", forced)
        monkeypatch.setenv("TERM", "xterm")
        with Counting("predicting") as progress:
            progress(1, 3)
            progress(3, 3)
        assert ("predicting" in capsys.readouterr().err) == bool(forced)


def test_a_status_is_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with status("drawing [/a]") as tell:
        tell("measuring [/b]")
    out, err = capsys.readouterr()
    assert out == ""
    assert "[/b]" in err
