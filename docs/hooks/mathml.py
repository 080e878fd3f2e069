"""Turns the formulas of a page into MathML while the site is built.

Browsers draw MathML themselves: the site needs no script for mathematics and no network.
"""

import re
from html import unescape
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

# What pymdownx.arithmatex leaves: \(…\) in a span for a formula in a line, \[…\] in a div.
FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<display>.*?)\\\]\s*</div>',
    re.DOTALL,
)

# A space after the name of a function, but not inside an exponent; norm bars that do not stretch.
FUNCTION = re.compile(r"(?<!<msup>)(?<!<msub>)(<mi>(?:cos|sin|exp|log)</mi>)(?=<m[ifns])")
BAR = "<mo>&#x02016;</mo>"


def on_page_content(html: str, *, page: Page, **_: object) -> str:
    """Replace every formula of a page; the name and arguments are those mkdocs asks for."""
    where = page.file.src_uri
    converted = FORMULA.sub(lambda match: _formula(match, where), html)
    if 'class="arithmatex"' in converted:
        raise PluginError(f"{where}: a formula was not recognised by docs/hooks/mathml.py")
    return converted


def _formula(match: re.Match[str], where: str) -> str:
    if match["inline"] is not None:
        return mathml(unescape(match["inline"]), where, display=False)
    formula = mathml(unescape(match["display"]), where, display=True)
    return f'<div class="formula">{formula}</div>'


def mathml(latex: str, where: str, *, display: bool) -> str:
    """Return a formula as a `<math>` element, or raise `PluginError` if it cannot be one.

    latex2mathml passes on what it does not know, such as a misspelt command, without a word. So
    the result is read again: it must be well-formed, without a backslash and without an alignment
    mark, and the braces of the formula must match.

    Args:
        latex: The formula, without its dollars.
        where: The page, for the message.
        display: Whether the formula stands on a line of its own.
    """
    if latex.count("{") != latex.count("}"):
        raise PluginError(f"{where}: braces do not match in the formula {latex!r}")
    try:
        converted: str = convert(latex.strip(), display="block" if display else "inline")
        text = "".join(ElementTree.fromstring(converted).itertext())
    except Exception as error:
        raise PluginError(f"{where}: no MathML for the formula {latex!r}: {error!r}") from error
    if "\\" in text or "&" in text:
        raise PluginError(f"{where}: latex2mathml does not know a command in {latex!r}")
    spaced = FUNCTION.sub(r'\1<mspace width="0.167em" />', converted)
    return spaced.replace(BAR, BAR.replace("<mo>", '<mo stretchy="false">'))
