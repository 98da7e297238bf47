"""NCCL and the CUDA driver through ctypes, the way that serving frameworks reach NCCL: the library is
opened by name or path and each function is looked up on the handle. Own buffers come from the driver, so
that a client needs neither PyTorch nor numpy."""

import array
import ctypes
import os
import time

TYPES = {"int8": (0, 1), "int32": (2, 4), "float16": (6, 2), "float32": (7, 4), "float64": (8, 8),
         "bfloat16": (9, 2)}  # ncclDataType_t, bytes
SUM = 0  # ncclSum
REMOTE_ERROR = 6  # ncclRemoteError


class NcclError(RuntimeError):
    pass


class CudaError(RuntimeError):
    pass


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Nccl:
    def __init__(self, name="libnccl.so.2"):
        self.library = ctypes.CDLL(name)

    def call(self, function, *arguments):
        result = getattr(self.library, function)(*arguments)
        if result != 0:
            text = self.library.ncclGetErrorString
            text.restype = ctypes.c_char_p
            raise NcclError(f"{function}: {result} {text(result).decode()}")

    def version(self):
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        return version.value

    def init(self, rank, ranks, id_file):
        """A communicator; rank 0 leaves the id in `id_file` for the others."""
        unique = UniqueId()
        if rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(unique))
            with open(id_file + ".part", "wb") as f:
                f.write(bytes(unique))
            os.rename(id_file + ".part", id_file)
        else:
            while not os.path.exists(id_file):
                time.sleep(0.005)
            with open(id_file, "rb") as f:
                ctypes.memmove(ctypes.byref(unique), f.read(), 128)
        comm = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(comm), ctypes.c_int(ranks), unique,
                  ctypes.c_int(rank))
        return comm

    def all_reduce(self, send, recv, count, dtype, comm, stream):
        self.call("ncclAllReduce", ctypes.c_void_p(send), ctypes.c_void_p(recv),
                  ctypes.c_size_t(count), ctypes.c_int(TYPES[dtype][0]), ctypes.c_int(SUM), comm,
                  stream)

    def destroy(self, comm):
        self.call("ncclCommDestroy", comm)

    def abort(self, comm):
        self.call("ncclCommAbort", comm)

    def async_error(self, comm):
        error = ctypes.c_int()
        self.call("ncclCommGetAsyncError", comm, ctypes.byref(error))
        return error.value


class Cuda:
    """The primary context of one device, current in the thread that made this."""

    def __init__(self, device):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(0 if os.environ.get("ONE_GPU") else device))
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), handle)
        self.make_current()

    def call(self, function, *arguments):
        result = getattr(self.driver, function)(*arguments)
        if result != 0:
            raise CudaError(f"{function}: CUDA error {result}")

    def make_current(self):
        self.call("cuCtxSetCurrent", self.context)

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))  # non-blocking
        return stream

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", stream)

    def finished(self, stream):
        result = self.driver.cuStreamQuery(stream)
        if result not in (0, 600):  # 600: not ready
            raise CudaError(f"cuStreamQuery: CUDA error {result}")
        return result == 0

    def memory(self, nbytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def pinned(self, nbytes):
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_uint(0))
        return address.value

    def upload(self, address, data, stream):
        """data: bytes-like."""
        data = bytes(data)
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data,
                  ctypes.c_size_t(len(data)), stream)
        self.synchronize(stream)

    def download(self, address, nbytes, stream):
        buffer = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoHAsync_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(nbytes),
                  stream)
        self.synchronize(stream)
        return buffer.raw

    def capture(self, stream, record):
        """A graph of what `record` puts into the stream, ready to launch."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", stream, ctypes.c_int(1))  # thread local
        record()
        self.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        return executable

    def launch(self, executable, stream):
        self.call("cuGraphLaunch", executable, stream)

    def download_later(self, host, address, nbytes, stream):
        """Queued only: host memory changes when the stream gets there."""
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(address),
                  ctypes.c_size_t(nbytes), stream)


def random_floats(count, seed):
    """`count` random fp32 values in an array("f")."""
    import random
    bits = array.array("I", random.Random(seed).randbytes(4 * count))
    # A random sign and mantissa, an exponent in [0x7c, 0x83]: sums round, nothing overflows.
    return array.array("f", array.array(
        "I", ((b & 0x807fffff) | (0x7c + (b >> 23 & 7)) << 23 for b in bits)).tobytes())


def sum_in_rank_order(inputs):
    """The exact bits that adding fp32 arrays in rank order gives."""
    result = inputs[0]
    for other in inputs[1:]:
        result = array.array("f", (a + b for a, b in zip(result, other)))
    return result
