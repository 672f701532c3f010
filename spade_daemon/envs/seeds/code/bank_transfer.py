from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class BankTransferEnv(ToolUseEnv):
    """Find a customer's accounts, move money between them, and block the card of the emptied account."""

    tools = [
        tool("list_accounts", "Accounts of a customer.", customer="string"),
        tool("transfer", "Move money.", source="string", target="string", amount="integer"),
        tool("block_card", "Block the card of an account.", account="string"),
        tool(
            "set_limit",
            "Daily limit of an account.",
            account="string",
            limit={"type": "integer", "enum": [0, 100, 500]},
        ),
        tool("exchange_rate", "Rate of a currency.", currency="string"),
    ]

    def setup(self, rng):
        self.customer = rng.choice(["Ines", "Jon", "Kai", "Lea"])
        giro, savings = (f"{kind}{rng.randint(1000, 9999)}" for kind in "GS")
        self.giro, self.savings = giro, savings
        self.amount = rng.randint(20, 90)
        self.state = {
            giro: {"kind": "giro", "balance": self.amount, "card": "open", "limit": 500},
            savings: {"kind": "savings", "balance": rng.randint(100, 900), "card": "none", "limit": 0},
        }
        goal = self.state[savings]["balance"] + self.amount
        self.instructions = [
            (f"Move all money of {self.customer} from giro to savings.", lambda s: s[savings]["balance"] == goal),
            ("Block the card of the empty account.", lambda s: s[giro]["card"] == "blocked"),
            ("Set the daily limit of the same account to 0.", lambda s: s[giro]["limit"] == 0),
        ]

    def account(self, account):
        if account not in self.state:
            raise ToolError("no such account")
        return self.state[account]

    def tool_list_accounts(self, customer):
        return self.state if customer == self.customer else {}

    def tool_transfer(self, source, target, amount):
        source, target = self.account(source), self.account(target)
        if not 0 < amount <= source["balance"]:
            raise ToolError("amount must be positive and covered")
        source["balance"] -= amount
        target["balance"] += amount
        return f"moved {amount}"

    def tool_block_card(self, account):
        self.account(account)["card"] = "blocked"
        return "blocked"

    def tool_set_limit(self, account, limit):
        self.account(account)["limit"] = limit
        return f"limit is {limit}"

    def tool_exchange_rate(self, currency):
        return "1.00"

    def solution(self):
        return [
            call("list_accounts", customer=self.customer),
            call("transfer", source=self.giro, target=self.savings, amount=self.amount),
            call("block_card", account=self.giro),
            call("set_limit", account=self.giro, limit=0),
            DONE,
        ]
