"""One rank of a pattern of calls that `nccl-shunt bench` does not have: captured once, replayed, timed on the
device, checked. Prints one line of JSON. Started by bench.py: pattern_rank.py RANK RANKS FOLDER PATTERN FLUSH"""

import array
import ctypes
import json
import os
import statistics
import sys

import nccl_client

PATTERNS = {
    "group": [1024] * 100,  # in one group, which NCCL fuses, and so does the library
    "large group": [16384] * 100,  # likewise, together more than the cap
    "mixed": [4096, 12288, 65536, 256, 32768, 131072, 8192, 49152, 16, 98304] * 6,  # bytes, one after the other
}
REPLAYS, WARMUPS = 15, 3
POISON = 0x7b


class Event:
    def __init__(self, cuda):
        self.cuda, self.handle = cuda, ctypes.c_void_p()
        cuda.call("cuEventCreate", ctypes.byref(self.handle), ctypes.c_uint(0))

    def record(self, stream):
        self.cuda.call("cuEventRecord", self.handle, stream)

    def since(self, first):
        """Microseconds."""
        ms = ctypes.c_float()
        self.cuda.call("cuEventElapsedTime", ctypes.byref(ms), first.handle, self.handle)
        return ms.value * 1e3


def fill(cuda, address, byte, nbytes, stream):
    cuda.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes), stream)


def main():
    rank, ranks, folder, pattern, flush = sys.argv[1:]
    rank, ranks, flush = int(rank), int(ranks), int(flush)
    cuda = nccl_client.Cuda(rank)
    nccl = nccl_client.Nccl()
    comm = nccl.init(rank, ranks, os.path.join(folder, "id"))
    stream = cuda.stream()
    sizes = PATTERNS[pattern]
    offsets = [sum((size + 255) // 256 * 256 for size in sizes[:i]) for i in range(len(sizes) + 1)]
    send, recv, scratch = cuda.memory(offsets[-1]), cuda.memory(offsets[-1]), cuda.memory(flush)
    cuda.upload(send, array.array("f", [rank + 1]) * (offsets[-1] // 4), stream)

    def calls():
        if "group" in pattern:
            nccl.call("ncclGroupStart")
        for offset, size in zip(offsets, sizes):
            nccl.all_reduce(send + offset, recv + offset, size // 4, "float32", comm, stream)
        if "group" in pattern:
            nccl.call("ncclGroupEnd")

    calls()  # connections are made here
    cuda.synchronize(stream)
    graph = cuda.capture(stream, calls)
    first, last, times = Event(cuda), Event(cuda), []
    for replay in range(WARMUPS + REPLAYS):
        fill(cuda, recv, POISON, offsets[-1], stream)
        fill(cuda, scratch, POISON, flush, stream)  # nothing of the last replay is left in the L2
        nccl.all_reduce(scratch, scratch, 1, "float32", comm, stream)  # ranks set out together
        first.record(stream)
        cuda.launch(graph, stream)
        last.record(stream)
        cuda.synchronize(stream)
        if replay >= WARMUPS:
            times.append(last.since(first))
    got = cuda.download(recv, offsets[-1], stream)
    want = array.array("f", [ranks * (ranks + 1) / 2])
    wrong = sum(got[offset:offset + size] != (want * (size // 4)).tobytes()
                for offset, size in zip(offsets, sizes))
    nccl.destroy(comm)
    print(json.dumps({"rank": rank, "us": statistics.median(times), "wrong": wrong}), flush=True)
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
