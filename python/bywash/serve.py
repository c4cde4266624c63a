"""Volumes of a device server, `bywash serve`, which owns devices and shares them among programs.

    with bywash.serve.Client.connect("/run/bywash/serve.socket") as client:
        log = client.open("log", "read-write")
        log.write_at(bytes(4096), 8192)      # any buffer; offsets and lengths are multiples of log.block
        log.flush()
        log.readinto_at(array, 8192)         # a NumPy array, say

        queue = client.queue()               # many requests in flight at a time
        volume = queue.open("log")
        for number in range(8):
            queue.read(volume, number * 4096, 4096, user_data=number)
        while queue.in_flight:
            for done in queue.reap_many():
                print(done.user_data, len(done.result()))

A volume on memory that a program may map is mapped, and calls do not involve the server (`Volume.mapped`).
Otherwise requests move through a channel to the server, without a system call while the server spins.

- `Client`: a connection, and the operations of administrators
- `Volume`: calls that wait
- `Queue`, `VolumeId`, `Completion`, `Buffer`: requests that do not wait; `bywash.aio.reap` waits for them in
  asyncio
"""

from ._bywash import Buffer, Client, Completion, Queue, Volume, VolumeId

__all__ = ["Buffer", "Client", "Completion", "Queue", "Volume", "VolumeId"]
