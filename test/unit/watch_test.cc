// What the watch makes of the reports of waiting kernels, with a board and a clock of the test's own.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <memory>
#include <thread>

#include "shim/engine/log.h"
#include "shim/engine/watch.h"
#include "test/unit/log_test.h"

namespace shunt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kLook = milliseconds(50);

// A communicator as rank 0 of a few, its board, and a clock that the test moves.
struct Scene {
  explicit Scene(std::optional<double> timeout = {},
                 std::unique_ptr<PeerProcesses> peers = std::make_unique<PeerProcesses>())
      : watch("c", board.get(), 0, std::move(peers), timeout) {
    log_configure(LogLevel::info, "");
  }

  // As a waiting kernel of lane `lane` does, in its call number `counter`.
  void kernel_reports(uint32_t counter, uint32_t peer = 1, uint32_t lane = 0) {
    WaitReport& slot = board->waits[lane];
    slot.tag = pack({7, 4096, DataType::kFloat32, ReduceOp::kSum});
    slot.counter = counter;
    __atomic_store_n(&slot.peer_and_one, peer + 1, __ATOMIC_RELEASE);
  }
  // `every`: how often the kernel reports; looks every 50 ms as the watchdog does.
  void wait_for(Clock::duration time, Clock::duration every, uint32_t counter) {
    for (const auto end = now + time; now < end; now += kLook) {
      if (now >= next_report) {
        kernel_reports(counter);
        next_report = now + every;
      }
      watch.look(now);
    }
  }
  uint32_t order() const { return board->order; }

  std::unique_ptr<HostBoard> board = std::make_unique<HostBoard>();
  Watch watch;
  Clock::time_point now = Clock::now();
  Clock::time_point next_report = now;
};

// The lines that `work` makes, without what is before the level.
std::vector<std::string> lines(const std::function<void()>& work) {
  const Outcome outcome = in_child(work);
  REQUIRE(outcome.status == 0);
  std::vector<std::string> found;
  for (const std::string& line : lines_of(outcome.output)) {
    found.push_back(line.substr(prefix(outcome.pid).size()));
  }
  return found;
}

const std::string kLine = "error: communicator c: rank 0 waits for rank 1 in call 7 (4096 bytes, "
                          "float sum) for 60 s (1 lane)";

TEST_CASE("a wait of a minute is reported, once") {
  CHECK(lines([] { Scene().wait_for(seconds(59), milliseconds(50), 5); }).empty());
  CHECK(lines([] { Scene().wait_for(seconds(300), milliseconds(50), 5); }) ==
        std::vector<std::string>{kLine});
}

// The GPU is shared, or so loaded that its kernel polls seldom.
TEST_CASE("a wait is reported however seldom the kernel says so") {
  CHECK(lines([] { Scene().wait_for(seconds(100), milliseconds(2500), 5); }).size() == 1);
  CHECK(lines([] { Scene().wait_for(seconds(100), seconds(20), 5); }).size() == 1);
  CHECK(lines([] { Scene(10).wait_for(seconds(13), seconds(3), 5); }).size() == 1);
}

TEST_CASE("the last calls stand beside a report") {
  const std::vector<std::string> said = lines([] {
    Scene scene;
    const auto calls = std::make_shared<CallRing>();
    scene.watch.keep_calls(calls);
    calls->add(4096, 7, 0, true);
    calls->add(1 << 20, 7, 0, false);
    scene.wait_for(seconds(300), milliseconds(50), 5);
  });
  CHECK(said == std::vector<std::string>{
                    kLine,
                    "error: communicator c: rank 0: 2 all-reduces, the last ones: 1: 4096 float sum "
                    "shunted as 1, 2: 1048576 float sum forwarded"});
}

TEST_CASE("a signal has the last calls logged, unless the program wants it") {
  for (const bool own : {false, true}) {
    const std::vector<std::string> said = lines([&] {
      if (own) signal(SIGUSR1, [](int) {});
      auto board = std::make_unique<HostBoard>();
      const auto watch = std::make_shared<Watch>("c", board.get(), 3, std::make_unique<PeerProcesses>(),
                                                 std::nullopt);
      watch->keep_calls(std::make_shared<CallRing>());
      log_configure(LogLevel::warning, "");
      Watchdog::get().dump_on(SIGUSR1);
      Watchdog::get().add(watch);
      raise(SIGUSR1);
      std::this_thread::sleep_for(milliseconds(300));
      Watchdog::get().remove(watch.get());
      while (watch.use_count() > 1) std::this_thread::yield();
    });
    REQUIRE(said.size() == 1);
    CHECK(said[0] == (own ? "warning: signal 10 is handled by the program or ignored: it does not show the "
                            "last calls"
                          : "error: communicator c: rank 3: 0 all-reduces, the last ones: "));
  }
}

// Its mask: a program's signals are handled in the program's threads.
TEST_CASE("the background thread takes no signals") {
  CHECK(lines([] {
          auto* const board = new HostBoard{};  // for good, as every board that was watched
          const auto watch = std::make_shared<Watch>("c", board, 0, std::make_unique<PeerProcesses>(),
                                                     std::nullopt);
          Watchdog::get().add(watch);
          sigset_t usual, mine;
          pthread_sigmask(SIG_BLOCK, nullptr, &usual);
          if (sigismember(&usual, SIGUSR2) != 0) _exit(1);
          // Only that thread could take it.
          sigemptyset(&mine);
          sigaddset(&mine, SIGUSR2);
          pthread_sigmask(SIG_BLOCK, &mine, nullptr);
          kill(getpid(), SIGUSR2);
          std::this_thread::sleep_for(milliseconds(100));
          sigpending(&usual);
          if (sigismember(&usual, SIGUSR2) != 1) _exit(2);
        }).empty());
}

TEST_CASE("waits that end are not reported") {
  CHECK(lines([] {
          Scene scene;
          for (uint32_t call = 1; call <= 300; ++call) {
            scene.wait_for(milliseconds(900), milliseconds(50), call);
          }
        }).empty());
  CHECK(lines([] {  // up to the last report only
          Scene scene;
          scene.wait_for(seconds(59), milliseconds(50), 5);
          scene.wait_for(seconds(100), seconds(1000), 5);
        }).empty());
}

TEST_CASE("who is no longer waited for is not named") {
  CHECK(lines([] {
          Scene scene;
          scene.kernel_reports(5, 2, 3);  // lane 3 waited for rank 2, shortly
          scene.wait_for(seconds(61), milliseconds(50), 5);
        }) == std::vector<std::string>{kLine});
}

TEST_CASE("while the process was stopped no time passes, and none is lost") {
  CHECK(lines([] {
          Scene scene;
          scene.wait_for(seconds(30), milliseconds(50), 5);
          scene.now += seconds(1000);
          scene.wait_for(seconds(29), milliseconds(50), 5);
        }).empty());
  CHECK(lines([] {
          Scene scene;
          for (int stop = 0; stop < 7; ++stop) {
            scene.wait_for(seconds(10), milliseconds(50), 5);
            scene.now += seconds(3);
          }
        }) == std::vector<std::string>{kLine});
}

TEST_CASE("SHUNT_TIMEOUT stops the kernels") {
  CHECK(lines([] {
          Scene scene(2.0);
          scene.wait_for(seconds(1), milliseconds(50), 5);
          if (scene.watch.failed() || scene.order() != static_cast<uint32_t>(HostOrder::kRun)) {
            _exit(1);
          }
          scene.wait_for(seconds(2), milliseconds(50), 5);
          if (!scene.watch.failed() || scene.order() != static_cast<uint32_t>(HostOrder::kTrap)) {
            _exit(2);
          }
        }).size() == 1);
}

// Rank 1 is process `pid`.
std::unique_ptr<PeerProcesses> peer_process(pid_t pid) {
  Facts facts[2] = {};
  facts[0].process_nonce = 1;
  facts[1].process_nonce = 2;
  facts[0].pid_namespace = facts[1].pid_namespace = 1;
  facts[1].pid = pid;
  return std::make_unique<PeerProcesses>(facts, 0u);
}

// A child that lives until it is killed.
pid_t start_peer() {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // else it holds the pipe of a test that fails
    for (;;) pause();
  }
  return pid;
}

void end_peer(pid_t pid) {
  kill(pid, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
}

TEST_CASE("a dead peer is named and its waiters stop after the grace") {
  const std::vector<std::string> said = lines([] {
    const pid_t pid = start_peer();
    Scene scene({}, peer_process(pid));
    scene.wait_for(seconds(1), milliseconds(50), 5);
    if (scene.watch.failed()) _exit(1);
    end_peer(pid);
    scene.wait_for(seconds(9), milliseconds(50), 5);
    if (!scene.watch.failed() || scene.order() != static_cast<uint32_t>(HostOrder::kRun)) _exit(2);
    scene.wait_for(seconds(2), milliseconds(50), 5);
    if (scene.order() != static_cast<uint32_t>(HostOrder::kTrap)) _exit(3);
  });
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("rank 0 waits for rank 1, whose process ") != std::string::npos);
}

// The last report of a wait that the peer's data ended is seen after the peer has gone.
TEST_CASE("a peer that finished and went is no fault") {
  CHECK(lines([] {
          const pid_t pid = start_peer();
          Scene scene({}, peer_process(pid));
          scene.wait_for(seconds(1), milliseconds(50), 5);
          end_peer(pid);
          scene.kernel_reports(5);
          scene.wait_for(seconds(100), seconds(1000), 5);
          if (scene.watch.failed()) _exit(1);
        }).empty());
}

// A program that has used up its descriptors: no pidfd, and at first not even a look into /proc.
void without_descriptors(const std::function<void()>& work) {
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  const rlimit none{3, old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  work();
  setrlimit(RLIMIT_NOFILE, &old);
}

#ifndef __SANITIZE_ADDRESS__  // UBSan's own look at an object's type wants a pipe
TEST_CASE("a dead peer is noticed without descriptors") {
  for (const bool stays : {false, true}) {  // are there none later either?
    for (const bool reaped : {false, true}) {
      INFO(stays << reaped);
      const std::vector<std::string> said = lines([&] {
        const pid_t pid = start_peer();
        std::unique_ptr<PeerProcesses> peers;
        without_descriptors([&] { peers = peer_process(pid); });
        const auto dead = [&] {
          bool is = false;
          if (stays) without_descriptors([&] { is = peers->dead_ranks() != 0; });
          return stays ? is : peers->dead_ranks() != 0;
        };
        if (dead()) _exit(1);
        end_peer(pid);
        if (reaped) waitpid(pid, nullptr, 0);
        if (!dead()) _exit(2);
      });
      REQUIRE(said.size() == 1);
      CHECK(said[0].starts_with("warning: no descriptors for the processes of other ranks"));
    }
  }
}
#endif

TEST_CASE("no process is watched where /proc does not tell the pid namespace") {
  CHECK(lines([] {
          const pid_t pid = start_peer();
          end_peer(pid);
          Facts facts[2] = {};
          facts[0].process_nonce = 1;
          facts[1].process_nonce = 2;
          facts[1].pid = pid;
          if (PeerProcesses(facts, 0u).dead_ranks() != 0) _exit(1);
        }).empty());
}

// The watchdog's own thread, makers and abandoners of communicators and callers that look by themselves.
TEST_CASE("watches come and go while they are looked at") {
  CHECK(lines([] {
          std::vector<std::thread> threads;
          for (int t = 0; t < 4; ++t) {
            threads.emplace_back([] {
              for (int i = 0; i < 300; ++i) {
                auto board = std::make_unique<HostBoard>();
                const auto watch = std::make_shared<Watch>(
                    "c", board.get(), 0, std::make_unique<PeerProcesses>(), std::nullopt);
                Watchdog::get().add(watch);
                board->waits[1].counter = 1;
                __atomic_store_n(&board->waits[1].peer_and_one, 2u, __ATOMIC_RELEASE);
                watch->look(Clock::now());
                watch->order(HostOrder::kAbort);
                Watchdog::get().look_at_all();
                Watchdog::get().remove(watch.get());
                while (watch.use_count() > 1) std::this_thread::yield();  // looked at right now
              }
            });
          }
          for (std::thread& thread : threads) thread.join();
        }).empty());
}

}  // namespace
}  // namespace shunt
