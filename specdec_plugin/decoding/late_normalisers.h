// Normalisers of the log-probabilities of symbols that were chosen by an 8-bit prefilter.
#pragma once

#include <vector>

#include "decoding/sampling.h"
#include "engine/native/linear.h"
#include "interface.h"

namespace native {

// A prefilter finds the best symbol without the exact scores of the others, which only the
// normaliser needs. No choice depends on it. So states wait here until there are many: a product
// of many rows reads each weight from memory once.
class LateNormalisers {
 public:
  void clear() { scores_.clear(); }

  // state: (dim), which predicted the symbol whose score is at `row` and `position` of the rows.
  void add(const float* state, int dim, int row, int64_t position) {
    states_.resize(scores_.size() * dim);
    states_.insert(states_.end(), state, state + dim);
    scores_.push_back({row, position});
  }

  bool many() const { return scores_.size() >= MANY; }

  // Subtracts the normalisers from the scores of the rows. projection: of all symbols, in float32.
  void subtract(const Linear& projection, const RowsCall& rows, float temperature, int threads) {
    const int count = int(scores_.size());
    if (count == 0) return;
    const size_t vocabulary = projection.outputs;
    grow(values_, count * vocabulary);
    scratch_.resize(projection.scratch_size(count));
    parallel(threads, [&](const Team& team) {
      projection.run(team, states_.data(), projection.inputs, count, scratch_.data(),
                     {values_.data(), vocabulary, nullptr, Activation::none});
      team.wait();
      for (int i = team.begin(count); i < team.end(count); ++i) {
        float* values = &values_[i * vocabulary];
        cool(values, int(vocabulary), temperature);
        rows.scores[size_t(scores_[i].row) * rows.capacity + scores_[i].position] -=
            log_sum_exp(values, int(vocabulary));
      }
    });
    clear();
  }

 private:
  static constexpr size_t MANY = 32;

  struct Score {
    int row;
    int64_t position;
  };

  std::vector<Score> scores_;
  Aligned<float> states_;  // (scores, dim)
  Aligned<float> values_;  // (scores, vocabulary)
  Aligned<uint32_t> scratch_;
};

}  // namespace native
