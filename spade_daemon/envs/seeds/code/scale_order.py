import random
import re


class ScaleOrderEnv:
    """Compare pairs of boxes on a scale, then pick all boxes from lightest to heaviest."""

    max_turns = 10

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.order = rng.sample("ABCD", 4)  # lightest first
        self.picked = []
        self.turn = 0
        return f"Boxes A, B, C, D. Pick them from lightest to heaviest. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{compare X Y} or \\boxed{pick X}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{compare ([ABCD]) ([ABCD])\}", action)
        if match:
            light, heavy = sorted(match.groups(), key=self.order.index)
            return f"{light} is not heavier than {heavy}. {self.legal()}", 0.0, False, late, {}
        match = re.search(r"boxed\{pick ([ABCD])\}", action)
        if not match or match.group(1) in self.picked:
            return f"Not legal. Picked so far: {self.picked}. {self.legal()}", 0.0, False, late, {}
        self.picked.append(match.group(1))
        if self.picked != self.order[: len(self.picked)]:
            return "Wrong: a lighter box was left. You lose.", 0.0, True, False, {}
        if self.picked == self.order:
            return "All boxes in order. You win.", 1.0, True, False, {}
        return f"Right. Picked so far: {self.picked}. {self.legal()}", 0.0, False, late, {}

    def solution(self):
        return [f"\\boxed{{pick {box}}}" for box in self.order]
