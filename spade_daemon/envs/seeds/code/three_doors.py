import random
import re


class ThreeDoorsEnv:
    """Peek behind three doors through their keyholes, then open the one with the prize."""

    max_turns = 5

    def reset(self, seed=None):
        self.prize = random.Random(seed).randint(1, 3)
        self.peeks = 0
        self.turn = 0
        return f"One of three doors hides a prize. Peek before you open one. {self.legal()}", {}

    def legal(self):
        verb = "peek" if self.peeks == 0 else "open"
        return "Actions: " + ", ".join(f"\\boxed{{{verb} {door}}}" for door in (1, 2, 3))

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(peek|open) ([123])\}", action)
        if not match or (match.group(1) == "open" and self.peeks == 0):
            return f"Not possible. {self.legal()}", 0.0, False, late, {}
        door = int(match.group(2))
        if match.group(1) == "peek":
            self.peeks += 1
            seen = "the prize" if door == self.prize else "nothing"
            return f"Behind door {door} is {seen}. {self.legal()}, or peek again.", 0.0, False, late, {}
        if door == self.prize:
            return "The prize is yours. You win.", 1.0, True, False, {}
        return "This door is empty. You lose.", 0.0, True, False, {}

    def solution(self):
        return [f"\\boxed{{peek {self.prize}}}", f"\\boxed{{open {self.prize}}}"]
