# What is broken, how, and how it must show.

# One half: a fast peer overwrites what a slow reader has not read.
shunt_control_edit(one_half protocol.h
  [[kPushParts = 2;]]
  [[kPushParts = 1;]])
shunt_add_control(one_half)
shunt_control_fails(one_half wrong-sum --types sentinel --placement push --shots one)
shunt_control_fails(one_half hang --types flagged --placement push --shots one)

# No wipe: the data of two calls ago is taken for new.
shunt_control_edit(no_wipe all_reduce.cuh
  [[device::store(const_cast<unsigned char*>(source(p, index)), C::wiped(), Word::k8, false);]]
  [[]])
shunt_add_control(no_wipe)
shunt_control_fails(no_wipe wrong-sum --types sentinel --placement push --shots one)

# The counter comes with the parameters: a replay uses the half and the flag of the replay before.
shunt_control_edit(host_counter all_reduce.cuh
  [[claim.counter = device::exchange_word(&state->counter, kClaimed);]]
  [[(void)state;
  claim.counter = kFirstCounter + static_cast<uint32_t>(params.tag & 0xffffff);]])
shunt_add_control(host_counter)
shunt_control_fails(host_counter wrong-sum --program replay --shots one)

# The counter advances while threads of the lane have not begun: they take it for the call after.
shunt_control_edit(no_barrier all_reduce.cuh
  [[const bool stopped = device::barrier_any(reason != Stop::kNone);]]
  [[const bool stopped = reason != Stop::kNone;]])
shunt_add_control(no_barrier)
shunt_control_fails(no_barrier hang)

# Both protocols in one region: what a flagged call leaves, a sentinel call takes for data. (With this cap
# both regions have the same size.)
shunt_control_edit(one_region protocol.h
  [[return flagged_offset() + size_t{lanes} * flagged_packets * kPacketBytes;]]
  [[return flagged_offset();]])
shunt_add_control(one_region)
shunt_control_fails(one_region wrong-sum --cap 256 --placement push --shots one)

# Flagged regions never zeroed: after 2^32 calls a slot still holds the flag that is due again.
shunt_control_edit(no_zeroing all_reduce.cuh
  [[zero_flagged_region(params, counter, thread - data_threads);]]
  [[]])
shunt_add_control(no_zeroing)
shunt_control_fails(no_zeroing wrong-sum --program wrap --cap 2048 --types flagged --placement push --shots one)

# At the wrap one value is skipped, not a whole cycle: two calls in a row use one half.
shunt_control_edit(wrap_skips_one protocol.h
  [[return counter + 1 == 0 ? kFirstCounter : counter + 1;]]
  [[return counter + 1 == 0 ? 1 : counter + 1;]])
shunt_control_edit(wrap_skips_one protocol.h
  [[static_assert(part_of(next_counter(0xffffffffu), 2) != part_of(0xffffffffu, 2));]]
  [[]])
shunt_control_edit(wrap_skips_one protocol.h
  [[static_assert(part_of(next_counter(0xffffffffu), 4) == (part_of(0xffffffffu, 4) + 1) % 4);]]
  [[]])
shunt_add_control(wrap_skips_one)
shunt_control_fails(wrap_skips_one wrong-sum --program edge --types sentinel --seeds 40 --placement push
                    --shots one)
shunt_control_fails(wrap_skips_one hang --program edge --types flagged --seeds 40 --placement push --shots one)

# Nothing remembers that a sum went unfinished: the next call stores, and its peers sum garbage.
shunt_control_edit(no_sticky_stop all_reduce.cuh
  [[claim.stopped = device::load_word(stop_word(params));]]
  [[claim.stopped = 0;]])
shunt_add_control(no_sticky_stop)
shunt_control_fails(no_sticky_stop store-after-stop --program abort)
# The counter is read, not taken: two kernels in one lane use the same one.
shunt_control_edit(not_claimed all_reduce.cuh
  [[claim.counter = device::exchange_word(&state->counter, kClaimed);]]
  [[claim.counter = device::load_word(&state->counter);]])
shunt_add_control(not_claimed)
shunt_control_fails(not_claimed wrong-sum --program overlap --calls 2 --seeds 100)


# Each lane is free when it is taken, but two kernels take them in different orders: a lane adds another call's data.
shunt_control_edit(lanes_in_any_order all_reduce.cuh
  [[const bool alone = entered_alone(claim.entering, params.tag);]]
  [[const bool alone = true;]])
shunt_add_control(lanes_in_any_order)
shunt_control_fails(lanes_in_any_order wrong-sum --program overlap --calls 4 --max-lanes 2 --seeds 4000)

# Padding is all ones when it is sent: the reader waits for it for ever.
shunt_control_edit(padding_all_ones all_reduce.cuh
  [[    const Packet sent = C::with_flag(sent_, counter, header_);]]
  [[    Packet sent = C::with_flag(sent_, counter, header_);
    const uint32_t left = params_.bytes - (first_ + thread_) * C::kPayload;
    if (kProtocol == Protocol::kSentinel && !header_ && left < sizeof(sent)) {
      memset(reinterpret_cast<unsigned char*>(&sent) + left, 0xff, sizeof(sent) - left);
    }]])
shunt_add_control(padding_all_ones)
shunt_control_fails(padding_all_ones hang --shots one)

# Slots that are not the lane's own: a lane's slots move with the size of the call, so calls in a row use
# one slot from lanes whose counters differ.
shunt_control_edit(shared_slots all_reduce.cuh
  [[device::block() * params.lane_bytes + thread * kPacketBytes;]]
  [[device::block() * params.packets_per_lane * kPacketBytes + thread * kPacketBytes;]])
shunt_add_control(shared_slots)
shunt_control_fails(shared_slots wrong-sum --max-lanes 3 --cap 2048 --shots one)

# A packet is taken when its first word is there.
shunt_control_edit(one_word_sentinel codec.cuh
  [[return p.w[0] != kOnes && p.w[1] != kOnes && p.w[2] != kOnes && p.w[3] != kOnes;]]
  [[return p.w[0] != kOnes;]])
shunt_add_control(one_word_sentinel)
shunt_control_fails(one_word_sentinel wrong-sum --types float)

shunt_control_edit(one_word_flagged codec.cuh
  [[return p.w[1] == flag && p.w[3] == flag;]]
  [[return p.w[1] == flag;]])
shunt_add_control(one_word_flagged)
shunt_control_fails(one_word_flagged wrong-sum --types flagged)

shunt_control_edit(one_word_double codec.cuh
  [[return (p.w[0] & p.w[1]) != kOnes && (p.w[2] & p.w[3]) != kOnes;]]
  [[return (p.w[0] & p.w[1]) != kOnes;]])
shunt_add_control(one_word_double)
shunt_control_fails(one_word_double wrong-sum --types double)

# The protocol depends on how a rank's own buffer is aligned: ranks look for each other's packets in
# different places. (With this cap the flagged region has room for every call.)
shunt_control_edit(by_alignment host_kernels.cc
  [[all_reduce<kType, kProtocol, kVariant, kPeerBatch>(*static_cast<const ParamsOf<kVariant>*>(params));]]
  [[ParamsOf<kVariant> changed = *static_cast<const ParamsOf<kVariant>*>(params);
  if (kProtocol == Protocol::kSentinel && reinterpret_cast<uintptr_t>(changed.send) % 16 != 0) {
    changed.data_offset = changed.flagged_offset;
    changed.lane_bytes = changed.flagged_lane_bytes;
    changed.packets_per_lane *= 2;
    return all_reduce<kType, Protocol::kFlagged, kVariant, kPeerBatch>(changed);
  }
  all_reduce<kType, kProtocol, kVariant, kPeerBatch>(changed);]])
shunt_add_control(by_alignment)
shunt_control_fails(by_alignment hang --cap 256 --shots one)

# ---- outboxes (pull, host) -------------------------------------------------------------------------------
# The writer does not wipe: the data of four calls ago is taken for new.
shunt_control_edit(no_outbox_wipe all_reduce.cuh
  [[device::store(sentinel + p * kPacketBytes, Packet{{~0u, ~0u, ~0u, ~0u}}, Word::k8, true);]]
  [[(void)sentinel;]])
shunt_add_control(no_outbox_wipe)
shunt_control_fails(no_outbox_wipe wrong-sum --placement pull --types sentinel)

# Wiped is as much as this call has, not as much as the earlier call left.
shunt_control_edit(current_extent all_reduce.cuh
  [[const uint32_t left = device::load_word(&lane_state(params, device::block())->left[before]);]]
  [[const uint32_t left = params.packets_per_lane;]])
shunt_add_control(current_extent)
shunt_control_fails(current_extent wrong-sum --placement pull --types sentinel)

# Three parts: no kernel boundary lies between a wipe and the packet that lets a peer poll that part.
shunt_control_edit(three_parts protocol.h
  [[kSharedParts = 4;]]
  [[kSharedParts = 3;]])
shunt_control_edit(three_parts protocol.h
  [[return counter & (parts - 1);]]
  [[return counter % parts;]])
shunt_control_edit(three_parts protocol.h
  [[static_assert(part_of(next_counter(0xffffffffu), 4) == (part_of(0xffffffffu, 4) + 1) % 4);]]
  [[]])
shunt_control_edit(three_parts all_reduce.cuh
  [[part_of(counter + 2, kSharedParts);]]
  [[part_of(counter + 1, kSharedParts);]])
shunt_add_control(three_parts)
shunt_control_fails(three_parts wrong-sum --placement pull --types sentinel --calls 80)

# Flagged regions of an outbox never zeroed.
shunt_control_edit(no_outbox_zeroing all_reduce.cuh
  [[if (!zeroes_flags(counter, kSharedParts)) return;]]
  [[return;]])
shunt_add_control(no_outbox_zeroing)
shunt_control_fails(no_outbox_zeroing wrong-sum --program wrap --cap 2048 --types flagged --placement pull
                    --shots one)

# ---- two shots -------------------------------------------------------------------------------------------
# A rank waits for what it adds up before it has sent what others add up.
shunt_control_edit(owner_first all_reduce.cuh
  [[      if (owner != params_.rank) {
        store(p, has_outbox(params_) ? 0 : peer_index(params_.rank, owner), sent);
      }]]
  [[]])
shunt_control_edit(owner_first all_reduce.cuh
  [[      Packet sum = load(p, index);]]
  [[      store(p, has_outbox(params_) ? 0 : index, outgoing(p, wait));
      Packet sum = load(p, index);]])
shunt_add_control(owner_first)
shunt_control_fails(owner_first hang --shots two --cap 5120 --max-lanes 1)

# The owner's sum goes where its own contribution would: to nobody.
shunt_control_edit(no_second_shot all_reduce.cuh
  [[if (kVariant != Variant::kFast && to_peers) send(p, C::encode(total, wait.counter()));]]
  [[(void)to_peers;]])
shunt_add_control(no_second_shot)
shunt_control_fails(no_second_shot hang --shots two)

# ---- several messages in one kernel -------------------------------------------------------------------------
# Sizes are not compared: a rank with the same messages in another order adds up what does not belong together.
shunt_control_edit(messages_not_compared launch_plan.cc
  [[digest = add_to_digest(digest, params.messages[i].bytes);]]
  [[digest = 0;]])
shunt_add_control(messages_not_compared)
shunt_control_fails(messages_not_compared wrong-sum --program mismatch --calls 10 --seeds 40 --ranks 2)

# A message begins in the packet that the one before ends in: both write that packet.
shunt_control_edit(messages_share_packets launch_plan.cc
  [[params.bytes += packets_for(protocol, bytes) * payload;]]
  [[params.bytes += bytes / payload * payload;]])
shunt_add_control(messages_share_packets)
shunt_control_fails(messages_share_packets wrong-sum --ranks 2)
