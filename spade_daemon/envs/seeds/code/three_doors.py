import random
import re


class ThreeDoorsEnv:
    """Peek behind three coloured doors through their keyholes, then open the one with the prize."""

    max_turns = 4
    colours = ["red", "blue", "green", "black", "white", "brown", "pink", "gray"]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.doors = rng.sample(self.colours, 3)
        self.prize = rng.choice(self.doors)
        self.peeks = 0
        self.turn = 0
        return f"One of three doors hides a prize. Peek before you open one. {self.legal('peek')}", {}

    def legal(self, verb):
        return "Actions: " + ", ".join(f"\\boxed{{{verb} {door}}}" for door in self.doors)

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(peek|open) (\w+)\}", action)
        if not match or match[2] not in self.doors or (match[1] == "open" and self.peeks == 0):
            return f"Not possible. {self.legal('open' if self.peeks else 'peek')}", 0.0, False, late, {}
        if match[1] == "peek":
            self.peeks += 1
            seen = "the prize" if match[2] == self.prize else "nothing"
            said = f"Behind the {match[2]} door is {seen}. {self.legal('open')}, or peek again."
            return said, 0.0, False, late, {}
        if match[2] == self.prize:
            return "The prize is yours. You win.", 1.0, True, False, {}
        return "This door is empty. You lose.", 0.0, True, False, {}

    def solution(self):
        return [f"\\boxed{{peek {self.prize}}}", f"\\boxed{{open {self.prize}}}"]
