import random
import re


class SignalCycleEnv:
    """Predict a lamp whose colours repeat in a hidden cycle of three; four right predictions in a row win."""

    max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.cycle = rng.sample(["red", "green", "blue", "white"], 3)
        self.right = 0
        self.turn = 0
        return f"A lamp repeats three colours for ever. Predict 4 in a row. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{red}, \\boxed{green}, \\boxed{blue}, \\boxed{white}"

    def step(self, action):
        colour = self.cycle[self.turn % 3]
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(red|green|blue|white)\}", action)
        if match and match.group(1) == colour:
            self.right += 1
        else:
            self.right = 0
        if self.right == 4:
            return "Four in a row. You win.", 1.0, True, False, {}
        return f"The lamp was {colour}. Right in a row: {self.right}. {self.legal()}", 0.0, False, late, {}

    def solution(self):
        return [f"\\boxed{{{self.cycle[(self.turn + i) % 3]}}}" for i in range(4)]
