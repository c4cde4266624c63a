"""The model's bound of a Web server over two of its numbers, as one would write it in NumPy.

python sweep.py FILE: FILE has machine and costs in base units, the structure, the values of both numbers, and how often
to do it, as JSON. The formula is the one at the head of crates/model/src/demand.rs.
"""

import json
import platform
import sys
import time

import numpy as np


def bounds(order, miss, speed):
    """Bytes a second and what binds, for each miss rate (down) and speed of the processors (across)."""
    active = order["structure"] in ("active", "direct")
    protocols = order["tcp"] + order["file-system"] * miss
    cycles = order["server"] + (order["system"] if order["structure"] == "conventional" else 0.0)
    crossings = np.maximum(1.0, miss) if order["structure"] == "direct" else 1.0 + miss
    disks, interfaces = order["disks"], order["interfaces"]
    nothing = np.zeros((1, 1))
    busy = [
        (cycles if active else cycles + protocols) / speed / order["processors"],
        crossings / order["interconnect"],
        np.full((1, 1), 1.0 / interfaces["rate"] / interfaces["count"]),
        np.full((1, 1), order["tcp"] / interfaces["processor"] / interfaces["count"]) if active else nothing,
        miss / disks["rate"] / disks["count"],
        order["file-system"] * miss / disks["processor"] / disks["count"] if active else nothing,
    ]
    busy = np.stack(np.broadcast_arrays(*busy))
    return 1.0 / busy.max(axis=0), busy.argmax(axis=0).astype(np.uint8)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    miss = np.array(order["miss"])[:, np.newaxis]
    speed = np.array(order["speed"])[np.newaxis, :]
    bounds(order, miss, speed)
    begin = time.process_time()
    for _ in range(order["repeats"]):
        throughput, binding = bounds(order, miss, speed)
    seconds = (time.process_time() - begin) / order["repeats"]
    answer = {
        "seconds": seconds,
        "results": [float(throughput.sum()), *np.bincount(binding.ravel(), minlength=6).tolist()],
        "versions": f"NumPy {np.__version__}, Python {platform.python_version()}",
    }
    print(json.dumps(answer))


main()
