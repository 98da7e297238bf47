#include "shim/engine/verify.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

#include "shim/engine/communicator.h"
#include "shim/engine/log.h"
#include "shim/engine/settings.h"

namespace shunt {
namespace {

constexpr size_t kMostInChunk = 16384;

struct Stopped {
  ncclResult_t result;
};

void check_nccl(ncclResult_t result) {
  if (result != ncclSuccess) throw Stopped{result};
}

AllReduceCall on_stream(AllReduceCall call, cu::Stream stream) {
  call.stream = stream;
  return call;
}

}  // namespace

// Scratch memory is kept, so it comes in few sizes.
Verification::Verification(Communicator& communicator, std::span<const AllReduceCall> calls,
                           size_t which, uint32_t number, const GpuDevice& device)
    : communicator_(communicator),
      call_(on_stream(calls[which], calls.front().stream)),
      number_(number),
      which_(which),
      together_(calls.size()),
      plan_(plan_all_reduce(calls, communicator.verdict().limits)),
      part_(std::bit_ceil(std::max<size_t>({bytes(), reference_bytes(), 4096}))),
      device_(device),
      scratch_(std::make_unique<Scratch>(device, 4 * part_, true)) {}

size_t Verification::chunk() const { return std::min(kMostInChunk, call_.count); }

cu::Result Verification::keep_input() {
  return cu::api().copy(work(), reinterpret_cast<cu::Ptr>(call_.send), bytes(), call_.stream);
}

// What one rank had, so that all ranks' lines together show the call again.
void Verification::say() const {
  const size_t at = agreed_ - 1;
  const auto number = [&](const unsigned char* array) {
    return format("%.9g (0x%llx)", value_at(array, at, call_.type),
                  static_cast<unsigned long long>(bits_at(array, at, call_.type)));
  };
  const Verdict& verdict = communicator_.verdict();
  const auto offset = [](const void* pointer) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(pointer) % 16);
  };
  log_error(
      "communicator %s: rank %d: call %u (%zu bytes, %s %s%s) differs from NCCL by more than "
      "rounding: element "
      "%zu of %zu is %s, NCCL has %s, this rank gave %s; %zu elements are wrong on this rank; %s, "
      "send + %u, "
      "receive + %u modulo 16; %s, cap %llu, %u lanes of %u threads, %s%s; NCCL's result is used, "
      "and every "
      "later call is forwarded",
      communicator_.key().c_str(), communicator_.rank(), number_, bytes(), name_of(call_.type),
      name_of(call_.op),
      together_ > 1 ? format(", message %zu of %zu in a group", which_ + 1, together_).c_str() : "",
      at, call_.count, number(ours()).c_str(), number(theirs()).c_str(), number(input()).c_str(),
      wrong_.count, call_.send == call_.recv ? "in place" : "not in place", offset(call_.send),
      offset(call_.recv), name_of(verdict.geometry.placement),
      static_cast<unsigned long long>(verdict.cap), plan_.lanes, plan_.threads,
      name_of(plan_.protocol), plan_.two_shot ? ", two shots" : "");
}

// In lock-step, since NCCL's all-reduces of several ranks in one thread must be one group.
class Verifier {
 public:
  explicit Verifier(std::vector<Verification*> all) : all_(std::move(all)) {}
  void run();

 private:
  template <typename Keep>
  Verifier those(Keep&& keep) const {
    std::vector<Verification*> kept;
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(kept),
                 [&](auto* one) { return keep(*one); });
    return Verifier(std::move(kept));
  }
  // `work` with the context of each verification current.
  template <typename Work>
  void each(Work&& work) const {
    for (Verification* one : all_) {
      cu::ContextScope current(one->device_.context);
      work(*one);
    }
  }
  template <typename Work>
  void together(Work&& work) const;
  static void reduce(const Verification& one, cu::Ptr at, size_t count, ncclDataType_t type,
                     ncclRedOp_t op);
  // The first `bytes(verification)` of the shared part, on the way to the device, or back and
  // waited for.
  template <typename Bytes>
  void put_shared(Bytes&& bytes) const;
  template <typename Bytes>
  void get_shared(Bytes&& bytes) const;
  void wait() const;
  void compare_with_nccl() const;
  void agree() const;
  void compare_with_reference(size_t chunk) const;
  void conclude() const;

  std::vector<Verification*> all_;
};

template <typename Work>
void Verifier::together(Work&& work) const {
  if (all_.empty()) return;
  const NcclLibrary& library = all_[0]->communicator_.library();
  check_nccl(library.call<k_ncclGroupStart>());
  try {
    each(work);
  } catch (...) {
    (void)library
        .call<k_ncclGroupEnd>();  // left open it would swallow every later call of this thread
    throw;
  }
  check_nccl(library.call<k_ncclGroupEnd>());
}

void Verifier::reduce(const Verification& one, cu::Ptr at, size_t count, ncclDataType_t type,
                      ncclRedOp_t op) {
  void* const memory = reinterpret_cast<void*>(at);
  check_nccl(one.communicator_.library().call<k_ncclAllReduce>(
      static_cast<const void*>(memory), memory, count, type, op, one.communicator_.handle(),
      one.call_.stream));
}

template <typename Bytes>
void Verifier::put_shared(Bytes&& bytes) const {
  each([&](const Verification& one) {
    if (one.scratch_->shared()) return;
    SHUNT_CU(copy_to_device, one.shared(), one.host_shared(), bytes(one), one.call_.stream);
  });
}

template <typename Bytes>
void Verifier::get_shared(Bytes&& bytes) const {
  each([&](const Verification& one) {
    if (one.scratch_->shared()) return;
    SHUNT_CU(copy_to_host, one.host_shared(), one.shared(), bytes(one), one.call_.stream);
  });
  wait();
}

void Verifier::wait() const {
  const auto start = Clock::now();
  bool reported = false;
  each([&](const Verification& one) {
    for (uint32_t turn = 0;; ++turn) {
      const cu::Result result = cu::api().stream_query(one.call_.stream);
      if (result == cu::kSuccess) return;
      if (result != cu::kNotReady) cu::check(result, cu::Names::stream_query);
      if (one.communicator_.aborted()) throw Stopped{ncclInvalidUsage};
      check_nccl(one.communicator_.failure());
      if (!reported && Clock::now() - start > std::chrono::duration<double>(kReportSeconds)) {
        reported = true;
        log_warning(
            "communicator %s: rank %d still waits for the other ranks to verify call %u; do all "
            "ranks "
            "group and capture the same calls?",
            one.communicator_.key().c_str(), one.communicator_.rank(), one.number_);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(turn < 2000 ? 10 : 1000));
    }
  });
}

void Verifier::compare_with_nccl() const {
  each([](const Verification& one) {
    SHUNT_CU(copy_to_host, one.input(), one.work(), one.bytes(), one.call_.stream);
    SHUNT_CU(copy, reinterpret_cast<cu::Ptr>(one.ours()), reinterpret_cast<cu::Ptr>(one.call_.recv),
             one.bytes(), one.call_.stream);
  });
  together([](const Verification& one) {
    reduce(one, one.work(), one.call_.count, static_cast<ncclDataType_t>(one.call_.type),
           static_cast<ncclRedOp_t>(one.call_.op));
  });
  each([](const Verification& one) {
    if (one.scratch_->shared()) return;
    SHUNT_CU(copy_to_host, one.theirs(), one.work(), one.bytes(), one.call_.stream);
  });
  wait();
  for (Verification* one : all_) {
    one->wrong_ = differing(one->ours(), one->theirs(), one->call_.count, one->call_.type,
                            one->call_.op, static_cast<uint32_t>(one->communicator_.ranks()));
  }
}

// The lowest element that is wrong on any rank: the same on all ranks of a communicator.
void Verifier::agree() const {
  uint64_t word = 0;
  for (const Verification* one : all_) {
    word = one->wrong_.count == 0 ? 0 : ~uint64_t{one->wrong_.first};
    std::memcpy(one->host_shared(), &word, sizeof(word));
  }
  const auto one_word = [](const Verification&) { return sizeof(uint64_t); };
  put_shared(one_word);
  together([](const Verification& one) { reduce(one, one.shared(), 1, ncclUint64, ncclMax); });
  get_shared(one_word);
  for (Verification* one : all_) {
    std::memcpy(&word, one->host_shared(), sizeof(word));
    one->agreed_ = word == 0 ? 0 : static_cast<size_t>(~word) + 1;
  }
}

void Verifier::compare_with_reference(size_t chunk) const {
  const size_t first = chunk * kMostInChunk;
  const auto elements = [&](const Verification& one) {
    return std::min(kMostInChunk, one.call_.count - first);
  };
  const auto bytes = [](const Verification& one) { return one.reference_bytes(); };
  const auto halves = [](const Verification& one) {
    return reinterpret_cast<double*>(one.host_shared());
  };
  for (const Verification* one : all_) {
    for (size_t i = 0; i < elements(*one); ++i) {
      const Share share =
          share_of(value_at(one->input(), first + i, one->call_.type), one->call_.op);
      halves(*one)[i] = share.value;
      halves(*one)[one->chunk() + i] = share.size;
    }
  }
  put_shared(bytes);
  together([&](const Verification& one) {
    const ncclRedOp_t op = one.call_.op == ReduceOp::kProd ? ncclProd : ncclSum;
    reduce(one, one.shared(), elements(one), ncclFloat64, op);
    reduce(one, one.shared() + one.chunk() * sizeof(double), elements(one), ncclFloat64, ncclSum);
  });
  get_shared(bytes);
  for (Verification* one : all_) {
    const Wrong wrong =
        beyond_rounding(one->ours(), first, {halves(*one), elements(*one)},
                        {halves(*one) + one->chunk(), elements(*one)}, one->call_.type,
                        one->call_.op, static_cast<uint32_t>(one->communicator_.ranks()));
    if (one->wrong_.count == 0) one->wrong_.first = wrong.first;
    one->wrong_.count += wrong.count;
  }
}

void Verifier::conclude() const {
  each([](const Verification& one) {
    if (one.agreed_ == 0) {
      log_debug("communicator %s: rank %d: call %u is as NCCL's", one.communicator_.key().c_str(),
                one.communicator_.rank(), one.number_);
      return;
    }
    if (one.communicator_.forward_from_now_on()) one.say();  // of several in one group the first
    SHUNT_CU(copy, reinterpret_cast<cu::Ptr>(one.call_.recv), one.work(), one.bytes(),
             one.call_.stream);
  });
  wait();
}

// Which steps a communicator takes follows from what its ranks have agreed on.
void Verifier::run() {
  compare_with_nccl();
  agree();
  const Verifier unsure = those([](const Verification& one) {
    return one.agreed_ != 0 && rounds(one.call_.type, one.call_.op);
  });
  for (Verification* one : unsure.all_) one->wrong_ = {};
  for (size_t chunk = 0;; ++chunk) {
    const Verifier left = unsure.those(
        [&](const Verification& one) { return one.call_.count > chunk * kMostInChunk; });
    if (left.all_.empty()) break;
    left.compare_with_reference(chunk);
  }
  unsure.agree();
  conclude();
}

ncclResult_t verify(std::span<const std::unique_ptr<Verification>> all) noexcept {
  ncclResult_t result = ncclUnhandledCudaError;
  try {
    cu::RelaxedCaptureScope relaxed;
    std::vector<Verification*> pointers;
    for (const auto& one : all) pointers.push_back(one.get());
    Verifier(std::move(pointers)).run();
    return ncclSuccess;
  } catch (const Stopped& stopped) {
    result = stopped.result;
  } catch (const std::exception& error) {
    log_warning("verifying a call: %s", error.what());
  }
  // NCCL may still write to it.
  for (const auto& one : all) (void)one->scratch_.release();
  return result;
}

}  // namespace shunt
