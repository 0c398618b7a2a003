// Exact scores of the symbols that 8-bit scores of a state leave in question.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/native/linear.h"
#include "vocab/error_bound.h"

namespace native {

// The scores of all symbols after one state. At first they are those of 8-bit weights.
class Rescoring {
 public:
  // exact: scores symbols in float32. temperature: divides scores, and has divided the 8-bit ones.
  // state: (dim). values: (vocabulary) is changed.
  Rescoring(const PrefilterCall& call, const Linear& exact, float temperature, const float* state,
            float* values)
      : call_(call), exact_(exact), temperature_(temperature), state_(state), values_(values) {}

  // Computes the score of a symbol exactly.
  void rescore(int64_t symbol) {
    static thread_local Aligned<float> unpacked;
    const float* weights = weights_of(symbol);
    if (!weights) {
      unpacked.resize(exact_.inputs);
      exact_.unpack(int(symbol), unpacked.data());
      weights = unpacked.data();
    }
    const float before = values_[symbol], score = dot(state_, weights, exact_.inputs);
    values_[symbol] = (score + exact_.bias(int(symbol))) / temperature_;
    if (sums_) change_ += std::exp(values_[symbol] - log_sum_) - std::exp(before - log_sum_);
  }

  // Computes all scores exactly that might be the greatest of exact ones; tells how many. The
  // errors of two symbols lie between the greatest 8-bit score and the bound.
  int64_t rescore_possible() {
    const float greatest = greatest_of(values_, exact_.outputs);
    const float error = error_of(call_.error_bound, state_, exact_.inputs, greatest * temperature_);
    return rescore_above(greatest - 2 * error / temperature_);
  }

  // Sums probabilities, which `rescore` corrects from then on, and computes the scores exactly that
  // make most of the sum.
  void rescore_likely() {
    log_sum_ = log_sum_exp(values_, exact_.outputs);
    sums_ = true;
    rescore_above(log_sum_ + std::log(LIKELY));
  }

  // What is to be subtracted from scores: 0 without `rescore_likely`.
  float normaliser() const { return log_sum_ + float(std::log1p(change_)); }

 private:
  static constexpr int CHUNK = 128;       // scores that are compared with a bound at once
  static constexpr float LIKELY = 2e-4f;  // a probability

  const PrefilterCall& call_;
  const Linear& exact_;
  const float temperature_;
  const float* state_;
  float* values_;
  bool sums_ = false;
  float log_sum_ = 0;
  double change_ = 0;  // of the sum, relative to it

  // Null where they are packed alone.
  const float* weights_of(int64_t symbol) const {
    return call_.weights ? call_.weights + size_t(symbol) * exact_.inputs : nullptr;
  }

  void prefetch(int symbol) const {
    const float* weights = weights_of(symbol);
    const int line = 16;  // numbers of a line of the cache
    for (int i = 0; weights && i < exact_.inputs; i += line) __builtin_prefetch(weights + i);
  }

  // Rows of weights lie far apart in memory: all are asked for before the first one is read.
  int64_t rescore_above(float bound) {
    static thread_local std::vector<int> found;
    found.clear();
    for (int first = 0; first < exact_.outputs; first += CHUNK) {
      const int end = std::min(exact_.outputs, first + CHUNK);
      if (greatest_of(values_ + first, end - first) < bound) continue;
      for (int symbol = first; symbol < end; ++symbol) {
        if (values_[symbol] < bound) continue;
        found.push_back(symbol);
        prefetch(symbol);
      }
    }
    for (const int symbol : found) rescore(symbol);
    return int64_t(found.size());
  }
};

}  // namespace native
