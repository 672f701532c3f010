"""Environments for the gate: two good games, and many that must not pass, each with the check that must find it."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.words import Setting

GOOD = r'''
import random
import re


class DigEnv:
    """Dig up two hidden chests, one after the other."""

    max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.chests = [rng.randint(1, 60), rng.randint(1, 60)]
        self.found = 0
        self.turn = 0
        return f"Two chests lie along a line. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{dig N} with N from 1 to 60"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{dig (\d{1,3})\}", action)
        if not match:
            return f"Not legal. {self.legal()}", 0.0, False, late, {}
        place = int(match.group(1))
        if place == self.chests[self.found]:
            self.found += 1
            if self.found == 2:
                return "You found both. You win.", 1.0, True, False, {}
            return f"Found one. {self.legal()}", 0.0, False, late, {}
        way = "east" if place < self.chests[self.found] else "west"
        return f"The chest lies further {way}. {self.legal()}", 0.0, False, late, {}

    def solution(self):
        return [f"\\boxed{{dig {place}}}" for place in self.chests]
'''

PROBE = r'''
import random
import re


class LeakEnv:
    """Find a leaking pipe by its pressure, then seal it: one right action at the end, but it must be found out."""

    max_turns = 8

    def reset(self, seed=None):
        self.leak = random.Random(seed).randint(1, 20)
        self.turn = 0
        return "One of the pipes 1 to 20 leaks. Actions: \\boxed{measure N}, \\boxed{seal N}", {}

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(measure|seal) (\d+)\}", action)
        if not match:
            return "Actions: \\boxed{measure N}, \\boxed{seal N}", 0.0, False, late, {}
        if match.group(1) == "seal":
            right = int(match.group(2)) == self.leak
            return ("Sealed." if right else "Wrong pipe."), float(right), True, False, {}
        low = int(match.group(2)) >= self.leak
        return ("Pressure is low." if low else "Pressure is normal."), 0.0, False, late, {}

    def solution(self):
        return [f"\\boxed{{measure {self.leak}}}", f"\\boxed{{seal {self.leak}}}"]
'''

RENAMED = (
    GOOD.replace("DigEnv", "FishingEnv")
    .replace("chests", "ponds")
    .replace("place", "spot")
    .replace("dig", "fish")
    .replace("found", "caught")
    .replace("further", "much further")
    .replace("60", "75")
    .replace("    def legal", "    # Say what can be done.\n    def legal")
)


@dataclass(frozen=True)
class Bad:
    """One environment that must be rejected by ``check`` with ``detail`` in the reason."""

    name: str
    check: str
    detail: str
    source: str
    setting: Setting = Setting.GAMES


def changed(*pairs: tuple[str, str]) -> str:
    """The good game with each left text, which must be there, replaced by the right one."""
    source = GOOD
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source


NOT_LEGAL = 'return f"Not legal. {self.legal()}", 0.0, False, late, {}'
FIRST = 'return f"Two chests lie along a line. {self.legal()}", {}'
DRAW = "self.chests = [rng.randint(1, 60), rng.randint(1, 60)]"
RNG = "rng = random.Random(seed)"
WIN = 'return "You found both. You win.", 1.0, True, False, {}'
SOLUTION = 'return [f"\\\\boxed{{dig {place}}}" for place in self.chests]'
STEP = "        self.turn += 1\n"

QUIZ = r'''
import random


class QuizEnv:
    """Multiply two numbers."""

    max_turns = 5

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b, self.turn = rng.randint(11, 99), rng.randint(11, 99), 0
        return f"What is {self.a} times {self.b}? Answer \\boxed{{N}}", {}

    def step(self, action):
        self.turn += 1
        if action == f"\\boxed{{{self.a * self.b}}}":
            return "Right.", 1.0, True, False, {}
        RETRY

    def solution(self):
        return [f"\\boxed{{{self.a * self.b}}}"]
'''

SETS = changed(
    ("self.found = 0", "self.found = 0\n        self.names = {'north', 'south', 'east', 'west', 'centre'}"),
    ('"Found one. {', '"Found one near {list(self.names)[0]}. {'),
)

BAD = (
    Bad("empty", "size", "empty", "  \n"),
    Bad("null character", "size", "null", GOOD + "\0"),
    Bad("too large", "size", "bytes, more than 64000", GOOD + "#" * 70_000),
    Bad("surrogate", "size", "UTF-8", GOOD + "# \ud800"),
    Bad("syntax error", "loads", "SyntaxError", GOOD + "\ndef (:"),
    Bad("no class", "loads", "no class", "x = 1"),
    Bad("other class name", "loads", "no class", GOOD.replace("DigEnv", "Dig")),
    Bad("no step", "loads", "lacks reset or step", GOOD.replace("def step", "def stepp")),
    Bad("raises on import", "loads", "ZeroDivisionError", GOOD + "\n1 / 0"),
    Bad("module that is not there", "loads", "numpyy", "import numpyy\n" + GOOD),
    Bad("hangs on import", "loads", "hang", GOOD + "\nwhile True: pass"),
    Bad("one turn only", "loads", "max_turns is 1", changed(("max_turns = 12", "max_turns = 1"))),
    Bad("game as tool use", "loads", "no tools", GOOD, Setting.TOOL_USE),
    Bad("no solution", "runs", "no solution()", GOOD.replace("def solution", "def answer")),
    Bad("solution of numbers", "runs", "list of action strings", changed((SOLUTION, "return self.chests"))),
    Bad(
        "reset without seed",
        "runs",
        "unexpected keyword",
        changed(("def reset(self, seed=None)", "def reset(self)"), (RNG, "rng = random.Random(1)")),
    ),
    Bad("bare string from reset", "runs", "(observation, info)", changed((FIRST, 'return "Dig."'))),
    Bad("empty first observation", "runs", "empty", changed((FIRST, 'return " ", {}'))),
    Bad(
        "reward is not a number",
        "runs",
        "reward must be",
        changed((NOT_LEGAL, NOT_LEGAL.replace("0.0", 'float("nan")'))),
    ),
    Bad("reward of 9.9", "runs", "9.9", changed((NOT_LEGAL, NOT_LEGAL.replace("0.0", "9.9")))),
    Bad("reward of 1000", "runs", "within", changed((NOT_LEGAL, NOT_LEGAL.replace("0.0", "1000.0")))),
    Bad("flag of 0", "runs", "terminated must be", changed((NOT_LEGAL, NOT_LEGAL.replace("False", "0")))),
    Bad("four values", "runs", "tuple of length 4", changed((NOT_LEGAL, NOT_LEGAL.replace("late, ", "")))),
    Bad("observation of bytes", "runs", "must be a str", changed((NOT_LEGAL, NOT_LEGAL.replace('f"', 'b"')))),
    Bad(
        "crash on junk",
        "runs",
        "AttributeError",
        changed(("        if not match:\n            " + NOT_LEGAL + "\n", "")),
    ),
    Bad(
        "huge observation",
        "runs",
        "characters, more than",
        changed((NOT_LEGAL, NOT_LEGAL.replace("Not legal. ", "x" * 17_000))),
    ),
    Bad("giant observation", "runs", "bytes", changed(("Not legal. {", "{'x' * 10**6}{"))),
    Bad("endless loop", "runs", "hang", changed((STEP, STEP + "        while not action: pass\n"))),
    Bad("exits", "runs", "exit", changed((STEP, STEP + "        import os; os._exit(0)\n"))),
    Bad("eats memory", "runs", "MemoryError", changed((STEP, STEP + "        self.big = [0] * 10**9\n"))),
    Bad("reads a file", "runs", "crash", changed((RNG, RNG + '; open("/etc/hostname")'))),
    Bad("ignores the seed", "seeded", "only 1 different", changed((RNG, "rng = random.Random(7)"))),
    Bad("two instances", "seeded", "different games", changed((DRAW, "self.chests = [seed % 2 * 30 + 9, 40]"))),
    Bad(
        "reset keeps state",
        "seeded",
        "second reset",
        changed(
            ("max_turns = 12", "max_turns = 12\n    games = []"),
            ("self.found = 0", "self.found = 0; self.games.append(1)"),
            ("Two chests", "Game {len(self.games)}: two chests"),
        ),
    ),
    Bad(
        "unseeded random",
        "deterministic",
        "replay",
        changed(
            (RNG, "rng = random.Random()"), (FIRST, FIRST.replace("Two chests", "{self.chests[0] % 7} crows watch"))
        ),
    ),
    Bad("hidden unseeded random", "deterministic", "replay", changed((RNG, "rng = random.Random()"))),
    Bad("order of a set", "deterministic", "replay", SETS),
    Bad(
        "hash of a text",
        "deterministic",
        "replay",
        changed((DRAW, DRAW + "\n        self.chests[0] = 1 + hash(str(seed)) % 60")),
    ),
    Bad(
        "weekday",
        "deterministic",
        "replay",
        changed(("Not legal. {", "Not on a {datetime.date.today()}. {"), ("import re", "import re\nimport datetime")),
    ),
    Bad(
        "elapsed time",
        "deterministic",
        "replay",
        changed(
            (STEP, STEP + "        import time; self.spent = time.perf_counter()\n"),
            ('"Found one. {', '"Found one after {self.spent} s. {'),
        ),
    ),
    Bad("address of an object", "deterministic", "replay", changed(("Not legal. {", "Not legal. {object()} {"))),
    Bad(
        "random identifier",
        "deterministic",
        "replay",
        changed(
            ("import re\n", "import re\nimport uuid\nTAG = uuid.uuid4().hex\n"), ("Not legal. {", "Not legal {TAG}. {")
        ),
    ),
    Bad(
        "static observation",
        "interactive",
        "do not depend",
        QUIZ.replace("RETRY", 'return "Wrong, try again.", 0.0, False, self.turn >= 5, {}'),
    ),
    Bad(
        "turn counter only",
        "interactive",
        "do not depend",
        QUIZ.replace("RETRY", 'return f"Turn {self.turn}.", 0.0, False, self.turn >= 5, {}'),
    ),
    Bad(
        "grades once and stops",
        "interactive",
        "first step",
        QUIZ.replace("RETRY", 'return f"Wrong: {action}", 0.0, True, False, {}'),
    ),
    Bad(
        "one step with feedback",
        "solvable",
        "won in 1 step",
        QUIZ.replace("RETRY", 'return f"{action} is wrong", 0.0, False, self.turn >= 5, {}'),
    ),
    Bad(
        "padded solution",
        "solvable",
        "win alone",
        QUIZ.replace("RETRY", 'return f"{action} is wrong", 0.0, False, self.turn >= 5, {}').replace(
            "return [f", 'return ["\\\\boxed{0}", f'
        ),
    ),
    Bad("never wins", "solvable", "return is 0", changed((WIN, WIN.replace("1.0, True", "0.0, True")))),
    Bad("half a success", "solvable", "return is 0.5", changed((WIN, WIN.replace("1.0", "0.5")))),
    Bad("success without an end", "solvable", "return is 0", changed((WIN, WIN.replace("True", "False")))),
    Bad(
        "wrong solution",
        "solvable",
        "return is 0",
        changed(("for place in self.chests]", "for place in sorted(self.chests)]")),
    ),
    Bad("empty solution", "runs", "no actions", changed((SOLUTION, "return []"))),
    Bad(
        "solution too long",
        "solvable",
        "return is 0",
        changed((SOLUTION, SOLUTION.replace("return [", 'return ["\\\\boxed{dig 0}"] * 12 + ['))),
    ),
    Bad(
        "crash on the way to success",
        "solvable",
        "IndexError",
        changed((WIN, "self.chests[9]\n                " + WIN)),
    ),
    Bad(
        "any two actions win",
        "not_trivial",
        "earns 1.00",
        changed((STEP, STEP + "        if self.turn == 2: return 'You win.', 1.0, True, False, {}\n")),
    ),
    Bad(
        "pay for ending at once",
        "not_trivial",
        "paid after 1 step",
        changed((STEP, STEP + "        if not action: return 'Bye.', 0.1, True, False, {}\n")),
    ),
    Bad(
        "pay for taking part",
        "not_trivial",
        "earns 0.30",
        changed((STEP, STEP + "        if self.turn == 8: return 'Over.', 0.3, True, False, {}\n")),
    ),
    Bad(
        "answer in the observation",
        "not_trivial",
        "copy",
        changed(
            (FIRST, FIRST.replace("Two chests", "Next: {self.chests[0]}. Two chests")),
            ('"Found one. {', '"Found one. Next: {self.chests[1]}. {'),
        ),
    ),
    Bad(
        "answer as a printed box",
        "not_trivial",
        "copy",
        changed(
            ('re.search(r"boxed', 're.fullmatch(r"\\\\boxed'),
            (FIRST, FIRST.replace("Two chests", "{self.solution()[0]} Two chests")),
            ('"Found one. {', '"Found one. {self.solution()[1]} {'),
        ),
    ),
    Bad(
        "one action wins",
        "not_trivial",
        "constant",
        changed(
            (DRAW, "self.chests = [rng.randint(1, 60), 1]; self.chests[1] = self.chests[0]"),
            ("place == self.chests[self.found]", "place > 0"),
        ),
    ),
    Bad(
        "one answer behind a decoy",
        "not_trivial",
        "memorised",
        changed((DRAW, "self.chests = [17, 43]"), ("Two chests", "{rng.randint(1, 999)} crows. Two chests")),
    ),
    Bad("coin flips", "not_trivial", "random", changed((DRAW, "self.chests = [rng.randint(1, 3), rng.randint(1, 3)]"))),
    Bad(
        "crash under legal play",
        "not_trivial",
        "ZeroDivisionError",
        changed(
            (
                "way =",
                "self.turn == 12 and 1 // 0\n        way =",
            )
        ),
    ),
)
