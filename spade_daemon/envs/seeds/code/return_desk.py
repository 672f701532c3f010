from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class ReturnDeskEnv(ToolUseEnv):
    """Look up returned orders and choose for each the tool that its state demands: refund, replace or reject."""

    tools = [
        tool("get_order", "State of an order.", order="string"),
        tool("refund", "Pay the money back: only within 30 days and unused.", order="string"),
        tool("replace", "Send a new one: only when it arrived broken.", order="string"),
        tool("reject", "Turn the return down: used, or later than 30 days.", order="string", reason="string"),
    ]

    def setup(self, rng):
        kinds = [rng.choice(["refund", "replace", "reject"]) for _ in range(4)]
        self.orders = {}
        for kind in kinds:
            days = rng.randint(31, 90) if kind == "reject" else rng.randint(1, 30)
            condition = "broken on arrival" if kind == "replace" else "unused"
            key = f"O{rng.randint(100, 999)}{len(self.orders)}"
            self.orders[key] = {"days_ago": days, "condition": condition, "kind": kind}
        self.state = {"done": {}}
        self.instructions = [
            (f"Handle the return of order {key}.", lambda s, key=key: s["done"].get(key) == self.orders[key]["kind"])
            for key in self.orders
        ]

    def find(self, order):
        if order not in self.orders:
            raise ToolError("no such order")
        return self.orders[order]

    def settle(self, order, kind):
        self.find(order)
        if order in self.state["done"]:
            raise ToolError("this return is already settled")
        self.state["done"][order] = kind
        return f"settled {order}: {kind}"

    def tool_get_order(self, order):
        row = self.find(order)
        return {"days_ago": row["days_ago"], "condition": row["condition"]}

    def tool_refund(self, order):
        return self.settle(order, "refund")

    def tool_replace(self, order):
        return self.settle(order, "replace")

    def tool_reject(self, order, reason):
        return self.settle(order, "reject")

    def solution(self):
        actions = []
        for order, row in self.orders.items():
            reason = {"reason": "too late"} if row["kind"] == "reject" else {}
            actions += [call("get_order", order=order), call(row["kind"], order=order, **reason)]
        return [*actions, DONE]
