// Groups of beams whose hypotheses differ (Vijayakumar et al. 2018), as in fairseq's
// `DiverseBeamSearch`: beams g, g + G, ... are group g.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/native/vector.h"

namespace native {

// A token that may follow a beam.
struct Continuation {
  float total;  // log-probabilities, cumulated
  int64_t token, row;
};

// Better ones first; of equal ones, that of the lower beam and token.
static inline bool operator<(const Continuation& a, const Continuation& b) {
  if (a.total != b.total) return a.total > b.total;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

// A step of a sentence. strength: the penalty for a symbol that an earlier group chose. impossible:
// a symbol that is never chosen. row: of the first beam.
struct GroupStep {
  float strength;
  int64_t impossible, step, row;
};

// What a sentence's groups did.
class GroupState {
 public:
  std::vector<char> ignored;  // by rank among the candidates; see BeamWorker::ignored

  void begin(int beams, int groups) {
    ignored.assign(beams, 0);
    groups_ = groups;
    overlap_.assign(size_t(groups) * groups, 0);
  }

  // The best continuations of each group, in turn. found: receives B of them, all first ones before
  // all second ones. best(beam): continuations of a beam; in the first step all beams are the same.
  // before(continuation): the total of the beam that it continues.
  template <class Best, class Before>
  void choose(const GroupStep& step, std::vector<Continuation>& found, Best&& best,
              Before&& before) {
    const int beams = int(ignored.size()), size = beams / groups_;
    found.assign(beams, {MINUS_INFINITY, step.impossible, step.row});
    for (int group = 0; group < groups_; ++group) {
      candidates_.clear();
      for (int beam = group; beam < (step.step == 0 ? group + 1 : beams); beam += groups_)
        for (Continuation each : best(beam)) {
          if (each.total == MINUS_INFINITY) continue;
          each.total -= step.strength * penalty(found, group, each.token);
          each.total += before(each);
          candidates_.push_back(each);
        }
      const int most = std::min(size, int(candidates_.size()));
      std::partial_sort(candidates_.begin(), candidates_.begin() + most, candidates_.end());
      for (int rank = 0; rank < most; ++rank) found[rank * groups_ + group] = candidates_[rank];
    }
    note(found);
  }

 private:
  int groups_ = 0;
  std::vector<float> overlap_;  // (G, G) ranks at which two groups chose the same symbol so far
  std::vector<Continuation> candidates_;

  // For a symbol, by how often earlier groups chose it; they count more that agreed more often.
  float penalty(const std::vector<Continuation>& found, int group, int64_t token) const {
    float sum = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const int other = int(i) % groups_;
      if (other < group && found[i].token == token) sum += 1 + overlap_[group * groups_ + other];
    }
    return sum;
  }

  void note(const std::vector<Continuation>& found) {
    for (size_t first = 0; first < found.size(); first += groups_)
      for (int group = 0; group < groups_; ++group)
        for (int other = 0; other < groups_; ++other)
          overlap_[group * groups_ + other] +=
              found[first + group].token == found[first + other].token;
  }
};

}  // namespace native
