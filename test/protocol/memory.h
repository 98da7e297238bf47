// Memory that is worse than any real one: a store is held back and lands word by word, in any
// order, as late as the end of its kernel. A thread sees its own stores, and those to one address
// stay in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "test/protocol/hostility.h"

namespace sim {

inline constexpr uint32_t kNobody = 0xffffffffu;

class Memory {
 public:
  class Listener {
   public:
    virtual void changed(uint32_t packet) = 0;

   protected:
    ~Listener() = default;
  };
  // What a kernel has stored and what has not landed, oldest first.
  struct Outstanding {
    uint32_t first = kNobody;
    uint32_t last = kNobody;
  };

  Memory(size_t bytes, const Hostility& hostility, Rng& rng, Listener& listener);

  unsigned char* base() { return bytes_.begin; }
  size_t packets() const { return newest_.size(); }
  bool contains(const void* address, size_t size) const;
  uint32_t packet_of(const void* address) const;

  // One 16-byte store whose words of `grain` bytes (4 or 8) land one by one.
  void store_packet(Outstanding& kernel, uint32_t thread, void* address, uint64_t low,
                    uint64_t high, uint32_t grain);
  void store_word(Outstanding& kernel, uint32_t thread, uint32_t* address, uint32_t value);
  // What `thread` sees.
  void load_packet(uint32_t thread, uint32_t packet, uint64_t (&words)[2]) const;
  uint32_t load_word(uint32_t thread, const uint32_t* address) const;

  // Tells the listener once about the next change of `packet`.
  void watch(uint32_t packet) { watched_[packet] = 1; }

  // One random late word that nobody holds lands; one that is held lands. False: there is none.
  bool land_one() { return land_from(drifting_); }
  bool release_one() { return land_from(held_); }
  // The boundary of a kernel: all lands.
  void flush(Outstanding& kernel);
  // All that one thread has stored lands: what a fence waits for.
  void flush_thread(Outstanding& kernel, uint32_t thread);
  // The end of a context: some of it lands, some never.
  void abandon(Outstanding& kernel);

  size_t late_words() const { return drifting_.size() + held_.size(); }

 private:
  // One or two neighbouring 4-byte words of a packet.
  struct Late {
    uint32_t packet;
    uint32_t thread;
    uint64_t value;
    uint8_t first_word;
    uint8_t words;
    bool held;
    uint32_t pool_index;
    uint32_t older_in_packet;
    uint32_t previous, next;  // of the kernel
    Outstanding* kernel;
  };

  void store(Outstanding& kernel, uint32_t thread, uint32_t packet, uint32_t first_word,
             uint32_t words, uint64_t value, bool late);
  void write(uint32_t packet, uint32_t first_word, uint32_t words, uint64_t value);
  void overlay(uint32_t thread, uint32_t packet, uint32_t (&words)[4]) const;
  bool land_from(std::vector<uint32_t>& pool);
  uint32_t oldest_like(uint32_t index) const;
  void land(uint32_t index);
  void forget(uint32_t index);

  const Hostility& hostility_;
  Rng& rng_;
  Listener& listener_;
  struct alignas(128) Line {  // what lies in it may ask for so much
    unsigned char bytes[128];
  };
  std::vector<Line> storage_;
  struct {
    unsigned char* begin;
    size_t size;
  } bytes_;
  std::vector<uint32_t> newest_;  // late words of each packet, newest first
  std::vector<uint8_t> watched_;
  std::vector<Late> late_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> drifting_, held_;
};

}  // namespace sim
