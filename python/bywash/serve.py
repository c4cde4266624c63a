"""Volumes of a device server, `bywash serve`, which owns devices and shares them among programs.

    with bywash.serve.Client.connect("/run/bywash/serve.socket") as client:
        log = client.open("log", "read-write")
        log.write_at(bytes(4096), 8192)      # any buffer; offsets and lengths are multiples of log.block
        log.flush()
        log.readinto_at(array, 8192)         # a NumPy array, say

        queue = client.queue()               # many requests under way at a time
        volume = queue.open("log")
        for number in range(8):
            queue.read(volume, number * 4096, 4096, user_data=number)
        while queue.under_way:
            for done in queue.reap_many():
                print(done.user_data, len(done.result()))

Where the medium is memory that a program may map, it is mapped, and no server is on the way (`Volume.mapped`); else
requests go through a channel to the server, without a system call while that is looking.

- `Client`: a connection, and what administrators ask
- `Volume`: calls that wait
- `Queue`, `VolumeId`, `Completion`, `Buffer`: calls that do not; `bywash.aio.reap` waits for them in asyncio
"""

from ._bywash import Buffer, Client, Completion, Queue, Volume, VolumeId

__all__ = ["Buffer", "Client", "Completion", "Queue", "Volume", "VolumeId"]
