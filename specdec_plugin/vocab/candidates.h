// The symbols of a large vocabulary that come into question somewhere: those with the greatest
// scores, a hundred or less.
#pragma once

#include <algorithm>

#include "engine/native/vector.h"

namespace native {

struct Candidates {
  static constexpr int MOST = 512;

  int count;
  int symbols[MOST + 2];
  float scores[MOST + 2];  // room for what is made of them

  // One symbol besides those that are found; room is left for two.
  void add(int symbol) { symbols[count++] = symbol; }

  // Whether a vocabulary is so small that all of it is in question; then no scores are read.
  static bool all(int vocabulary) { return vocabulary <= MOST; }

  // values: (vocabulary) scores. never: a symbol to leave out, or -1. best: about how many of the
  // best chunks are looked through; as many symbols at least are found.
  void find(const float* values, int vocabulary, int never, int best) {
    count = 0;
    if (all(vocabulary)) {
      for (int symbol = 0; symbol < vocabulary; ++symbol)
        if (symbol != never) symbols[count++] = symbol;
      return;
    }
    // The best chunks, by their greatest scores, hold the best symbols: those above the bound.
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
        if (values[symbol] > bound && symbol != never) symbols[count++] = symbol;
    }
  }

 private:
  static constexpr int CHUNKS = 128;

  // A number that about `best` of the chunks exceed, by bisection.
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
