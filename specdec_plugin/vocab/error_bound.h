// How far scores of rounded weights and inputs may be from those that float32 gives.
#pragma once

#include <cmath>

#include "engine/native/formats.h"

namespace native {

// With weights w of a symbol, rounded to v, and a state h, rounded to g,
//   w h - v g = (w - v) h + v (h - g)  <=  |w - v| |h| + |v| |h - g|.
struct Certainty {
  float apart;   // the greatest |w - v| of all symbols, with what float32 sums may be off by
  float length;  // the greatest |v|

  // For any symbol of a state, where the greatest rounded score is known.
  float doubt(const float* state, int count, float greatest) const {
    const float own = std::sqrt(dot(state, state, count));
    // Less than a ten-thousandth: what is lost where these lengths and the scores are computed.
    return 1.0001f * (own * apart + lost(state, count) * length) + 1e-6f * std::fabs(greatest);
  }

 private:
  // |h - g|, with h rounded as for a product with 8-bit weights.
  static float lost(const float* state, int count) {
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
};

}  // namespace native
