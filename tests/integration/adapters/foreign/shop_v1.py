"""A task set of verifiers with a tool server, whose state its reward reads."""

import verifiers.v1 as vf

PRICES = {"tea": 3, "milk": 2, "bread": 4}


class ShopState(vf.State):
    items: list[str] = []


class ShopData(vf.TaskData):
    answer: str


class Shop(vf.Toolset[vf.ToolsetConfig, ShopState]):
    TOOL_PREFIX = None

    @vf.tool
    async def price(self, item: str) -> str:
        """Return the price of an item."""
        self.state.items = [*self.state.items, item]
        return str(PRICES.get(item, "unknown"))


class ShopTask(vf.Task[ShopData, ShopState, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Shop(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.metric
    async def num_asked(self, trace) -> float:
        return len(trace.state.items)


class ShopSet(vf.Taskset[ShopTask]):
    def load(self):
        for item, price in PRICES.items():
            yield ShopTask(ShopData(prompt=f"What do two of {item} cost?", answer=str(2 * price)))


__all__ = ["ShopSet"]

if __name__ == "__main__":
    Shop.run()
