// GPUs of several ranks in one thread of one process: kernels as fibers, streams, stalls, hostile
// memory. It knows nothing of the protocol. The functions of kernels/host_runtime.h act on the
// running machine.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "test/protocol/fiber.h"
#include "test/protocol/memory.h"

namespace sim {

// What went wrong in a run.
enum class Failure : uint32_t {
  kNone,
  kWrongSum,        // a kernel ended normally with a wrong result, or wrote where it must not
  kHang,            // nothing can ever move again
  kStoreAfterStop,  // a rank that had stopped stored to a mailbox
  kTrap,            // a trap in a program that is right
  kStray,           // an access outside the slabs
  kUnreported,      // a trap or a long wait of which the board says nothing, or something false
};
const char* name_of(Failure failure);

struct Launch {
  void (*body)(const void* params) = nullptr;
  const void* params = nullptr;  // lives until the kernel has ended
  uint32_t blocks = 0;
  uint32_t threads = 0;
  bool may_store = true;  // false: a store to a packet is a failure
};

// What the ranks' hosts do: feed the streams, look at what has ended, act when nothing moves.
class Host {
 public:
  virtual ~Host() = default;
  // False: nothing more on this stream.
  virtual bool next(uint32_t stream, Launch& launch) = 0;
  // After the boundary: all that the kernel stored has landed.
  virtual void ended(uint32_t stream) = 0;
  // A kernel of the rank trapped; nothing of this rank runs any more.
  virtual void trapped(uint32_t rank) = 0;
  // Nothing can ever move again. True: something was done about it.
  virtual bool stuck() = 0;
  // Once a turn; `turn` is cheap to compare.
  virtual void tick(uint64_t turn) = 0;
  // For people: what lies at an address.
  virtual std::string describe(const void* address) = 0;
};

class Machine final : private Memory::Listener {
 public:
  // Stream s belongs to rank_of[s].
  Machine(size_t memory_bytes, std::vector<uint32_t> rank_of, uint64_t seed, Host& host);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Memory& memory() { return memory_; }
  // Until every stream is at its end, or a failure.
  void run();
  // The first failure counts. From inside a kernel: never returns.
  void fail(Failure failure, const std::string& text);
  Failure failure() const { return failure_; }
  const std::string& text() const { return text_; }

  // Nothing of this rank runs or starts until it is thawed.
  void freeze(uint32_t rank, bool frozen);
  // Threads of this rank go on polling however useless it is: they are to notice what their host
  // says.
  void spin(uint32_t rank);
  bool dead(uint32_t rank) const { return ranks_[rank].dead; }
  // Some thread of this rank waits for a packet.
  bool waits(uint32_t rank) const;
  std::string dump() const;
  uint64_t turn() const { return turn_; }

  // ---- what runtime.cc needs ----
  static Machine& running() { return *running_; }
  struct Fiber;
  Fiber& current() { return *current_; }
  void access();  // before each access to memory: another thread may come first
  void store_packet(void* address, uint64_t low, uint64_t high, uint32_t grain);
  void load_packet(const void* address, uint64_t* low, uint64_t* high);
  uint32_t load_word(const uint32_t* address);
  void store_word(uint32_t* address, uint32_t value);
  uint32_t exchange_word(uint32_t* address, uint32_t value);
  uint32_t add_word(uint32_t* address, uint32_t value);
  int barrier_or(int predicate);
  void pause();
  uint64_t clock_ns() { return turn_ * 1000 + (clock_ += 20'000); }
  [[noreturn]] void trap();

  enum class State : uint32_t { kReady, kAsleep, kGated, kParked, kAtBarrier, kDone, kTrapped };
  struct Kernel;
  struct Fiber {
    explicit Fiber(uint32_t number) : coroutine(number) {}
    Coroutine coroutine;
    Kernel* kernel = nullptr;
    uint32_t block = 0, thread = 0;
    uint32_t serial = 0;  // no two threads of a run share it
    State state = State::kReady;
    uint32_t packet = 0;           // of its last load,
    uint64_t seen[2] = {};         // and what it saw
    uint32_t loads = 0;            // since its last unsuccessful poll,
    uint32_t polled = 0;           // which was of this packet
    uint64_t polled_seen[2] = {};  // and saw this
    Fiber* next_parked = nullptr;
    int barrier_result = 0;
  };

 private:
  // Closed: who comes to it waits.
  struct Gate {
    bool closed = false;
    std::vector<Fiber*> waiting;
  };
  struct Block {
    Gate gate;
    std::vector<Fiber*> at_barrier;
    int predicate = 0;
  };

 public:
  struct Kernel {
    Launch launch;
    uint32_t stream = 0, rank = 0;
    bool active = false;
    uint32_t live = 0;
    std::vector<Block> blocks;
    std::vector<Fiber*> fibers;
    Memory::Outstanding outstanding;
  };

 private:
  struct Rank {
    Gate gate;
    bool frozen = false;
    bool spinning = false;
    bool dead = false;
  };
  enum class Stage { kIdle, kRunning, kDraining, kDone };
  struct Stream {
    uint32_t rank;
    Stage stage = Stage::kIdle;
    Kernel kernel;
  };

  void changed(uint32_t packet) override;
  void turn_of_a_thread();
  bool stalls(Fiber& fiber);
  void settle(Fiber& fiber);
  void make_ready(Fiber& fiber);
  void events();
  bool happens(Event event);
  bool something_happens();
  bool advance_a_stream();
  bool advance(Stream& stream);
  void start(Stream& stream);
  void close(Gate& gate);
  void open(Gate& gate);
  void kill(Fiber& culprit);
  void unpark(Fiber& fiber);
  void out_of_bounds(const void* address);
  Fiber& new_fiber();

  static Machine* running_;
  Host& host_;
  Rng rng_;
  Hostility hostility_;
  Memory memory_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::deque<Fiber> all_fibers_;
  std::vector<Fiber*> idle_fibers_;
  std::vector<Fiber*> ready_, asleep_;
  std::vector<Gate*> closed_;
  std::vector<Fiber*> parked_;  // by packet: the first that waits for its change
  Rate preempt_, stall_, close_block_, close_rank_, spin_, event_[kEvents];
  Fiber* current_ = nullptr;
  uint32_t serial_ = 0;
  uint64_t turn_ = 0;
  uint64_t clock_ = 0;
  uint32_t streams_left_;
  Failure failure_ = Failure::kNone;
  std::string text_;
};

}  // namespace sim
