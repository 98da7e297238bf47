// A machine that goes down while GPUs are probed is not brought down again by the next job: the marker that is
// there while the probe runs (shim/engine/probe_marker.h), in whole jobs.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;
namespace fs = std::filesystem;

namespace {

constexpr const char* kBoots[] = {"6dd4fd3a-0f0e-4b9c-8f5e-5a4d6f0f6b01", "6dd4fd3a-0f0e-4b9c-8f5e-5a4d6f0f6b02"};

// A cache of its own, and a machine that has been booted so often.
class Machine {
 public:
  Machine() : boot_id_("shunt-marker-boot"), cache_("shunt-marker-cache") { boot(0); }
  ~Machine() { fs::remove_all(cache_.path()); }
  void boot(int number) const { std::ofstream(boot_id_.path()) << kBoots[number] << "\n"; }
  fs::path folder() const { return fs::path(cache_.path()) / "nccl-shunt"; }
  std::vector<std::string> markers() const {
    std::vector<std::string> found;
    if (!fs::exists(folder())) return found;
    for (const auto& entry : fs::directory_iterator(folder())) {
      CHECK(entry.path().filename().string().rfind("probing-", 0) == 0);
      found.push_back(entry.path());
    }
    return found;
  }
  JobOptions options(Environment more = {}, int ranks = 2) const {
    more.insert({{"HOSTS_BOOT_ID", boot_id_.path()},
                 {"XDG_CACHE_HOME", cache_.path()},
                 {"LD_PRELOAD", std::string(CASES_PRELOAD) + ":" + CASES_BOOT_ID}});
    JobOptions all;
    all.ranks = ranks;
    all.environment = std::move(more);
    return all;
  }
  // Both ranks end in the middle of a probe, as by a reset. A lost packet makes that last a second and a half.
  void die_probing() const {
    Job job("marker", options({{"EMU_DROP", "0>1"}}));
    const auto probing = [&] {
      const std::vector<std::string> found = markers();
      return found.size() == 2 && std::all_of(found.begin(), found.end(), [](const std::string& file) {
               return read_file(file).find("\nend\n") != std::string::npos;
             });
    };
    wait_until(probing, "both markers", 20);
    for (int rank = 0; rank < 2; ++rank) job.signal(rank);
    REQUIRE(job.wait_all(10));
    REQUIRE(job.status(0) == 128 + SIGKILL);
  }

 private:
  TemporaryFile boot_id_, cache_;
};

std::string output_of(const JobOptions& options) {
  Job job("marker", options);
  REQUIRE(job.trouble(40) == "");
  return job.output();
}

size_t on(const std::string& output, const char* placement) {
  return lines_of(output, "info", {"ranks: on, ", placement}).size();
}

}  // namespace

TEST_CASE("job: marker", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  ENSURE(all_reduce_once(rank, comm, stream, 1000, 1) == 0);
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_01_not_probed_again_after_a_reset") {
  const Machine machine;
  machine.die_probing();
  const std::vector<std::string> left = machine.markers();
  REQUIRE(left.size() == 2);
  struct stat facts{};
  REQUIRE(stat(left[0].c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  REQUIRE(stat(machine.folder().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0700);
  CHECK(read_file(left[0]).find(kBoots[0]) != std::string::npos);

  // The processes were killed, the machine went on: nothing is refused, and the files are gone.
  std::string output = output_of(machine.options());
  CHECK(on(output, "push") == 1);
  CHECK(lines_of(output, "warning").empty());
  CHECK(machine.markers().empty());

  machine.die_probing();
  machine.boot(1);
  const std::vector<std::string> files = machine.markers();
  REQUIRE(files.size() == 2);
  const auto said = [](const std::string& text) { return lines_of(text, "warning", {"the machine went down"}); };
  output = output_of(machine.options());
  INFO(output);
  CHECK(on(output, "host") == 1);
  CHECK(total(output, "shunted") == 2);
  REQUIRE(said(output).size() == 1);
  for (const std::string& word : {std::string("(push)"), std::string("delete"), files[0], files[1]}) {
    CHECK(said(output)[0].find(word) != std::string::npos);
  }
  CHECK(lines_of(output, "warning").size() == 1);
  CHECK(machine.markers().size() == 2);

  // One rank's no is everybody's: rank 0 has another cache.
  JobOptions one = machine.options();
  const TemporaryFile other("shunt-marker-other");
  one.of_rank = [&](int rank) {
    return rank == 0 ? Environment{{"XDG_CACHE_HOME", other.path()}} : Environment{};
  };
  {
    Job job("marker", one);
    REQUIRE(job.trouble(40) == "");
    CHECK(on(job.output(), "host") == 1);
    CHECK(said(job.output(0)).empty());
    CHECK(said(job.output(1)).size() == 1);
  }
  fs::remove_all(other.path());

  output = output_of(machine.options({{"SHUNT_PLACEMENT", "push"}}));
  CHECK(lines_of(output, "info", {"off: the machine went down while push was probed"}).size() == 1);
  CHECK(total(output, "forwarded") == 2);
  // Other GPUs were not probed then; of four, two were.
  output = output_of(machine.options({{"EMU_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "1,2,3"}}));
  CHECK(on(output, "push") == 1);
  CHECK(said(output).empty());
  output = output_of(machine.options({}, 4));
  CHECK(on(output, "host") == 1);
  CHECK(said(output).size() == 1);

  for (const std::string& file : files) fs::remove(file);
  output = output_of(machine.options());
  CHECK(on(output, "push") == 1);
  CHECK(lines_of(output, "warning").empty());
  CHECK(machine.markers().empty());
}

// Nowhere to put a marker is no reason to say or refuse anything.
TEST_CASE("case_01_no_cache_no_marker") {
  const Machine machine;
  const TemporaryFile file("shunt-marker-file");
  std::ofstream(file.path()) << "no folder\n";
  const Environment none[] = {{{"XDG_CACHE_HOME", "(unset)"}, {"HOME", "(unset)"}},
                              {{"XDG_CACHE_HOME", ""}, {"HOME", "relative"}},
                              {{"XDG_CACHE_HOME", "/proc"}},  // read-only, even for root
                              {{"XDG_CACHE_HOME", file.path()}}};
  for (const Environment& cache : none) {
    const std::string output = output_of(machine.options(cache));
    INFO(output);
    CHECK(on(output, "push") == 1);
    CHECK(lines_of(output, "warning").empty());
    CHECK(lines_of(output, "error").empty());
  }
  CHECK(read_file(file.path()) == "no folder\n");
}
