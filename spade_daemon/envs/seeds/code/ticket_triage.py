from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class TicketTriageEnv(ToolUseEnv):
    """Take a support ticket through its whole life: assign it to the right team, answer it, close it."""

    tools = [
        tool("open_tickets", "Numbers and subjects of all open tickets."),
        tool("find_team", "Team in charge of a topic.", topic="string"),
        tool("assign", "Give a ticket to a team.", ticket="string", team="string"),
        tool("reply", "Answer a ticket that is assigned.", ticket="string", text="string"),
        tool("close", "Close a ticket that was answered.", ticket="string", code="string"),
        tool("merge", "Merge two tickets.", ticket="string", into="string"),
    ]

    def setup(self, rng):
        topics = rng.sample(["printer", "login", "invoice", "network", "backup"], 3)
        self.tickets = {
            f"T{number}": topic for number, topic in zip(rng.sample(range(100, 1000), 3), topics, strict=True)
        }
        self.teams = {topic: f"team-{rng.randint(10, 99)}" for topic in topics}
        self.ticket = rng.choice(list(self.tickets))
        self.topic = self.tickets[self.ticket]
        self.code = f"K{rng.randint(100, 999)}"
        self.state = {"team": {}, "answered": [], "closed": []}
        ticket, team = self.ticket, self.teams[self.topic]
        self.instructions = [
            (f"Assign the {self.topic} ticket to the team in charge.", lambda s: s["team"].get(ticket) == team),
            ("Reply to it; the reply returns a code.", lambda s: ticket in s["answered"]),
            ("Close it with the code.", lambda s: ticket in s["closed"]),
        ]

    def find(self, ticket):
        if ticket not in self.tickets:
            raise ToolError("no such ticket")

    def tool_open_tickets(self):
        return self.tickets

    def tool_find_team(self, topic):
        return self.teams.get(topic, "nobody")

    def tool_assign(self, ticket, team):
        self.find(ticket)
        if team not in self.teams.values():
            raise ToolError("no such team")
        self.state["team"][ticket] = team
        return f"{ticket} is with {team}"

    def tool_reply(self, ticket, text):
        self.find(ticket)
        if self.state["team"].get(ticket) != self.teams[self.tickets[ticket]] or not text:
            raise ToolError("assign it to the team in charge first, and write a text")
        self.state["answered"] = [*self.state["answered"], ticket]
        return f"answered, code {self.code}"

    def tool_close(self, ticket, code):
        if ticket not in self.state["answered"] or code != self.code:
            raise ToolError("not answered yet, or wrong code")
        self.state["closed"] = [*self.state["closed"], ticket]
        return "closed"

    def tool_merge(self, ticket, into):
        raise ToolError("these tickets cannot be merged")

    def solution(self):
        return [
            call("open_tickets"),
            call("find_team", topic=self.topic),
            call("assign", ticket=self.ticket, team=self.teams[self.topic]),
            call("reply", ticket=self.ticket, text="We are on it."),
            call("close", ticket=self.ticket, code=self.code),
            DONE,
        ]
