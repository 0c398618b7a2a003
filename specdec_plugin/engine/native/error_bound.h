// How far scores of rounded weights and inputs may be from those that float32 gives.
#pragma once

#include <cmath>

#include "engine/native/formats.h"

namespace native {

// |h - g|, with h rounded as for a product with 8-bit weights.
static inline float rounding_error(const float* state, int count) {
  const float step = largest_of(state, count) / 127, levels = step > 0 ? 1 / step : 0;
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  Vec total = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) {
    const Vec value = load(state + i);
    const Vec level = (value * splat(levels) + splat(shift)) - splat(shift);
    const Vec apart = value - level * splat(step);
    total += apart * apart;
  }
  float rest = 0;
  for (; i < count; ++i) {
    const float apart = state[i] - std::nearbyint(state[i] * levels) * step;
    rest += apart * apart;
  }
  return std::sqrt(sum(total) + rest);
}

// The greatest error of the score of any symbol, after a state whose greatest rounded score is known.
// With weights w of a symbol, rounded to v, and a state h, rounded to g,
//   w h - v g = (w - v) h + v (h - g)  <=  |w - v| |h| + |v| |h - g|.
static inline float error_of(const ErrorBound& bound, const float* state, int count,
                             float greatest) {
  const float own = std::sqrt(dot(state, state, count));
  // Less than a ten-thousandth: what is lost where these lengths and the scores are computed.
  return 1.0001f * (own * bound.weight_error + rounding_error(state, count) * bound.weight_norm) +
         1e-6f * std::fabs(greatest);
}

}  // namespace native
