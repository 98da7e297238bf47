// NCCL's table of expected times, one for each algorithm and protocol, and what may be done to it.
#pragma once

namespace shunt::tuner {

// What a profile asks for. Empty: no opinion.
struct Wish {
  int algorithm = -1;
  int protocol = -1;
  int channels = 0;  // 0: NCCL's own number
  bool empty() const { return algorithm < 0; }
  bool operator==(const Wish&) const = default;
};

// A view of float[algorithms][protocols].
class CostTable {
 public:
  CostTable(float* costs, int algorithms, int protocols);

  int algorithms() const { return algorithms_; }  // 0 where NCCL passed nonsense
  int protocols() const { return protocols_; }
  bool holds(int algorithm, int protocol) const;
  float cost(int algorithm, int protocol) const { return costs_[index(algorithm, protocol)]; }
  // False also for what lies outside the table.
  bool allows(int algorithm, int protocol) const;
  // What NCCL takes as it stands: the first of the smallest costs.
  Wish cheapest() const;

  // Makes the entry the only cheapest one. Others change only if they cost nothing already.
  void prefer(int algorithm, int protocol);

 private:
  int index(int algorithm, int protocol) const { return algorithm * protocols_ + protocol; }

  float* costs_;
  int algorithms_;
  int protocols_;
};

}  // namespace shunt::tuner
