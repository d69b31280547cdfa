"""A page loads what it uses.

After the build, scripts and styles that a page has no use for come off it, rules that match nothing come
out of the styles, the icon font keeps the icons that are shown, and pictures become compact.
"""

import re
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image
from sphinx.application import Sphinx

from icl_lib.figures import DPI

# A script or a style, by a part of its tag: what an article must contain for its page to have it.
USED_BY = {
    "clipboard": r'class="highlight',
    "copybutton": r'class="highlight',
    "toggle(?:button|Hint|Open)": r'class="(?:[^"]* )?(?:toggle|dropdown|hide)\b',
    "sphinx-design|design-tabs": r'class="(?:[^"]* )?sd-',
    r"proof\.css": r'class="(?:[^"]* )?proof\b',
    "mystnb": r'class="(?:[^"]* )?cell\b',
    r"maths\.css": r"<math\b",
    "thebe|kernelName": r"(?!)",  # nothing: there is no kernel to ask
}
TAG = re.compile(r'[ \t]*(?:<script\b[^>]*>.*?</script>|<link\b[^>]*rel="stylesheet"[^>]*/?>)\n?', re.DOTALL)
# For no reader: the scripts' sources, the theme's own icons, a kernel's script, other languages.
UNUSED = ("*.map", "fontawesome.js*", "fa-*", "sphinx-thebe.*", "booktheme.*")
ICON = re.compile(r'content:"([\uf000-\uf8ff])"')
ICONS = "vendor/fontawesome/webfonts/fa-solid-900.ttf"
WORD = re.compile(r"[A-Za-z_][\w-]*")


def lean_page(html: str) -> str:
    """Return a page without the scripts and styles that it does not use; scripts wait for the page."""
    article = re.search(r"<article\b.*</article>", html, re.DOTALL)
    content = TAG.sub("", article[0]) if article else ""

    def keep(tag: re.Match[str]) -> str:
        for part, use in USED_BY.items():
            if re.search(part, tag[0]) and not re.search(use, content):
                return ""
        # All scripts wait for the page, but for the one that the script in the page's head reads.
        return re.sub(r"<script (?=src=)(?!.*documentation_options)", "<script defer ", tag[0])

    return TAG.sub(keep, html)


def names(selector: str) -> set[str]:
    """Return the classes and ids that a match needs; those in :not(…) and the like are not needed."""
    bare = re.sub(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)", "", selector)
    return {name.replace("\\", "") for name in re.findall(r"[.#]((?:[\w-]|\\.)+)", bare)}


def lean_style(css: str | list[tinycss2.ast.Node], words: set[str]) -> str:
    """Return a style without comments, the theme's icon fonts, and rules for names not among `words`."""
    kept = []
    for rule in tinycss2.parse_rule_list(css, skip_comments=True, skip_whitespace=True):
        if rule.type == "qualified-rule":
            selectors = re.split(r",(?![^(]*\))", tinycss2.serialize(rule.prelude))
            if used := [selector.strip() for selector in selectors if names(selector) <= words]:
                kept.append(f"{','.join(used)}{{{tinycss2.serialize(rule.content).strip()}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            if inner := lean_style(rule.content, words):
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}")
        elif "vendor/fontawesome" not in rule.serialize():
            kept.append(rule.serialize())
    return "\n".join(kept)


def icon_font(font: Path, codes: set[int]) -> str:
    """Return the rule of a font with the icons of these codes and no more, from Font Awesome (OFL 1.1)."""
    options = subset.Options(flavor="woff", name_IDs=[0, 13], hinting=False)
    icons = TTFont(font)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(icons)
    woff = BytesIO()
    icons.flavor = "woff"
    icons.save(woff)
    data = b64encode(woff.getvalue()).decode()
    return (
        '@font-face{font-family:"Font Awesome 6 Free";font-weight:900;'
        f"src:url(data:font/woff;base64,{data})}}"
    )


def compact(picture: Path) -> None:
    """Write a PNG with at most 256 colours, if that makes it smaller."""
    with Image.open(picture) as image:
        on_white = Image.new("RGBA", image.size, "white")
        on_white.alpha_composite(image.convert("RGBA"))
    buffer = BytesIO()
    on_white.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    if buffer.tell() < picture.stat().st_size:
        picture.write_bytes(buffer.getvalue())


def sized(html: str, folder: Path) -> str:
    """Return a page whose pictures state their size, so that no text jumps, and load when they are near.

    A chapter's figures have two pixels for each of the page's, and say so by their dots per inch.
    """

    def with_size(tag: re.Match[str]) -> str:
        with Image.open(folder / tag[1]) as image:
            scale = max(1, round(image.info.get("dpi", (0, 0))[0] / DPI))
            width, height = (side // scale for side in image.size)
        # A size in a style, which a notebook's outputs ask for, would not shrink with the page.
        return re.sub(r' style="[^"]*"', "", tag[0]).replace(
            "<img ", f'<img width="{width}" height="{height}" loading="lazy" decoding="async" '
        )

    return re.sub(r'<img (?![^>]*\b(?:width|height)=)[^>]*src="([^":]+\.png)"[^>]*>', with_size, html)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Go over what was built."""
    if error:
        return
    static = Path(app.outdir) / "_static"
    words: set[str] = set()
    for path in Path(app.outdir).rglob("*.html"):
        page = sized(lean_page(path.read_text(encoding="utf-8")), path.parent)
        path.write_text(page, encoding="utf-8")
        for names_of_tag in re.findall(r'\b(?:class|id)="([^"]*)"', page):
            words.update(names_of_tag.split())
    for path in set(static.rglob("*.js")) - set(static.rglob("fontawesome.js")):
        words.update(WORD.findall(path.read_text(encoding="utf-8")))
    for path in static.rglob("*.css"):
        style = lean_style(path.read_text(encoding="utf-8"), words)
        if codes := set(map(ord, ICON.findall(style))):
            style += icon_font(static / ICONS, codes)
        path.write_text(style, encoding="utf-8")
    for pattern in UNUSED:
        for file in static.rglob(pattern):
            file.unlink()
    for picture in (Path(app.outdir) / "_images").glob("*.png"):
        compact(picture)


def setup(app: Sphinx) -> dict[str, bool]:
    # Last of all: what other extensions write is gone over too.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
