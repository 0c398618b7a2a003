// The symbols of a vocabulary with the greatest scores, about a hundred of them.
#pragma once

#include <algorithm>

#include "engine/native/vector.h"

namespace native {

struct Candidates {
  static constexpr int MOST = 512;
  static constexpr int CHUNKS = 128;

  int count;
  int symbols[MOST];
  float scores[MOST];  // room for what is computed of them

  // Whether a vocabulary is so small that all symbols are candidates; then no scores are read.
  static bool all(int vocabulary) { return vocabulary <= MOST; }

  // values: (vocabulary) scores. suppressed_id: a symbol to leave out, or -1. best: about how many
  // chunks of the vocabulary are searched, and the least number of candidates.
  void find(const float* values, int vocabulary, int suppressed_id, int best) {
    if (all(vocabulary)) {
      take_all(0, vocabulary, suppressed_id);
      return;
    }
    float greatest[CHUNKS];
    chunk_maxima(values, 0, vocabulary, CHUNKS, greatest);
    take(values, 0, vocabulary, CHUNKS, greatest, bound_of(greatest, CHUNKS, best), suppressed_id);
  }

  // The greatest score of each of so many chunks of the symbols in [begin, end).
  static void chunk_maxima(const float* values, int begin, int end, int chunks, float* greatest) {
    const int chunk = (end - begin + chunks - 1) / chunks;
    for (int i = 0; i < chunks; ++i) {
      const int first = std::min(end, begin + i * chunk);
      greatest[i] = greatest_of(values + first, std::min(chunk, end - first));
    }
  }

  // A number that the maxima of about `best` chunks exceed, by bisection. The chunks with the
  // greatest maxima hold the best symbols, those above it.
  static float bound_of(const float* greatest, int chunks, int best) {
    float high = greatest_of(greatest, chunks), low = high - 40;
    for (int step = 0; step < 12; ++step) {
      const float middle = (low + high) / 2;
      if (count_above(greatest, chunks, middle) < best) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return low;
  }

  // The symbols in [begin, end) with scores above the bound. greatest: of `chunk_maxima`.
  void take(const float* values, int begin, int end, int chunks, const float* greatest, float bound,
            int suppressed_id) {
    count = 0;
    const int chunk = (end - begin + chunks - 1) / chunks;
    for (int i = 0; i < chunks; ++i) {
      if (greatest[i] <= bound) continue;
      const int first = begin + i * chunk, last = std::min(end, first + chunk);
      for (int symbol = first; symbol < last && count < MOST; ++symbol)
        if (values[symbol] > bound && symbol != suppressed_id) symbols[count++] = symbol;
    }
  }

  // All symbols in [begin, end).
  void take_all(int begin, int end, int suppressed_id) {
    count = 0;
    for (int symbol = begin; symbol < end; ++symbol)
      if (symbol != suppressed_id) symbols[count++] = symbol;
  }
};

}  // namespace native
