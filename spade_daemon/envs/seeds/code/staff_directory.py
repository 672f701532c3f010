from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class StaffDirectoryEnv(ToolUseEnv):
    """Page through a staff directory to find one person, look up the room, and send a parcel there."""

    tools = [
        tool("list_staff", "One page of the directory.", page={"type": "integer", "minimum": 1}),
        tool("get_person", "Record of a person.", person="string"),
        tool("note", "Write the key of the person into the log.", person="string"),
        tool("send_parcel", "Send a parcel to a room.", room="string"),
    ]

    def setup(self, rng):
        keys = [f"E{number}" for number in rng.sample(range(100, 1000), 6)]
        jobs = ["nurse", "cook", "driver", "clerk", "guard", "pilot"]
        rooms = [f"R{number}" for number in rng.sample(range(100, 1000), 6)]
        rng.shuffle(jobs)
        self.staff = {key: {"job": job, "room": room} for key, job, room in zip(keys, jobs, rooms, strict=True)}
        self.key = rng.choice(keys)
        self.state = {"noted": None, "parcel": None}
        person = self.staff[self.key]
        self.instructions = [
            (f"Find the {person['job']} and note the key.", lambda s: s["noted"] == self.key),
            ("Look up the record of this person.", lambda s: self.called("get_person", person=self.key)),
            ("Send a parcel to the room in the record.", lambda s: s["parcel"] == person["room"]),
        ]

    def tool_list_staff(self, page):
        rows = list(self.staff.items())[2 * (page - 1) : 2 * page] if page >= 1 else []
        return {"page": page, "pages": 3, "staff": [{"person": key, "job": row["job"]} for key, row in rows]}

    def tool_get_person(self, person):
        if person not in self.staff:
            raise ToolError("no such person")
        return self.staff[person]

    def tool_note(self, person):
        if person not in self.staff:
            raise ToolError("no such person")
        self.state["noted"] = person
        return f"noted {person}"

    def tool_send_parcel(self, room):
        if all(room != row["room"] for row in self.staff.values()):
            raise ToolError("no such room")
        self.state["parcel"] = room
        return f"sent to {room}"

    def solution(self):
        return [
            call("list_staff", page=list(self.staff).index(self.key) // 2 + 1),
            call("note", person=self.key),
            call("get_person", person=self.key),
            call("send_parcel", room=self.staff[self.key]["room"]),
            DONE,
        ]
