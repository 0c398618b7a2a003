// Exact scores of single symbols.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/native/linear.h"

namespace native {

class ExactScores {
 public:
  // projection: not of integers. weights: (vocabulary, dim) of it, or null: the packed ones
  // are read, which have those of a symbol far apart.
  ExactScores(const Linear& projection, const float* weights)
      : projection_(projection), weights_(weights) {}

  int vocabulary() const { return projection_.outputs; }
  int dim() const { return projection_.inputs; }

  // The score of a symbol after a state, (dim).
  float of(const float* state, int symbol) const {
    static thread_local Aligned<float> unpacked;
    const float* weights = weights_ ? row(symbol) : nullptr;
    if (!weights) {
      unpacked.resize(dim());
      projection_.unpack(symbol, unpacked.data());
      weights = unpacked.data();
    }
    return dot(state, weights, dim()) + projection_.bias(symbol);
  }

  // The symbols in [begin, end) whose rough scores are not below the bound. It lasts until the
  // thread finds others. Rows of weights lie far apart in memory: all are asked for before the
  // first one is read.
  const std::vector<int>& find(const float* rough, int begin, int end, float bound) const {
    static thread_local std::vector<int> found;
    found.clear();
    for (int first = begin; first < end; first += CHUNK) {
      const int last = std::min(end, first + CHUNK);
      if (greatest_of(rough + first, last - first) < bound) continue;
      for (int symbol = first; symbol < last; ++symbol) {
        if (rough[symbol] < bound) continue;
        found.push_back(symbol);
        prefetch(symbol);
      }
    }
    return found;
  }

 private:
  static constexpr int CHUNK = 128;  // scores that are compared with a bound at once

  const Linear& projection_;
  const float* weights_;

  const float* row(int symbol) const { return weights_ + size_t(symbol) * dim(); }

  void prefetch(int symbol) const {
    const int line = 16;  // numbers of a line of the cache
    for (int i = 0; weights_ && i < dim(); i += line) __builtin_prefetch(row(symbol) + i);
  }
};

}  // namespace native
