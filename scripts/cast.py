"""Record the demo and make its moving picture, ``docs/images/demo.svg``.

::

    python scripts/cast.py [--keep FILE | --from FILE]

runs ``anabranch demo`` on a terminal of 84 columns, notes what it prints and when, plays that back
on a small terminal of its own, and writes the frames as an animated SVG, twice as fast as they
came. Waiting for Spark and for Python workers is shortened; what is printed is not changed.
``--keep`` also writes the recording, ``--from`` draws one again.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 84, 26
FASTER = 2.0  # times as fast as it was
LONGEST = 1.2  # seconds that nothing may happen
LAST = 6.0  # seconds that the end stays
STEP = 0.4  # seconds between frames at least
SPINNER = re.compile("[\u2800-\u28ff]")
INK, PAGE = "#c9d1d9", "#0d1117"
COLOURS = {31: "#ff7b72", 32: "#56d364", 33: "#e3b341", 36: "#76e3ea"}
CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Style(NamedTuple):
    """How a character looks."""

    colour: str = INK
    bold: bool = False
    dim: bool = False


class Screen:
    """As much of a terminal as the demo needs: lines, styles, and going back up."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self.row = self.column = 0
        self.style = Style()

    def write(self, text: str) -> None:
        """Print text with its control codes."""
        place = 0
        while place < len(text):
            if found := CODE.match(text, place):
                self._obey(found[1], found[2])
                place = found.end()
                continue
            self._put(text[place])
            place += 1

    def _put(self, letter: str) -> None:
        if letter == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])
        elif letter == "\r":
            self.column = 0
        elif letter >= " ":
            line = self.lines[self.row]
            line += [(" ", Style())] * (self.column + 1 - len(line))
            line[self.column] = (letter, self.style)
            self.column += 1

    def _obey(self, numbers: str, verb: str) -> None:
        if verb == "A":
            self.row = max(0, self.row - int(numbers or 1))
        elif verb == "K":
            self.lines[self.row] = []
        elif verb == "m":
            for code in (int(part or 0) for part in numbers.split(";")):
                self._restyle(code)

    def _restyle(self, code: int) -> None:
        style = self.style
        if code == 0:
            style = Style()
        elif code == 1:
            style = style._replace(bold=True)
        elif code == 2:
            style = style._replace(dim=True)
        elif code in COLOURS:
            style = style._replace(colour=COLOURS[code])
        self.style = style

    def shown(self) -> tuple[str, ...]:
        """The last lines as marked-up text, without empty ones at the end."""
        lines = [self._marked(line) for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return tuple(lines[-ROWS:])

    @staticmethod
    def _marked(line: list[tuple[str, Style]]) -> str:
        text, place = "", 0
        while place < len(line):
            style, start = line[place][1], place
            while place < len(line) and line[place][1] == style:
                place += 1
            part = escape("".join(letter for letter, _ in line[start:place]))
            marks = f' fill="{style.colour}"' if style.colour != INK else ""
            marks += ' font-weight="bold"' if style.bold else ""
            marks += ' opacity="0.6"' if style.dim else ""
            text += f"<tspan{marks}>{part}</tspan>" if marks else part
        return text.rstrip()


def record(command: list[str]) -> list[tuple[float, str]]:
    """What a command prints on a terminal, and when, in seconds from its start."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    size = struct.pack("HHHH", 40, COLUMNS, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    began, found, rest = time.monotonic(), [], b""
    while True:
        ready, _, _ = select.select([terminal], [], [], 300)
        try:
            fresh = os.read(terminal, 65536) if ready else b""
        except OSError:  # the command has ended
            break
        if not fresh:
            break
        rest += fresh
        try:
            text, rest = rest.decode(), b""
        except UnicodeDecodeError:  # half a letter
            continue
        found.append((round(time.monotonic() - began, 3), text))
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"the demo ended with {os.waitstatus_to_exitcode(status)}:\n{found[-1][1]}")
    return found


def frames(recorded: list[tuple[float, str]]) -> list[tuple[float, tuple[str, ...]]]:
    """Different screens and the seconds that each stays; long waits are shortened."""
    screen = Screen()
    found: list[tuple[float, tuple[str, ...]]] = []
    for number, (at, text) in enumerate(recorded):
        screen.write(text)
        end = recorded[number + 1][0] if number + 1 < len(recorded) else at + LAST
        # What only turns is one frame.
        shown = tuple(SPINNER.sub("*", line) for line in screen.shown())
        stays = (end - at) / FASTER
        if found and (found[-1][1] == shown or found[-1][0] < STEP):
            found[-1] = (found[-1][0] + stays, shown)
        else:
            found.append((stays, shown))
    found = [(min(stays, LONGEST), shown) for stays, shown in found[:-1]] + [(LAST, found[-1][1])]
    return found


def drawn(shots: list[tuple[float, tuple[str, ...]]]) -> str:
    """An SVG that shows one frame after the other, without end."""
    size, high = 9.7, 17
    width, height = 830, ROWS * high + 26
    whole = sum(stays for stays, _ in shots)
    # Every line of text is written once, and used wherever it stands.
    lines = {line: f"t{n}" for n, line in enumerate(dict.fromkeys(x for _, s in shots for x in s))}
    defs = "".join(
        f'<text id="{name}" xml:space="preserve">{line}</text>'
        for line, name in lines.items()
        if line
    )
    keys, groups, at = [], [], 0.0
    for number, (stays, shown) in enumerate(shots):
        keys.append(f"{100 * at / whole:.3f}%{{transform:translateX({-number * width}px)}}")
        at += stays
        used = "".join(
            f'<use href="#{lines[line]}" x="{number * width + 14}" y="{26 + row * high}"/>'
            for row, line in enumerate(shown)
            if line
        )
        groups.append(used)
    keys.append(f"100%{{transform:translateX({-(len(shots) - 1) * width}px)}}")
    style = (
        f"@keyframes play{{{''.join(keys)}}}"
        f".reel{{animation:play {whole:.2f}s step-end infinite}}"
        f"text,use{{font:{size * 1.45:.1f}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        f"fill:{INK}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="A recorded run of anabranch demo"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAGE}"/><defs>{defs}</defs>'
        f'<g class="reel">{"".join(groups)}</g></svg>\n'
    )


def main() -> None:
    """Record, or read a recording, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="also write the recording here")
    parser.add_argument("--from", dest="source", type=Path, help="draw this recording")
    call = parser.parse_args()
    if call.source is not None:
        recorded = [tuple(pair) for pair in json.loads(call.source.read_text())]
    else:
        recorded = record([sys.executable, "-m", "anabranch.cli.main", "demo"])
    if call.keep is not None:
        call.keep.write_text(json.dumps(recorded))
    shots = frames(recorded)
    OUT.write_text(drawn(shots))
    seconds = sum(stays for stays, _ in shots)
    size = OUT.stat().st_size
    print(f"{OUT.relative_to(ROOT)}: {len(shots)} frames, {seconds:.0f} s, {size:,} bytes")


if __name__ == "__main__":
    main()
