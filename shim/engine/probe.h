// Proof that the mailboxes work: the product's own kernels, its launch shapes, every ordered pair at once,
// changing data checked by the reader, eager and replayed from a graph, from one packet to the cap.
#pragma once

#include <span>
#include <string>

#include "shim/engine/gather.h"

namespace shunt {

inline constexpr double kProbeSeconds = 1.5;  // one wait in the probe

// Fills answers[i] for locals[i]. Every local runs every step, whatever failed before, since its peers
// wait for it. Ends within about two seconds. `calls` counts the calls that were recorded.
void probe(std::span<LocalRank> locals, const Verdict& verdict, std::span<Answer> answers,
           uint32_t& calls);

// "what" into an answer that says no.
void refuse(Answer& answer, const std::string& why, int peer = -1);

}  // namespace shunt
