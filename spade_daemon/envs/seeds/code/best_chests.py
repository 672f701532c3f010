import random
import re


class BestChestsEnv:
    """Look into chests to learn their gold, then take the two that hold the most."""

    max_turns = 10

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.gold = rng.sample(range(10, 100), 6)
        self.taken = []
        self.turn = 0
        return f"Chests 1 to 6 hold gold. Take the two richest, nothing else. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{look N} or \\boxed{take N}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{(look|take) ([1-6])\}", action)
        if not match:
            return f"Not legal. Taken: {self.taken}. {self.legal()}", 0.0, False, late, {}
        chest = int(match.group(2))
        if match.group(1) == "look":
            return f"Chest {chest} holds {self.gold[chest - 1]} gold. {self.legal()}", 0.0, False, late, {}
        if chest in self.taken or chest not in self.best():
            return f"Chest {chest} is not one of the two richest. You lose.", 0.0, True, False, {}
        self.taken.append(chest)
        if len(self.taken) == 2:
            return "You took the two richest chests. You win.", 1.0, True, False, {}
        return f"You took chest {chest}. Take one more. {self.legal()}", 0.0, False, late, {}

    def best(self):
        return sorted(range(1, 7), key=lambda chest: -self.gold[chest - 1])[:2]

    def solution(self):
        return [f"\\boxed{{take {chest}}}" for chest in self.best()]
