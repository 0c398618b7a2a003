// Rough scores of all symbols, by a product of low rank, and exact ones of those that are likely
// (Shim et al., 2017). For drafts.
#pragma once

#include <algorithm>

#include "vocab/best.h"
#include "vocab/exact_scores.h"

namespace native {

// What a team computes in steps, after each of which it waits.
class LowRankSearch {
 public:
  // To be called before the threads of the team call the others.
  void prepare(const LowRankCall& call, int rows, int threads) {
    call_ = &call;
    grow(reduced_, size_t(rows) * call.down->outputs);
    grow(greatest_, size_t(rows) * threads);
    scratch_.resize(std::max(call.down->scratch_size(rows), call.up->scratch_size(rows)));
  }

  // in: (rows, dim).
  void reduce(const Team& team, const float* in, int rows) {
    const Linear& down = *call_->down;
    down.run(team, in, down.inputs, rows, scratch_.data(),
             {reduced_.data(), size_t(down.outputs), nullptr, Activation::none});
  }

  // Scores this thread's share of the symbols roughly. out: (rows, vocabulary).
  void score(const Team& team, int rows, float* out) {
    const Linear& up = *call_->up;
    up.run(team, reduced_.data(), up.inputs, rows, scratch_.data(),
           {out, size_t(up.outputs), nullptr, Activation::none});
  }

  // Notes the greatest of this thread's share of a row's rough scores, once those of symbols that
  // may not be found are MINUS_INFINITY.
  void compare(const Team& team, int row, const float* rough) {
    greatest(team, row)[team.index] = greatest_of(rough + begin(team), end(team) - begin(team));
  }

  // The best symbol of this thread's share after a row's state, (dim).
  Best best(const Team& team, int row, const float* state, const float* rough) {
    const ExactScores exact(*call_->exact, call_->weights);
    const float bound = greatest_of(greatest(team, row), team.size) - call_->margin;
    Best found;
    for (const int symbol : exact.find(rough, begin(team), end(team), bound)) {
      const float score = exact.of(state, symbol);
      if (score > found.score) found = {symbol, score};
    }
    return found;
  }

  // The symbols of a thread: [begin, end).
  int begin(const Team& team) const { return call_->up->begin(team); }
  int end(const Team& team) const { return call_->up->end(team); }

 private:
  const LowRankCall* call_ = nullptr;
  Aligned<float> reduced_;   // (rows, rank)
  Aligned<float> greatest_;  // (rows, threads)
  Aligned<uint32_t> scratch_;

  float* greatest(const Team& team, int row) { return &greatest_[size_t(row) * team.size]; }
};

}  // namespace native
