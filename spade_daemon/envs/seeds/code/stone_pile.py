import random
import re


class StonePileEnv:
    """Take 1 to 3 stones in turn against an opponent; whoever takes the last stone wins."""

    max_turns = 8

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.stones = 4 * rng.randint(3, 5) + rng.randint(1, 3)
        self.moves = [rng.randint(1, 3) for _ in range(self.max_turns)]
        self.turn = 0
        return f"{self.stones} stones. You move first. {self.legal()}", {}

    def legal(self):
        return "Actions: \\boxed{take 1}, \\boxed{take 2} or \\boxed{take 3}"

    def step(self, action):
        self.turn += 1
        late = self.turn >= self.max_turns
        match = re.search(r"boxed\{take ([123])\}", action)
        if not match or int(match.group(1)) > self.stones:
            return f"Not legal. {self.stones} stones. {self.legal()}", 0.0, False, late, {}
        self.stones -= int(match.group(1))
        if self.stones == 0:
            return "You took the last stone and win.", 1.0, True, False, {}
        take = self.reply(self.stones, self.turn)
        self.stones -= take
        if self.stones == 0:
            return f"Opponent takes {take}, the last stone. You lose.", 0.0, True, False, {}
        return f"Opponent takes {take}. {self.stones} stones. {self.legal()}", 0.0, False, late, {}

    def reply(self, stones, turn):
        return stones % 4 or min(stones, self.moves[turn - 1])

    def solution(self):
        stones, actions = self.stones, []
        while stones > 0:
            take = stones % 4
            actions.append(f"\\boxed{{take {take}}}")
            stones -= take
            if stones > 0:
                stones -= self.reply(stones, len(actions))
        return actions
