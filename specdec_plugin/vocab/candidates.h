// The symbols of a vocabulary with the greatest scores, about a hundred of them.
#pragma once

#include <algorithm>

#include "engine/native/vector.h"

namespace native {

struct Candidates {
  static constexpr int MOST = 512;

  int count;
  int symbols[MOST];
  float scores[MOST];  // room for what is computed of them

  // Whether a vocabulary is so small that all symbols are candidates; then no scores are read.
  static bool all(int vocabulary) { return vocabulary <= MOST; }

  // values: (vocabulary) scores. suppressed_id: a symbol to leave out, or -1. best: about how many
  // chunks of the vocabulary are searched, and the least number of candidates.
  void find(const float* values, int vocabulary, int suppressed_id, int best) {
    count = 0;
    if (all(vocabulary)) {
      for (int symbol = 0; symbol < vocabulary; ++symbol)
        if (symbol != suppressed_id) symbols[count++] = symbol;
      return;
    }
    // The chunks with the greatest maxima hold the best symbols, those above the bound.
    const int chunk = (vocabulary + CHUNKS - 1) / CHUNKS;
    float greatest[CHUNKS];
    for (int i = 0; i < CHUNKS; ++i) {
      const int first = std::min(vocabulary, i * chunk);
      greatest[i] = greatest_of(values + first, std::min(chunk, vocabulary - first));
    }
    const float bound = bound_of(greatest, best);
    for (int i = 0; i < CHUNKS; ++i) {
      if (greatest[i] <= bound) continue;
      const int end = std::min(vocabulary, (i + 1) * chunk);
      for (int symbol = i * chunk; symbol < end && count < MOST; ++symbol)
        if (values[symbol] > bound && symbol != suppressed_id) symbols[count++] = symbol;
    }
  }

 private:
  static constexpr int CHUNKS = 128;

  // A number that the maxima of about `best` chunks exceed, by bisection.
  static float bound_of(const float* greatest, int best) {
    float high = greatest_of(greatest, CHUNKS), low = high - 40;
    for (int step = 0; step < 12; ++step) {
      const float middle = (low + high) / 2;
      if (count_above(greatest, CHUNKS, middle) < best) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return low;
  }
};

}  // namespace native
