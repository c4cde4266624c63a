"""The nets of `bywash bench plan`, written in SimPy as its own documentation writes a bank and a machine shop.

python queues.py FILE: FILE has the net, how many customers have to finish, and a seed, as JSON.
"""

import json
import platform
import random
import sys
import time

import simpy


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)
    net = order["net"]
    wanted = order["customers"]
    draw = random.Random(order["seed"]).expovariate
    env = simpy.Environment()
    done = env.event()
    responses = []
    service_rate = 1.0 / net["service"]

    def finish(began):
        responses.append(env.now - began)
        if len(responses) == wanted:
            done.succeed()

    def passer_by(station):
        began = env.now
        with station.request() as turn:
            yield turn
            yield env.timeout(draw(service_rate))
        finish(began)

    def arrivals(station):
        arrival_rate = 1.0 / net["pause"]
        while True:
            yield env.timeout(draw(arrival_rate))
            env.process(passer_by(station))

    def regular(stations):
        thinks = net["pause"] > 0.0
        think_rate = 1.0 / net["pause"] if thinks else 0.0
        while True:
            if thinks:
                yield env.timeout(draw(think_rate))
            began = env.now
            for station in stations:
                with station.request() as turn:
                    yield turn
                    yield env.timeout(draw(service_rate))
            finish(began)

    stations = [simpy.Resource(env, net["servers"]) for _ in range(net["stations"])]
    if net["jobs"] == 0:
        env.process(arrivals(stations[0]))
    for _ in range(net["jobs"]):
        env.process(regular(stations))
    begin = time.process_time()
    env.run(until=done)
    seconds = time.process_time() - begin
    # The net has filled by then.
    later = responses[len(responses) // 2 :]
    answer = {
        "seconds": seconds,
        "results": [env.now, sum(later) / len(later)],
        "versions": f"SimPy {simpy.__version__}, Python {platform.python_version()}",
    }
    print(json.dumps(answer))


main()
