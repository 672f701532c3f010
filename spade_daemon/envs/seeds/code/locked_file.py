from spade_env import DONE, ToolError, ToolUseEnv, call, tool


class LockedFileEnv(ToolUseEnv):
    """Rename a file that is locked: find out who holds the lock, release it, retry, and verify."""

    tools = [
        tool("rename", "Rename a file.", old="string", new="string"),
        tool("lock_info", "Who locks a file.", name="string"),
        tool("release", "End the session that holds a lock.", session="string"),
        tool("list_files", "All file names."),
        tool("archive", "Archive a file.", name="string"),
    ]

    def setup(self, rng):
        self.old, self.new = f"report{rng.randint(10, 99)}.txt", f"final{rng.randint(10, 99)}.txt"
        self.session = f"S{rng.randint(1000, 9999)}"
        self.state = {"files": [self.old, "notes.txt"], "locked": True, "archived": [], "listed": False}
        self.instructions = [
            (f"Rename {self.old} to {self.new}.", lambda s: self.new in s["files"]),
            ("List the files to make sure.", lambda s: s["listed"]),
            ("Archive the renamed file.", lambda s: s["archived"] == [self.new]),
        ]

    def find(self, name):
        if name not in self.state["files"]:
            raise ToolError("no such file")

    def tool_rename(self, old, new):
        self.find(old)
        if old == self.old and self.state["locked"]:
            raise ToolError("the file is locked, see lock_info")
        self.state["files"] = [new if name == old else name for name in self.state["files"]]
        return f"renamed {old} to {new}"

    def tool_lock_info(self, name):
        self.find(name)
        locked = name == self.old and self.state["locked"]
        return f"locked by session {self.session}" if locked else "not locked"

    def tool_release(self, session):
        if session != self.session:
            raise ToolError("no such session")
        self.state["locked"] = False
        return "released"

    def tool_list_files(self):
        self.state["listed"] = self.new in self.state["files"]
        return self.state["files"]

    def tool_archive(self, name):
        self.find(name)
        self.state["archived"] = [*self.state["archived"], name]
        return f"archived {name}"

    def solution(self):
        return [
            call("rename", old=self.old, new=self.new),
            call("lock_info", name=self.old),
            call("release", session=self.session),
            call("rename", old=self.old, new=self.new),
            call("list_files"),
            call("archive", name=self.new),
            DONE,
        ]
