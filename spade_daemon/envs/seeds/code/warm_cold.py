import random
import re

STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


class WarmColdEnv:
    """Walk over a field to a buried treasure; after each step a detector tells the distance in steps."""

    max_turns = 10

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.x = rng.choice([-3, -2, 2, 3])  # steps still to go east, west if negative
        self.y = rng.choice([-3, -2, 2, 3])
        self.turn = 0
        return f"Find the buried treasure. {self.look()}", {}

    def look(self):
        legal = "Actions: \\boxed{north}, \\boxed{south}, \\boxed{east}, \\boxed{west}"
        return f"Distance: {abs(self.x) + abs(self.y)}. {legal}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(north|south|east|west)\}", action)
        if not match:
            return f"Not legal. {self.look()}", 0.0, False, late, {}
        dx, dy = STEPS[match.group(1)]
        self.x -= dx
        self.y -= dy
        if self.x == 0 and self.y == 0:
            return "You stand on the treasure. You win.", 1.0, True, False, {}
        return f"You walk {match.group(1)}. {self.look()}", 0.0, False, late, {}

    def solution(self):
        east = ["\\boxed{east}" if self.x > 0 else "\\boxed{west}"] * abs(self.x)
        north = ["\\boxed{north}" if self.y > 0 else "\\boxed{south}"] * abs(self.y)
        return east + north
