#!/usr/bin/env python3
"""A program that opens libnccl.so.2 itself and looks ncclAllReduce up on the handle, as serving frameworks
do: by bare name and by full path, with buffers of its own and with PyTorch's (which has loaded NCCL too)."""

import ctypes
import os
import sys

import nccl_client
import support
from support import Group, environment, total

RANKS = 2
SIZES = [4, 12, 4096, 65532, 131072, 131076, 1048576]  # bytes; the cap is 131072
CAP = 131072


def client(rank, folder, library, with_torch):
    """One rank, in its own process. Ends with 0 if all results are right."""
    torch = None
    if with_torch:
        import torch
        torch.cuda.set_device(rank)
        torch.zeros(1, device="cuda")
    cuda = nccl_client.Cuda(rank)
    nccl = nccl_client.Nccl(library)
    comm = nccl.init(rank, RANKS, os.path.join(folder, "id"))
    if torch:
        buffer = torch.empty(max(SIZES) // 4, device="cuda")
        address = buffer.data_ptr()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    else:
        address = cuda.memory(max(SIZES))
        stream = cuda.stream()
    wrong = 0
    for nbytes in SIZES:
        inputs = [nccl_client.random_floats(nbytes // 4, nbytes + r) for r in range(RANKS)]
        cuda.upload(address, inputs[rank], stream)
        nccl.all_reduce(address, address, nbytes // 4, "float32", comm, stream)
        result = cuda.download(address, nbytes, stream)
        if result != nccl_client.sum_in_rank_order(inputs).tobytes():
            wrong += 1
            print(f"wrong result at {nbytes} bytes", flush=True)
    nccl.destroy(comm)
    print(f"rank {rank}: {len(SIZES) - wrong} right, {wrong} wrong, NCCL {nccl.version()}", flush=True)
    return wrong


def run(report, arguments, name, library, with_torch=False, preload=True, dlsym=True):
    problems = []
    with Group() as group:
        settings = {"SHUNT_CAP": str(CAP)} if preload else {}
        if not dlsym:
            settings["SHUNT_DLSYM"] = "0"
        env = environment(arguments.build, preload=preload, emulated=arguments.emulated, **settings)
        for rank in range(RANKS):
            group.start([sys.executable, os.path.abspath(__file__), "--client", str(rank), group.folder,
                         library] + (["torch"] if with_torch else []), env)
        if not group.wait(90):
            problems.append("not finished after 90 s")
        text = group.output()
        if any(process.returncode != 0 for process in group.processes):
            problems.append(f"exit status {[p.returncode for p in group.processes]}")
        wanted = RANKS * sum(size <= CAP for size in SIZES) if preload and dlsym else 0
        shunted, forwarded = total(text, "shunted"), total(text, "forwarded")
        if shunted != wanted:
            problems.append(f"{shunted} calls shunted, {wanted} expected")
        if wanted and forwarded != RANKS * len(SIZES) - wanted:
            problems.append(f"{forwarded} calls forwarded, {RANKS * len(SIZES) - wanted} expected")
        report.case(name, problems, f"{shunted} shunted, {forwarded} forwarded, results right", text)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--client":
        rank, folder, library, *rest = sys.argv[2:]
        return client(int(rank), folder, library, rest == ["torch"])
    arguments = support.parser(__doc__).parse_args()
    support.require_two_gpus(arguments.emulated)
    report = support.Report(arguments, "ctypes_client")
    full = (os.path.join(arguments.build, "emulator", "libnccl.so.2") if arguments.emulated
            else support.nccl_library())
    run(report, arguments, "without the library", "libnccl.so.2", preload=False)
    run(report, arguments, "bare name", "libnccl.so.2")
    run(report, arguments, "full path", full)
    run(report, arguments, "dlsym hook off", "libnccl.so.2", dlsym=False)
    if not arguments.emulated and support.has_torch():
        run(report, arguments, "full path, with PyTorch", full, with_torch=True)
        run(report, arguments, "bare name, with PyTorch", "libnccl.so.2", with_torch=True)
    else:
        report.skip("with PyTorch", "no PyTorch here, or GPUs emulated")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
