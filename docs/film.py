"""The film on the start page: a session in a terminal, recorded as it happens and drawn as one
animated picture.

    python docs/film.py                  runs the commands below in an empty folder, under a
                                         terminal of our own, and draws pictures/film.svg and
                                         film-end.svg
    python docs/film.py session.json     the same, and keeps what was recorded in that file; where
                                         it is there already, draws it again

The output and its times are those of the commands. Three things are not, and the picture says so
where it matters: commands are typed at a steady pace, a wait without output is cut short, and a
long command is shown faster, with the factor beside its time.
"""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
COMMANDS = (
    "tenfold train cartpole",
    "tenfold train cartpole --seeds 8 --out runs/eight",
    "tenfold report runs/eight",
    "tenfold export runs/cartpole --out policy.onnx",
)
WIDTH, HEIGHT = 112, 26  # of the terminal, in letters
TYPING, BEFORE, AFTER = 0.035, 0.6, 2.2  # seconds: a letter, before a command, after its output
LONGEST = 17.0  # seconds that one command takes in the film; a longer one is shown faster
IDLE = 1.2  # seconds of a wait at the most
APART, TYPED = 0.2, 0.07  # seconds between two frames at the least, also while something is typed

Output = list[tuple[float, str]]  # when, in seconds since a command began, and what


# recording


def recorded(command: str, folder: str) -> Output:
    """What a command writes to a terminal."""
    program = Path(sys.executable).parent / "tenfold"
    words = shlex.split(command)
    if not program.exists():  # not installed: the checkout's own
        words = [sys.executable, "-m", *words]
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
        os.execvp(words[0] if words[0] != "tenfold" else str(program), words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    start, found, rest = time.monotonic(), [], b""
    while True:
        select.select([terminal], [], [])
        try:
            rest += os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        whole = rest.decode(errors="ignore")  # a letter may be cut in two
        if whole.encode() != rest and len(rest) - len(whole.encode()) < 4:
            cut = len(whole.encode())
        else:
            whole, cut = rest.decode(errors="replace"), len(rest)
        found.append((round(time.monotonic() - start, 2), whole))
        rest = rest[cut:]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    assert status == 0, f"{command} ended with {status}"
    return found


def record() -> dict[str, Output]:
    with tempfile.TemporaryDirectory(prefix="film-") as folder:
        return {command: recorded(command, folder) for command in COMMANDS}


# a terminal

ESCAPE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
Letter = tuple[str, str]  # itself, and how it looks: classes of the picture
BLANK: Letter = (" ", "")


@dataclass
class Terminal:
    """What is on a screen after what was written to it: as much of a terminal as our own commands
    ask for. Anything else is an error, not a wrong picture."""

    rows: list[list[Letter]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    look: frozenset[str] = frozenset()

    def write(self, text: str) -> None:
        place = 0
        for found in ESCAPE.finditer(text):
            self.letters(text[place : found.start()])
            place = found.end()
            if found[2]:
                self.obey(found[2], found[1])
        self.letters(text[place:])

    def letters(self, text: str) -> None:
        for letter in text:
            if letter == "\r":
                self.column = 0
            elif letter == "\n":
                self.row += 1
            elif letter >= " ":
                if self.column == WIDTH:
                    self.row, self.column = self.row + 1, 0
                line = self.line()
                line += [BLANK] * (self.column + 1 - len(line))
                line[self.column] = (letter, " ".join(sorted(self.look)))
                self.column += 1
        self.line()

    def line(self) -> list[Letter]:
        self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
        return self.rows[self.row]

    def obey(self, what: str, given: str) -> None:
        number = int(given) if given.isdigit() else 0
        if what == "m":
            self.paint([int(word or 0) for word in given.split(";")])
        elif what == "A":
            self.row = max(self.row - max(number, 1), 0)
        elif what == "B":
            self.row += max(number, 1)
        elif what == "C":
            self.column = min(self.column + max(number, 1), WIDTH)
        elif what == "D":
            self.column = max(self.column - max(number, 1), 0)
        elif what == "G":
            self.column = max(number, 1) - 1
        elif what == "K":
            line = self.line()
            line[:] = [] if number == 2 else line[: self.column]
        elif what == "J" and number == 0:
            del self.line()[self.column :]
            del self.rows[self.row + 1 :]
        elif not (what in "hl" and given.startswith("?")):  # a cursor that is hidden and shown
            raise ValueError(f"a terminal's word that is not known here: {given}{what}")

    def paint(self, codes: list[int]) -> None:
        look = set(self.look)
        if codes[:2] == [38, 5]:
            self.look = frozenset({one for one in look if one[0] not in "cx"} | {f"x{codes[2]}"})
            return
        for code in codes:
            if code == 0:
                look = set()
            elif code in (1, 2, 3, 4):
                look.add("bdiu"[code - 1])
            elif code in (22, 23, 24):
                look -= {22: {"b", "d"}, 23: {"i"}, 24: {"u"}}[code]
            elif 30 <= code <= 39 or 90 <= code <= 97:
                look = {one for one in look if one[0] not in "cx"}
                look |= {f"c{code % 10}"} if code != 39 else set()
            elif not 40 <= code <= 49:
                raise ValueError(f"a colour that is not known here: {code}")
        self.look = frozenset(look)

    def screen(self) -> list[tuple[Letter, ...]]:
        """Its last rows, without what stands empty at their ends."""
        found = []
        for line in self.rows[-HEIGHT:]:
            last = max((k for k, letter in enumerate(line) if letter[0] != " "), default=-1)
            found.append(tuple(line[: last + 1]))
        return found


# drawing


@dataclass(frozen=True)
class Frame:
    at: float  # seconds since the film began
    screen: list[tuple[Letter, ...]]
    words: str  # of the bar above: the time of a command, and how fast it is shown


def paced(output: Output) -> tuple[Output, float]:
    """The same with short waits, and how many times faster it is shown."""
    times, gone, before = [], 0.0, 0.0
    for at, _ in output:
        gone += min(at - before, IDLE)
        before = at
        times.append(gone)
    speed = max(gone / LONGEST, 1.0)
    return [(t / speed, text) for t, (_, text) in zip(times, output, strict=True)], speed


def frames(session: dict[str, Output]) -> Iterator[Frame]:
    terminal, now = Terminal(), 0.0
    for command, output in session.items():
        terminal.write("\x1b[0;1;32m$ \x1b[0m")
        yield Frame(now, terminal.screen(), "")
        now += BEFORE
        for letter in command:
            terminal.write(letter)
            yield Frame(now, terminal.screen(), "")
            now += TYPING
        terminal.write("\r\n")
        shown, speed = paced(output)
        for (at, text), (real, _) in zip(shown, output, strict=True):
            terminal.write(text)
            faster = f" · shown {speed:.1f} times as fast" if speed > 1 else ""
            yield Frame(now + at, terminal.screen(), f"{real:.0f} s{faster}")
        terminal.write("\x1b[0m")
        now += (shown[-1][0] if shown else 0) + AFTER
    yield Frame(now, terminal.screen(), "")


def thinned(every: list[Frame]) -> list[Frame]:
    """Without frames that nobody would see, and the last of each."""
    kept: list[Frame] = []
    for frame in every:
        if kept and frame.at - kept[-1].at < (APART if frame.words else TYPED):
            kept[-1] = Frame(kept[-1].at, frame.screen, frame.words)
        elif not kept or (frame.screen, frame.words) != (kept[-1].screen, kept[-1].words):
            kept.append(frame)
    return kept


PITCH, LINE, EDGE, BAR = 7.83, 17, 14, 30  # pixels: a letter, a line, around them, the bar above
WIDE, HIGH = round(WIDTH * PITCH) + 2 * EDGE, HEIGHT * LINE + 2 * EDGE + BAR
HOLD = 4.0  # seconds that the end stays before the film begins anew
# a terminal's eight, as they read well on the film's background
COLOURS = ("#6b7280", "#f87171", "#4ade80", "#fbbf24", "#60a5fa", "#e879f9", "#22d3ee", "#e5e7eb")
STYLE = """
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
text{{fill:#d1d5db;white-space:pre}}
.b{{font-weight:bold}}.d{{opacity:.65}}.i{{font-style:italic}}.u{{text-decoration:underline}}
{colours}
.film{{animation:film {seconds:.1f}s step-end infinite}}
@keyframes film{{{steps}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateY({last}px)}}}}
"""


def colour_of(number: int) -> str:
    """Of the 256 of a terminal, those behind its own sixteen: a cube of 6 x 6 x 6, then greys."""
    if number < 16:
        return COLOURS[number % 8]
    if number > 231:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    parts = ((number - 16) // step % 6 for step in (36, 6, 1))
    return "#" + "".join(f"{55 + 40 * part if part else 0:02x}" for part in parts)


def drawn_line(line: tuple[Letter, ...]) -> str:
    """A row of a screen as text, letters of one look together. Every piece has its place and
    length, so that a reader's own font changes no column."""
    pieces, start = [], 0
    for k in range(1, len(line) + 1):
        if k == len(line) or line[k][1] != line[start][1]:
            text = "".join(letter for letter, _ in line[start:k])
            look = f' class="{line[start][1]}"' if line[start][1] else ""
            if bare := text.rstrip() if k == len(line) else text:
                place = f'x="{EDGE + start * PITCH:.0f}" textLength="{len(bare) * PITCH:.0f}"'
                pieces.append(f"<tspan {place}{look}>{escape(bare, quote=False)}</tspan>")
            start = k
    return "".join(pieces) if any(letter != " " for letter, _ in line) else ""


def drawn_screen(frame: Frame, lines: dict[str, str]) -> str:
    """A frame; a row that was drawn before is shown again by its name in `lines`."""
    words = f'x="{WIDE - EDGE}" y="{BAR - 10}" text-anchor="end" class="d">{frame.words}'
    parts = [f"<text {words}</text>"] if frame.words else []
    for row, line in enumerate(frame.screen):
        if text := drawn_line(line):
            name = lines.setdefault(text, f"l{len(lines)}")
            parts.append(f'<use href="#{name}" y="{(row + 1) * LINE + BAR}"/>')
    return "".join(parts)


def drawn(shown: list[Frame], said: str) -> str:
    """The frames as a strip, one below the other, that is moved behind a window."""
    seconds = shown[-1].at + HOLD
    lines: dict[str, str] = {}
    strip = "".join(
        f'<g transform="translate(0 {k * HIGH})">{drawn_screen(frame, lines)}</g>'
        for k, frame in enumerate(shown)
    )
    steps = "".join(
        f"{100 * frame.at / seconds:.2f}%{{transform:translateY({-k * HIGH}px)}}"
        for k, frame in enumerate(shown)
    )
    fills = {f"c{k}": colour for k, colour in enumerate(COLOURS)}
    fills |= {f"x{k}": colour_of(int(k)) for k in re.findall(r'[" ]x(\d+)', "".join(lines))}
    colours = "".join(f".{name}{{fill:{colour}}}" for name, colour in fills.items())
    last = -(len(shown) - 1) * HIGH
    style = STYLE.format(colours=colours, seconds=seconds, steps=steps, last=last).strip()
    known = "".join(f'<text id="{name}">{text}</text>' for text, name in lines.items())
    dots = "".join(
        f'<circle cx="{EDGE + 6 + 18 * k}" cy="15" r="5" fill="#374151"/>' for k in range(3)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" '
        f'height="{HIGH}" role="img"><title>{escape(said)}</title>'
        f"<style>{style}</style><defs>{known}</defs>"
        f'<rect width="{WIDE}" height="{HIGH}" rx="8" fill="#111827"/>{dots}'
        f'<svg width="{WIDE}" height="{HIGH}"><g class="film">{strip}</g></svg></svg>\n'
    )


def main() -> None:
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    session = json.loads(kept.read_text()) if kept and kept.exists() else record()
    if kept:
        kept.write_text(json.dumps(session))
    shown, said = thinned(list(frames(session))), "A terminal: " + ", then ".join(session) + "."
    (PICTURES / "film.svg").write_text(drawn(shown, said))
    # for whoever asked for less motion, where the picture cannot ask
    end = Frame(0.0, shown[-1].screen, "")
    (PICTURES / "film-end.svg").write_text(drawn([end], said))


if __name__ == "__main__":
    main()
