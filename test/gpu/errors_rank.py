"""One rank of errors.py: sums of random data by both paths against a sum that is (nearly) exact. Prints one line of
JSON. Started by errors.py: errors_rank.py RANK RANKS FOLDER BYTES"""

import ctypes
import hashlib
import json
import os
import sys

import numpy
import torch

import nccl_client

# ncclDataType_t, the type of the inputs, unit roundoff.
TYPES = {
    "fp8_e4m3": (10, torch.float8_e4m3fn, 2.0**-4),
    "fp8_e5m2": (11, torch.float8_e5m2, 2.0**-3),
    "half": (6, torch.float16, 2.0**-11),
    "bfloat16": (9, torch.bfloat16, 2.0**-8),
    "float": (7, torch.float32, 2.0**-24),
    "double": (8, torch.float64, 2.0**-53),
}
CALLS = 4  # of each type


def wide(tensor):
    """As numpy's longest float, which adds up a few of any of these types without an error that counts."""
    return tensor.to(torch.float64).numpy().astype(numpy.longdouble)


def main():
    rank, ranks, folder, nbytes = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    cuda = nccl_client.Cuda(rank)
    nccl = nccl_client.Nccl()
    comm = nccl.init(rank, ranks, os.path.join(folder, "id"))
    stream = cuda.stream()
    send, recv = cuda.memory(nbytes), cuda.memory(nbytes)
    digest, rows = hashlib.sha256(), {}
    for name, (number, dtype, unit) in TYPES.items():
        errors = {"ncclAllReduce": [], "pncclAllReduce": []}
        count = nbytes // torch.empty(0, dtype=dtype).element_size()
        for call in range(CALLS):
            inputs = []
            for r in range(ranks):
                generator = torch.Generator().manual_seed(1000 * call + r)
                inputs.append(torch.randn(count, generator=generator, dtype=torch.float64).to(dtype))
            exact = sum(wide(x) for x in inputs)
            magnitude = sum(numpy.abs(wide(x)) for x in inputs)
            cuda.upload(send, inputs[rank].view(torch.uint8).numpy().tobytes(), stream)
            for function, found in errors.items():  # the hooked name, and NCCL's own
                cuda.upload(recv, b"\x7b" * nbytes, stream)
                nccl.call(function, ctypes.c_void_p(send), ctypes.c_void_p(recv), ctypes.c_size_t(count),
                          ctypes.c_int(number), ctypes.c_int(nccl_client.SUM), comm, stream)
                cuda.synchronize(stream)
                got = cuda.download(recv, nbytes, stream)
                if function == "ncclAllReduce":
                    digest.update(got)
                result = torch.frombuffer(bytearray(got), dtype=torch.uint8).view(dtype)
                found.append(numpy.abs(wide(result) - exact) / (unit * magnitude))
        rows[name] = {}
        for function, path in (("ncclAllReduce", "shunt"), ("pncclAllReduce", "nccl")):
            all_errors = numpy.concatenate(errors[function])
            rows[name][path] = {"most": float(all_errors.max()), "rms": float(numpy.sqrt((all_errors**2).mean()))}
    nccl.destroy(comm)
    print(json.dumps({"rank": rank, "digest": digest.hexdigest(), "calls": CALLS * len(TYPES), "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
