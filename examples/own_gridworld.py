"""A gridworld of your own: mushrooms in a wood with a wall across it, as data. Play it, draw it,
and see what two players earn.

    python examples/own_gridworld.py
"""

from tenfold.domains.treasure.api import TreasureHunt
from tenfold.domains.treasure.play import Scripted, TreasureWorlds, yardsticks
from tenfold.domains.treasure.rules import CellKind, Rules, register, save_pictures

WOOD = Rules(
    height=9,
    width=14,
    agents=3,
    turns=40,
    spawn=0.02,
    radius=3,
    walls=tuple((4, x) for x in range(3, 11)),
    kinds=(
        CellKind("chanterelle", 4, share=3, colour=(230, 160, 30)),
        CellKind("porcini", 9, colour=(120, 80, 40)),
        CellKind("toadstool", -15),
    ),
)
# from now on a name like any other: "Wood-v0(agents=4)", and from elsewhere "own_gridworld:Wood-v0"
register("Wood-v0", WOOD)

if __name__ == "__main__":
    # the form that trains: one lane for each agent and world
    worlds = TreasureWorlds("Wood-v0", 1, seed=0)
    # and PettingZoo's
    players, env = (
        Scripted(WOOD, worlds.num_envs, seed=0),
        TreasureHunt("Wood-v0", render_mode="rgb_array"),
    )
    obs, _ = env.reset(seed=0)
    frames = [env.render()]
    while env.agents:
        actions = players.act(worlds.obs)
        worlds.step(actions)
        obs, rewards, _, _, _ = env.step(dict(zip(env.agents, actions, strict=True)))
        frames.append(env.render())
    env.render_mode = "ansi"
    print(env.render())
    save_pictures(frames, "wood.gif")
    print(
        "returns of the three:",
        worlds.finished[0].agent_returns,
        "| frames in wood.gif:",
        len(frames),
    )
    print({player: round(mean, 1) for player, mean in yardsticks("Wood-v0", 200).items()})
