from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class ShopCheckoutEnv(ToolUseEnv):
    """Find a product in a web shop, put it into a cart, and pay the order with the customer's voucher."""

    tools = [
        tool("search", "Find products by word.", word="string"),
        tool("open_cart", "Open a cart; returns its id.", customer="string"),
        tool("add_item", "Put a product into a cart.", cart="string", product="string", quantity="integer"),
        tool("list_vouchers", "Vouchers of a customer.", customer="string"),
        tool("pay", "Pay a cart with a voucher.", cart="string", voucher="string"),
        tool("empty_cart", "Remove everything from a cart.", cart="string"),
    ]

    def setup(self, rng):
        customer, word = rng.choice(["Ada", "Ben", "Cleo"]), rng.choice(["lamp", "desk", "chair"])
        product, other, cart, voucher, expired = (f"{k}{rng.randint(100, 999)}" for k in "PQCVX")
        self.quantity = rng.randint(2, 6)
        self.state = {
            "products": {product: f"{word}, in stock", other: f"{word} cover, sold out"},
            "vouchers": {expired: "expired", voucher: "valid"},
            "cart": cart,
            "items": {},
            "open": False,
            "paid": False,
        }
        self.customer, self.word, self.product, self.voucher = customer, word, product, voucher
        self.instructions = [
            (f"Open a cart for {customer}.", lambda s: s["open"]),
            (
                f"Put {self.quantity} of the {word} that is in stock into it.",
                lambda s: s["items"] == {product: self.quantity},
            ),
            ("Pay the cart with the valid voucher.", lambda s: s["paid"]),
        ]

    def tool_search(self, word):
        return {key: text for key, text in self.state["products"].items() if word and word in text}

    def tool_open_cart(self, customer):
        if customer != self.customer:
            raise ToolError("no such customer")
        self.state["open"] = True
        return f"cart {self.state['cart']}"

    def tool_add_item(self, cart, product, quantity):
        self.check(cart)
        if "in stock" not in self.state["products"].get(product, "") or quantity < 1:
            raise ToolError("this product is not in stock")
        self.state["items"][product] = self.state["items"].get(product, 0) + quantity
        return self.state["items"]

    def tool_list_vouchers(self, customer):
        return self.state["vouchers"] if customer == self.customer else {}

    def tool_pay(self, cart, voucher):
        self.check(cart)
        if self.state["items"] != {self.product: self.quantity} or self.state["vouchers"].get(voucher) != "valid":
            raise ToolError("wrong items or no valid voucher")
        self.state["paid"] = True
        return "paid"

    def tool_empty_cart(self, cart):
        self.check(cart)
        self.state["items"] = {}
        return "cart is empty"

    def check(self, cart):
        if not self.state["open"] or cart != self.state["cart"]:
            raise ToolError("no such cart")

    def solution(self):
        cart = self.state["cart"]
        return [
            call("open_cart", customer=self.customer),
            call("search", word=self.word),
            call("add_item", cart=cart, product=self.product, quantity=self.quantity),
            call("list_vouchers", customer=self.customer),
            call("pay", cart=cart, voucher=self.voucher),
            DONE,
        ]
