"""Lines of text as a table: in Markdown, in LaTeX, in the terminal. The first line is the head."""


def markdown_table(lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    rows = [[cell.replace("|", "·") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [rows[0], rule, *rows[1:]])


def latex_table(title: str, lines: list[list[str]]) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    rows = [" & ".join(escaped(cell.replace("|", "·")) for cell in line) for line in lines]
    body = [rows[0] + r" \\", r"\midrule", *(row + r" \\" for row in rows[1:])]
    columns = "l" + "r" * (len(lines[0]) - 1)
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    about = rf"\multicolumn{{{len(lines[0])}}}{{l}}{{{escaped(capital(title))}}} \\"
    return "\n".join([*head, about, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def escaped(text: str) -> str:
    """Return text as LaTeX wants it."""
    for plain, written in (
        ("\\", r"\textbackslash "),
        ("&", r"\&"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("#", r"\#"),
        ("±", r"$\pm$"),
        ("−", "$-$"),
        ("·", r"$\cdot$"),
    ):
        text = text.replace(plain, written)
    return text


def rich_table(title: str, lines: list[list[str]]) -> object:
    """Return a table that rich prints."""
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=title, title_justify="left", box=None, header_style="bold")
    for number, name in enumerate(lines[0]):
        table.add_column(Text(name), justify="right" if number else "left")
    for line in lines[1:]:
        table.add_row(*(Text(cell.replace(" | ", "\n").replace("] ", "]\n")) for cell in line))
    return table


def capital(text: str) -> str:
    """Return text that begins with a capital."""
    return text[:1].upper() + text[1:]
