// Exact scores of the symbols that rough scores of a state leave in question.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "vocab/error_bound.h"
#include "vocab/exact_scores.h"

namespace native {

// The scores of all symbols after one state. At first they are rough.
class Rescoring {
 public:
  // temperature: divides scores, and has divided the rough ones. state: (dim). values: (vocabulary)
  // is changed.
  Rescoring(const ExactScores& exact, float temperature, const float* state, float* values)
      : exact_(exact), temperature_(temperature), state_(state), values_(values) {}

  // Computes the score of a symbol exactly.
  void rescore(int64_t symbol) {
    const float before = values_[symbol];
    values_[symbol] = exact_.of(state_, int(symbol)) / temperature_;
    if (sums_) change_ += std::exp(values_[symbol] - log_sum_) - std::exp(before - log_sum_);
  }

  // Computes all scores exactly that might be the greatest of exact ones; tells how many. The
  // errors of two symbols lie between the greatest rough score and the bound.
  int64_t rescore_possible(const ErrorBound& bound) {
    const float greatest = greatest_of(values_, exact_.vocabulary());
    const float error = error_of(bound, state_, exact_.dim(), greatest * temperature_);
    return rescore_above(greatest - 2 * error / temperature_);
  }

  // Sums probabilities, which `rescore` corrects from then on, and computes the scores exactly that
  // make most of the sum.
  void rescore_likely() {
    log_sum_ = log_sum_exp(values_, exact_.vocabulary());
    sums_ = true;
    rescore_above(log_sum_ + std::log(LIKELY));
  }

  // What is to be subtracted from scores: 0 without `rescore_likely`.
  float normaliser() const { return log_sum_ + float(std::log1p(change_)); }

 private:
  static constexpr float LIKELY = 2e-4f;  // a probability

  const ExactScores exact_;
  const float temperature_;
  const float* state_;
  float* values_;
  bool sums_ = false;
  float log_sum_ = 0;
  double change_ = 0;  // of the sum, relative to it

  // Computes scores exactly that are not below the bound; tells how many.
  int64_t rescore_above(float bound) {
    const std::vector<int>& found = exact_.find(values_, 0, exact_.vocabulary(), bound);
    for (const int symbol : found) rescore(symbol);
    return int64_t(found.size());
  }
};

}  // namespace native
