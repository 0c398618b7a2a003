// How far scores of 8-bit weights and inputs may be from those of float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/native/linear.h"

namespace native {

// |h - g| of a state h and what a product with 8-bit weights rounds it to, g.
static inline float rounding_error(const float* state, int count) {
  const float step = largest_magnitude(state, count) / 127, levels = step > 0 ? 1 / step : 0;
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  Vec total = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Vec value = load(state + i);
    const Vec level = (value * splat(levels) + splat(shift)) - splat(shift);
    const Vec error = value - level * splat(step);
    total += error * error;
  }
  float rest = 0;
  for (; i < count; ++i) {
    const float error = state[i] - std::nearbyint(state[i] * levels) * step;
    rest += error * error;
  }
  return std::sqrt(sum(total) + rest);
}

// Bounds the error of every symbol's score after a state. greatest: the greatest rounded score.
// With weights w of a symbol, rounded to v, and a state h, rounded to g,
//   w h - v g = (w - v) h + v (h - g)  <=  |w - v| |h| + |v| |h - g|.
static inline float error_of(const ErrorBound& bound, const float* state, int count,
                             float greatest) {
  const float norm = std::sqrt(dot(state, state, count));
  // A ten-thousandth is more than what the computation of these norms and scores loses.
  return 1.0001f * (norm * bound.weight_error + rounding_error(state, count) * bound.weight_norm) +
         1e-6f * std::fabs(greatest);
}

// What bounds the errors of a product whose weights are rounded to 8 bits. exact: it, not of
// integers.
extern "C" void error_bound_of(const Linear* exact, ErrorBound* bound, int threads) {
  const int count = exact->inputs;
  std::vector<ErrorBound> parts(threads, ErrorBound{0, 0});
  parallel(threads, [&](const Team& team) {
    Aligned<float> row(count);
    ErrorBound& part = parts[team.index];
    // A sum of n products is off by n roundings at most, each of half this; half is reserve.
    const float float_error = float(count + 8) * std::numeric_limits<float>::epsilon();
    for (int output = team.begin(exact->outputs); output < team.end(exact->outputs); ++output) {
      exact->unpack(output, row.data());
      const float norm = std::sqrt(dot(row.data(), row.data(), count));
      const float error = rounding_error(row.data(), count);
      part.weight_error = std::max(part.weight_error, error + float_error * norm);
      part.weight_norm = std::max(part.weight_norm, norm + error);  // at least |v|
    }
  });
  *bound = ErrorBound{0, 0};
  for (const ErrorBound& part : parts) {
    bound->weight_error = std::max(bound->weight_error, part.weight_error);
    bound->weight_norm = std::max(bound->weight_norm, part.weight_norm);
  }
}

}  // namespace native
