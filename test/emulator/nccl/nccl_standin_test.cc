// The NCCL stand-in against what nccl.h promises: results, groups, captures, ends.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "test/catch.h"
#include "test/emulator/nccl/standin_ranks.h"

using namespace standin_test;

namespace {

const std::vector<int> kTwo(2, 0), kThree(3, 0), kFour(4, 0), kOne(1, 0);

template <typename T>
void all_reduce(const Buffer<T>& from, const Buffer<T>& to, ncclDataType_t type, ncclRedOp_t op,
                ncclComm_t comm, CUstream stream) {
  NCCL_OK(ncclAllReduce(from.data(), to.data(), from.count(), type, op, comm, stream));
}

// Whole numbers whose sums stay below 8: exact in every type and order.
int small_number(size_t i, int rank) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank * rank)) % 4);
}

template <typename T, typename Make, typename Value>
void check_sum(const Rank& r, ncclComm_t comm, CUstream stream, ncclDataType_t type, Make make,
               Value value) {
  for (const size_t count : {size_t{1}, size_t{7}, size_t{257}, size_t{300000}}) {
    std::vector<T> mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = make(small_number(i, r.rank));
    Buffer<T> from(count), to(count + 1, make(1));
    from.set(mine);
    NCCL_OK(ncclAllReduce(from.data(), to.data(), count, type, ncclSum, comm, stream));
    CU_OK(cuStreamSynchronize(stream));
    const std::vector<T> got = to.get();
    for (size_t i = 0; i < count; ++i)
      ENSURE(value(got[i]) == small_number(i, 0) + small_number(i, 1) + small_number(i, 2));
    ENSURE(value(got[count]) == 1);
    ENSURE(std::memcmp(from.get().data(), mine.data(), count * sizeof(T)) == 0);
    all_reduce(from, from, type, ncclSum, comm, stream);
    CU_OK(cuStreamSynchronize(stream));
    ENSURE(std::memcmp(from.get().data(), got.data(), count * sizeof(T)) == 0);
  }
}

template <typename T>
void check_sum(const Rank& r, ncclComm_t comm, CUstream stream, ncclDataType_t type) {
  check_sum<T>(
      r, comm, stream, type, [](int x) { return T(static_cast<float>(x)); },
      [](T x) { return static_cast<int>(static_cast<float>(x)); });
}

}  // namespace

TEST_CASE("all-reduce between processes sums every datatype") {
  REQUIRE(run_ranks(3, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream s;
            check_sum<int8_t>(r, comm, s, ncclInt8);
            check_sum<uint8_t>(r, comm, s, ncclUint8);
            check_sum<int32_t>(r, comm, s, ncclInt32);
            check_sum<uint32_t>(r, comm, s, ncclUint32);
            check_sum<int64_t>(r, comm, s, ncclInt64);
            check_sum<uint64_t>(r, comm, s, ncclUint64);
            check_sum<__half>(r, comm, s, ncclFloat16);
            check_sum<float>(r, comm, s, ncclFloat32);
            check_sum<double>(r, comm, s, ncclFloat64);
            check_sum<__nv_bfloat16>(r, comm, s, ncclBfloat16);
            check_sum<__nv_fp8_e4m3>(r, comm, s, ncclFloat8e4m3);
            check_sum<__nv_fp8_e5m2>(r, comm, s, ncclFloat8e5m2);
            NCCL_OK(ncclCommDestroy(comm));
          }) == kThree);
}

TEST_CASE("operations: wrap, truncate, drop NaN, scale") {
  REQUIRE(
      run_ranks(2, [](const Rank& r) {
        ncclComm_t comm = make_world(r);
        Stream s;
        const auto reduce = [&]<typename T>(std::vector<T> zero, std::vector<T> one,
                                            ncclDataType_t type, ncclRedOp_t op) {
          Buffer<T> b(zero.size());
          b.set(r.rank == 0 ? zero : one);
          all_reduce(b, b, type, op, comm, s);
          s.wait();
          return b.get();
        };
        using I8 = std::vector<int8_t>;
        using F = std::vector<float>;
        ENSURE(reduce(I8{100, -100}, I8{100, -100}, ncclInt8, ncclSum) == I8{-56, 56});
        ENSURE(reduce(I8{-3, 4, -128}, I8{0, 1, 0}, ncclInt8, ncclAvg) == I8{-1, 2, -64});
        const std::vector<uint64_t> high{(uint64_t{1} << 63) + 5}, low{7};
        ENSURE(reduce(high, low, ncclUint64, ncclMax) == high);
        ENSURE(reduce(high, low, ncclUint64, ncclMin) == low);
        ENSURE(reduce(F{3, -2}, F{4, 5}, ncclFloat, ncclProd) == F{12, -10});
        ENSURE(reduce(F{3, -2}, F{5, 5}, ncclFloat, ncclAvg) == F{4, 1.5f});
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const F kept = reduce(F{nan, 1, nan}, F{2, nan, nan}, ncclFloat, ncclMax);
        ENSURE(kept[0] == 2 && kept[1] == 1 && std::isnan(kept[2]));

        ncclRedOp_t op;
        float scalar = r.rank == 0 ? 2.0f : 10.0f;
        NCCL_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
        ENSURE(reduce(F{1, 2}, F{3, 4}, ncclFloat, op) == F{32, 44});
        NCCL_OK(ncclRedOpDestroy(op, comm));
        Buffer<float> b(1);
        ENSURE(ncclAllReduce(b.data(), b.data(), 1, ncclFloat, op, comm, s) == ncclInvalidArgument);
        NCCL_OK(ncclCommDestroy(comm));
      }) == kTwo);
}

TEST_CASE("small floats are rounded at every hop, and all ranks get the same bits") {
  REQUIRE(run_ranks(4, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream s;
            // 256 + 1 is 256 in bfloat16: which sum comes out depends on the order alone.
            Buffer<__nv_bfloat16> b(4, __float2bfloat16(r.rank == 0 ? 256.0f : 1.0f));
            all_reduce(b, b, ncclBfloat16, ncclSum, comm, s);
            s.wait();
            std::vector<float> got;
            for (const __nv_bfloat16 x : b.get()) got.push_back(__bfloat162float(x));
            // Chunk c adds ranks c+1, c+2, ..., c.
            ENSURE(got == std::vector<float>{260, 260, 256, 256});
            NCCL_OK(ncclCommDestroy(comm));
          }) == kFour);
}

TEST_CASE("the other collectives and point-to-point calls") {
  REQUIRE(run_ranks(3, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream s;
            using V = std::vector<int>;
            const int n = r.ranks, me = r.rank;
            Buffer<int> one(2), many(6), out(6, -1);
            const auto fresh = [&] {
              s.wait();
              one.set({me * 10, me * 10 + 1});
              V values(6);
              std::iota(values.begin(), values.end(), me * 100);
              many.set(values);
            };
            const auto part = [&](const Buffer<int>& b, size_t from, size_t to) {
              s.wait();
              const V all = b.get();
              return V(all.begin() + from, all.begin() + to);
            };
            fresh();
            NCCL_OK(ncclReduce(one.data(), out.data(), 2, ncclInt, ncclSum, 1, comm, s));
            if (me == 1) ENSURE(part(out, 0, 2) == V{30, 33});
            NCCL_OK(ncclBroadcast(one.data(), out.data(), 2, ncclInt, 2, comm, s));
            ENSURE(part(out, 0, 2) == V{20, 21});
            NCCL_OK(ncclBcast(one.data(), 2, ncclInt, 1, comm, s));
            ENSURE(part(one, 0, 2) == V{10, 11});
            NCCL_OK(ncclReduceScatter(many.data(), out.data(), 2, ncclInt, ncclSum, comm, s));
            ENSURE(part(out, 0, 2) == V{300 + 6 * me, 303 + 6 * me});
            fresh();
            NCCL_OK(ncclAllGather(one.data(), out.data(), 2, ncclInt, comm, s));
            ENSURE(part(out, 0, 6) == V{0, 1, 10, 11, 20, 21});
            NCCL_OK(ncclAlltoAll(many.data(), out.data(), 2, ncclInt, comm, s));
            ENSURE(part(out, 2, 4) == V{100 + 2 * me, 101 + 2 * me});
            NCCL_OK(ncclGather(one.data(), out.data(), 2, ncclInt, 2, comm, s));
            if (me == 2) ENSURE(part(out, 0, 6) == V{0, 1, 10, 11, 20, 21});
            NCCL_OK(ncclScatter(many.data(), out.data(), 2, ncclInt, 1, comm, s));
            ENSURE(part(out, 0, 2) == V{100 + 2 * me, 101 + 2 * me});

            // Large enough for many pieces; every rank sends before it receives.
            Buffer<int> big(100000, me), got(100000, -1);
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclSend(big.data(), 100000, ncclInt, (me + 1) % n, comm, s));
            NCCL_OK(ncclRecv(got.data(), 100000, ncclInt, (me + n - 1) % n, comm, s));
            NCCL_OK(ncclGroupEnd());
            s.wait();
            ENSURE(got.get() == V(100000, (me + n - 1) % n));
            NCCL_OK(ncclCommFinalize(comm));
            NCCL_OK(ncclCommDestroy(comm));
          }) == kThree);
}

TEST_CASE("one thread drives several devices in a group; a failed group runs nothing") {
  REQUIRE(run_ranks(1, [](const Rank&) {
            CU_OK(cuInit(0));
            ncclComm_t comms[3];
            NCCL_OK(ncclCommInitAll(comms, 3, nullptr));
            std::vector<std::unique_ptr<Stream>> streams;
            std::vector<std::unique_ptr<Buffer<float>>> buffers;
            for (int d = 0; d < 3; ++d) {
              use_device(d);
              streams.push_back(std::make_unique<Stream>());
              buffers.push_back(std::make_unique<Buffer<float>>(5, static_cast<float>(d + 1)));
            }
            const auto call = [&](int d, ncclDataType_t type) {
              use_device(d);
              float* p = buffers[d]->data();
              return ncclAllReduce(p, p, 5, type, ncclSum, comms[d], streams[d]->handle);
            };
            const auto check = [&](std::vector<float> want) {
              for (int d = 0; d < 3; ++d) {
                use_device(d);
                streams[d]->wait();
                ENSURE(buffers[d]->get() == std::vector<float>(5, want[d]));
              }
            };
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclGroupStart());
            for (int d = 0; d < 3; ++d) NCCL_OK(call(d, ncclFloat));
            NCCL_OK(ncclGroupEnd());
            check({1, 2, 3});
            NCCL_OK(ncclGroupEnd());
            check({6, 6, 6});
            NCCL_OK(ncclGroupStart());
            for (int d = 0; d < 3; ++d) NCCL_OK(call(d, ncclFloat));
            ENSURE(call(0, static_cast<ncclDataType_t>(77)) == ncclInvalidArgument);
            ENSURE(ncclGroupEnd() == ncclInvalidArgument);
            check({6, 6, 6});
            NCCL_OK(ncclGroupStart());
            for (int d = 0; d < 3; ++d) NCCL_OK(call(d, ncclFloat));
            ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
            NCCL_OK(ncclGroupSimulateEnd(&info));
            ENSURE(info.estimatedTime > 0);
            check({6, 6, 6});
            ENSURE(ncclGroupEnd() == ncclInvalidUsage);
            for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
          }) == kOne);
}

TEST_CASE(
    "a captured all-reduce is replayed with new inputs, mixed with eager calls on two streams") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream a, b;
            Buffer<float> in(1000), out(1000, -1), eager(1000, 1);
            CUgraph graph;
            CUgraphExec exec;
            CU_OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
            all_reduce(in, out, ncclFloat, ncclSum, comm, a);
            all_reduce(out, out, ncclFloat, ncclSum, comm, a);
            CU_OK(cuStreamEndCapture(a, &graph));
            CU_OK(cuGraphInstantiate(&exec, graph, 0));
            for (int i = 0; i < 100; ++i) {
              in.set(std::vector<float>(1000, static_cast<float>(i + r.rank)));
              out.set(std::vector<float>(1000, -1));
              eager.set(std::vector<float>(1000, static_cast<float>(i)));
              CU_OK(cuGraphLaunch(exec, a));
              all_reduce(eager, eager, ncclFloat, ncclSum, comm, b);
              b.wait();
              a.wait();
              ENSURE(out.get() == std::vector<float>(1000, static_cast<float>(4 * i + 2)));
              ENSURE(eager.get() == std::vector<float>(1000, static_cast<float>(2 * i)));
            }
            CU_OK(cuGraphExecDestroy(exec));
            CU_OK(cuGraphDestroy(graph));
            NCCL_OK(ncclCommDestroy(comm));
          }) == kTwo);
}

TEST_CASE("two streams of one communicator keep the order of the calls") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream a, b;
            Buffer<int64_t> x(64, 1);
            for (int i = 0; i < 40; ++i) all_reduce(x, x, ncclInt64, ncclSum, comm, i % 2 ? a : b);
            a.wait();
            b.wait();
            ENSURE(x.get() == std::vector<int64_t>(64, int64_t{1} << 40));
            NCCL_OK(ncclCommDestroy(comm));
          }) == kTwo);
}
