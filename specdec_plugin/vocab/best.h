// The most probable symbol, found by several threads.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/native/vector.h"

namespace native {

// The score of a symbol that a prefix or the length limit wants. Clusters may have left it out.
// normaliser: is subtracted from it.
static inline float forced_score(float score, float normaliser) {
  return score == MINUS_INFINITY ? normaliser + float(FORCED_SCORE) : score;
}

// What one thread finds in its share of the symbols.
struct Best {
  int symbol = 0;
  float score = MINUS_INFINITY;
  float log_sum = MINUS_INFINITY;  // of the exponentials of all scores of the share
};

// The best of all threads' symbols, the first one of equal ones.
static inline const Best& best_of(const Best* parts, int threads) {
  return *std::max_element(parts, parts + threads,
                           [](const Best& a, const Best& b) { return a.score < b.score; });
}

// 1 / p, where p is the probability of the best symbol.
static inline float inverse_probability(const Best* parts, int threads, const Best& best) {
  float total = 0;
  for (int i = 0; i < threads; ++i) total += std::exp(parts[i].log_sum - best.score);
  return total;
}

}  // namespace native
