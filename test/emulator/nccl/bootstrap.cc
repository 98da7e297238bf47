#include "test/emulator/nccl/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/point_to_point.h"

namespace emu_nccl {
namespace {

struct SplitNote {
  int color;
  int key;
  SegmentName name;
};
static_assert(sizeof(SplitNote) <= kNoteBytes);

ncclResult_t aborted() { return refuse(ncclInternalError, "aborted while ranks were joining"); }

ncclResult_t new_segment(SegmentName* name) {
  if (make_segment(name)) return ncclSuccess;
  return refuse(ncclSystemError, std::string("memfd: ") + std::strerror(errno));
}

ncclResult_t fill_card(ncclComm* comm, RankCard& card) {
  card.pid = ::getpid();
  card.device = comm->device;
  CUuuid uuid;
  EMU_NCCL_TRY(check(cuDeviceGetUuid(&uuid, comm->device), "cuDeviceGetUuid"));
  std::memcpy(card.uuid, uuid.bytes, sizeof(card.uuid));
  int major = 0, minor = 0;
  EMU_NCCL_TRY(check(
      cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, comm->device),
      "cuDeviceGetAttribute"));
  EMU_NCCL_TRY(check(
      cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, comm->device),
      "cuDeviceGetAttribute"));
  card.capability = major * 10 + minor;
  return ncclSuccess;
}

// Every rank sees the same cards, so all come to the same result.
ncclResult_t judge_cards(ncclComm* comm, SegmentHeader& header) {
  comm->lowest_capability = header.cards[0].capability;
  for (int a = 0; a < comm->ranks; ++a) {
    comm->lowest_capability = std::min(comm->lowest_capability, header.cards[a].capability);
    for (int b = a + 1; b < comm->ranks; ++b) {
      if (std::memcmp(header.cards[a].uuid, header.cards[b].uuid, sizeof(header.cards[a].uuid)) ==
          0) {
        return refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(a) +
                                            " and rank " + std::to_string(b) +
                                            " both on the same CUDA device");
      }
    }
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t join(ncclComm* comm, const SegmentName& name, int ranks, int rank) {
  ContextGuard guard(comm->context);
  Core& core = *comm->core;
  comm->rank = rank;
  comm->ranks = ranks;
  core.id.store(name.short_id());
  const int fd = open_segment(name);
  if (fd < 0) {
    return refuse(ncclSystemError,
                  "the unique id is unknown: its maker has exited, or all its ranks have joined");
  }
  const bool mapped = core.segment.map(fd, ranks, rank);
  ::close(fd);
  if (!mapped) return refuse(ncclSystemError, std::string("mmap: ") + std::strerror(errno));

  SegmentHeader& header = core.segment.header();
  uint32_t expected = 0;
  if (!header.ranks.compare_exchange_strong(expected, static_cast<uint32_t>(ranks)) &&
      expected != static_cast<uint32_t>(ranks)) {
    shout("rank " + std::to_string(rank) + " joins a communicator of " + std::to_string(ranks) +
          ", others of " + std::to_string(expected));
    return refuse(ncclInvalidArgument, "ranks disagree about the number of ranks");
  }
  RankCard& card = header.cards[rank];
  uint32_t absent = 0;
  if (!card.present.compare_exchange_strong(absent, 1)) {
    shout("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " joins twice");
    return refuse(ncclInvalidUsage, "rank has already joined");
  }
  EMU_NCCL_TRY(fill_card(comm, card));
  header.joined.fetch_add(1);
  core.segment.ring_everyone();
  const auto complete = [&] { return header.joined.load() == static_cast<uint32_t>(ranks); };
  if (!core.segment.wait_until(core.halt_everything, complete)) return aborted();
  drop_segment(name);
  EMU_NCCL_TRY(judge_cards(comm, header));
  return comm->order.create();
}

// Everybody offers a segment; the one of each color's first rank is taken.
ncclResult_t join_split(ncclComm* parent, ncclComm* child, int color, int key) {
  Core& core = *parent->core;
  std::vector<SplitNote> notes(static_cast<size_t>(parent->ranks));
  SplitNote& mine = notes[static_cast<size_t>(parent->rank)];
  mine.color = color;
  mine.key = key;
  if (child) EMU_NCCL_TRY(new_segment(&mine.name));
  for (int r = 0; r < parent->ranks; ++r)
    if (r != parent->rank && !send_note(core, r, &mine, sizeof(mine))) return aborted();
  for (int r = 0; r < parent->ranks; ++r)
    if (r != parent->rank && !receive_note(core, r, &notes[static_cast<size_t>(r)], sizeof(mine)))
      return aborted();
  if (!child) return ncclSuccess;

  std::vector<int> members;
  for (int r = 0; r < parent->ranks; ++r)
    if (notes[static_cast<size_t>(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return notes[static_cast<size_t>(a)].key < notes[static_cast<size_t>(b)].key;
  });
  if (members.front() != parent->rank) drop_segment(mine.name);
  const auto place = std::find(members.begin(), members.end(), parent->rank) - members.begin();
  return join(child, notes[static_cast<size_t>(members.front())].name,
              static_cast<int>(members.size()), static_cast<int>(place));
}

ncclResult_t join_grown(ncclComm* parent, ncclComm* child, int ranks, const SegmentName* id) {
  struct Note {
    int has;
    SegmentName name;
  };
  Core& core = *parent->core;
  Note found{id != nullptr, id != nullptr ? *id : SegmentName{}};
  const Note mine = found;
  for (int r = 0; r < parent->ranks; ++r)
    if (r != parent->rank && !send_note(core, r, &mine, sizeof(mine))) return aborted();
  for (int r = 0; r < parent->ranks; ++r) {
    Note note{};
    if (r != parent->rank && !receive_note(core, r, &note, sizeof(note))) return aborted();
    if (note.has != 0) found = note;
  }
  if (found.has == 0) return refuse(ncclInvalidArgument, "no rank has the unique id");
  return join(child, found.name, ranks, parent->rank);
}

// Excluded ranks take no part, so the first survivor alone makes the segment.
ncclResult_t join_shrunk(ncclComm* parent, ncclComm* child, const std::vector<int>& excluded) {
  Core& core = *parent->core;
  std::vector<int> members;
  for (int r = 0; r < parent->ranks; ++r)
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) members.push_back(r);
  SegmentName name{};
  if (members.front() == parent->rank) {
    EMU_NCCL_TRY(new_segment(&name));
    for (size_t i = 1; i < members.size(); ++i)
      if (!send_note(core, members[i], &name, sizeof(name))) return aborted();
  } else if (!receive_note(core, members.front(), &name, sizeof(name))) {
    return aborted();
  }
  const auto place = std::find(members.begin(), members.end(), parent->rank) - members.begin();
  return join(child, name, static_cast<int>(members.size()), static_cast<int>(place));
}

}  // namespace emu_nccl
