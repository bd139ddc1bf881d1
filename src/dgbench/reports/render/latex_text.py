"""Any text as LaTeX that every engine and encoding prints, in ASCII.

Accented letters become commands, as do Greek ones and usual symbols. What LaTeX's own fonts lack is
named, ``[U+4E2D]`` or ``[snowman]``: nothing is lost without a sign.
"""

# ruff: noqa: RUF001 (a table of letters that resemble others)

from __future__ import annotations

import re
import unicodedata

#: what LaTeX reads as a command, and how it is printed
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
    '"': "''",
    "|": r"\textbar{}",
    "`": "'",
}
#: symbols and letters that are no letter with an accent
_COMMANDS = {
    "±": r"$\pm$",
    "∓": r"$\mp$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∼": r"$\sim$",
    "≡": r"$\equiv$",
    "∝": r"$\propto$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "∑": r"$\sum$",
    "∏": r"$\prod$",
    "∫": r"$\int$",
    "∂": r"$\partial$",
    "∇": r"$\nabla$",
    "∈": r"$\in$",
    "∅": r"$\emptyset$",
    "∩": r"$\cap$",
    "∪": r"$\cup$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↔": r"$\leftrightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "⇒": r"$\Rightarrow$",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "★": r"$\star$",
    "☆": r"$\star$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "°": r"$^{\circ}$",
    "µ": r"$\mu$",
    "§": r"\S{}",
    "¶": r"\P{}",
    "©": r"\copyright{}",
    "®": r"\textregistered{}",
    "•": r"\textbullet{}",
    "€": r"\texteuro{}",
    "£": r"\pounds{}",
    "‰": r"\textperthousand{}",
    "–": "--",
    "—": "---",
    "‐": "-",
    "‑": "-",
    "‒": "--",
    "‘": "`",
    "’": "'",
    "‚": ",",
    "“": "``",
    "”": "''",
    "„": ",,",
    "«": r"\guillemotleft{}",
    "»": r"\guillemotright{}",
    "¡": r"\textexclamdown{}",
    "¿": r"\textquestiondown{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "đ": r"\dj{}",
    "Đ": r"\DJ{}",
    "ð": r"\dh{}",
    "Ð": r"\DH{}",
    "þ": r"\th{}",
    "Þ": r"\TH{}",
    "ı": r"\i{}",
    "ŋ": r"\ng{}",
    "Ŋ": r"\NG{}",
}
#: combining accents and their commands
_ACCENTS = {
    "\u0300": r"\`",
    "\u0301": r"\'",
    "\u0302": r"\^",
    "\u0303": r"\~",
    "\u0304": r"\=",
    "\u0306": r"\u",
    "\u0307": r"\.",
    "\u0308": r"\"",
    "\u030a": r"\r",
    "\u030b": r"\H",
    "\u030c": r"\v",
    "\u0323": r"\d",
    "\u0327": r"\c",
    "\u0328": r"\k",
}
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (FINAL SIGMA|[A-Z]+)")
#: capitals that LaTeX has no command for, since they are Latin ones
_LATIN_CAPITALS = {
    "alpha": "A",
    "beta": "B",
    "epsilon": "E",
    "zeta": "Z",
    "eta": "H",
    "iota": "I",
    "kappa": "K",
    "mu": "M",
    "nu": "N",
    "omicron": "O",
    "rho": "P",
    "tau": "T",
    "chi": "X",
}


def latex_text(text: str) -> str:
    """Write text as LaTeX prints it, letter by letter, in ASCII."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(map(_printed, composed))


def _printed(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter.isascii():
        return letter
    return _COMMANDS.get(letter) or _accented(letter) or _greek(letter) or _otherwise(letter)


def _accented(letter: str) -> str:
    r"""Write a letter with its accents, ``\v{c}``; an empty text if it is none."""
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if not marks or not all(mark in _ACCENTS for mark in marks):
        return ""
    if not base.isascii() and base not in _COMMANDS:
        return ""
    text = _printed(base)
    for mark in marks:
        text = f"{_ACCENTS[mark]}{{{text}}}"
    return text


def _greek(letter: str) -> str:
    """Write a Greek letter as a formula; an empty text if it is none."""
    match = _GREEK.fullmatch(unicodedata.name(letter, ""))
    if not match:
        return ""
    name = match[2].lower().replace("lamda", "lambda").replace("final sigma", "varsigma")
    if match[1] == "CAPITAL":
        return _LATIN_CAPITALS.get(name) or rf"$\{name.capitalize()}$"
    return "o" if name == "omicron" else rf"$\{name}$"


def _otherwise(letter: str) -> str:
    """Write a letter by those that it stands for, as in ligatures and fractions, or name it."""
    kind, _, codes = unicodedata.decomposition(letter).rpartition("> ")
    if kind:
        parts = "".join(latex_text(chr(int(code, 16))) for code in codes.split())
        commands = {"<super": r"\textsuperscript", "<sub": r"\textsubscript"}
        if kind in commands:
            return f"{commands[kind]}{{{parts}}}"
        return parts.replace(r"[fraction slash]", "/")
    category = unicodedata.category(letter)
    if category.startswith("Z"):
        return " "
    if category in ("Cf", "Cc", "Mn"):  # joins letters, or changes the one before
        return ""
    if category.startswith("S"):
        return f"[{unicodedata.name(letter, f'U+{ord(letter):04X}').lower()}]"
    return f"[U+{ord(letter):04X}]"
