// The mean of all symbols' scores, which is known exactly where the scores are not.
#pragma once

#include <vector>

#include "engine/native/linear.h"

namespace native {

// Adds to rounded scores what their mean lacks. Most of an 8-bit product's error is the same for
// all symbols: that of the rounded state. mean: (dim + 1) of `mean_row_of`.
static inline void shift_to_mean(float* scores, int count, const float* state, int dim,
                                 const float* mean) {
  Vec total = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) total += load(scores + i);
  float rest = 0;
  for (; i < count; ++i) rest += scores[i];
  const float shift = dot(state, mean, dim) + mean[dim] - (sum(total) + rest) / float(count);
  for (i = 0; i + LANES <= count; i += LANES) store(scores + i, load(scores + i) + splat(shift));
  for (; i < count; ++i) scores[i] += shift;
}

// mean: (inputs + 1) result: the mean of the rows of weights, and behind it that of the biases.
// exact: not of integers.
extern "C" void mean_row_of(const Linear* exact, float* mean, int threads) {
  const int count = exact->inputs;
  std::vector<std::vector<double>> sums(threads, std::vector<double>(size_t(count) + 1));
  parallel(threads, [&](const Team& team) {
    Aligned<float> row(count);
    std::vector<double>& own = sums[team.index];
    for (int output = team.begin(exact->outputs); output < team.end(exact->outputs); ++output) {
      exact->unpack(output, row.data());
      for (int i = 0; i < count; ++i) own[i] += row[i];
      own[count] += exact->bias(output);
    }
  });
  for (int i = 0; i <= count; ++i) {
    double total = 0;
    for (const std::vector<double>& each : sums) total += each[i];
    mean[i] = float(total / exact->outputs);
  }
}

}  // namespace native
