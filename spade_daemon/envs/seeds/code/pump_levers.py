import random
import re


class PumpLeversEnv:
    """Find out which of four levers charges a pump and which one fires it, and fill the tank."""

    max_turns = 16

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.charge, self.fire = rng.sample("ABCD", 2)
        self.charged = False
        self.level = 0
        self.turn = 0
        return f"Fill the tank to level 3. The pump is empty. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{pull A}, \\boxed{pull B}, \\boxed{pull C}, \\boxed{pull D}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{pull ([ABCD])\}", action)
        if not match:
            return f"Not legal. Level {self.level}. {self.legal()}", 0.0, False, late, {}
        lever = match.group(1)
        if lever == self.fire and self.charged:
            self.level += 1
        self.charged = lever == self.charge
        if self.level == 3:
            return "The tank is full. You win.", 1.0, True, False, {}
        pump = "charged" if self.charged else "empty"
        return f"Lever {lever}. The pump is {pump}. Level {self.level} of 3. {self.legal()}", 0.0, False, late, {}

    def solution(self):
        return [f"\\boxed{{pull {self.charge}}}", f"\\boxed{{pull {self.fire}}}"] * 3
