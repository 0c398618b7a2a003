// The cluster that each state is nearest to (Amer et al., 2022, equation 2).
#pragma once

#include <algorithm>
#include <vector>

#include "engine/native/pool.h"
#include "engine/native/team.h"
#include "engine/native/vector.h"

namespace native {

// The products of one vector with N others. Each product is one chain of sums, so that it does not
// depend on N; the other chains keep the processor busy. out: its first N numbers count.
template <int N>
static inline void products(const float* one, const float* const* others, int width,
                            float (&out)[4]) {
  static_assert(N <= 4);
  Vec sums[4] = {};
  int i = 0;
  for (; i + LANES <= width; i += LANES) {
    Vec value = load(one + i);
    hold(value);
    for (int n = 0; n < N; ++n) sums[n] = multiply_add(value, load(others[n] + i), sums[n]);
  }
  if (i < width) {
    const Vec value = load_first(one + i, width - i);
    for (int n = 0; n < N; ++n)
      sums[n] = multiply_add(value, load_first(others[n] + i, width - i), sums[n]);
  }
  store_sums(out, sums);
}

// A matrix whose rows are read one by one, in memory of few large pages.
struct RowTable {
  RowTable(const float* values, int rows, int width) : rows(rows), width(width) {
    values_.allocate(size_t(rows) * width);
    std::memcpy(&values_[0], values, sizeof(float) * rows * width);
  }

  const float* operator[](int row) const { return &values_[size_t(row) * width]; }

  // The processor does not prefetch rows that are far apart by itself.
  void prefetch(int row) const {
    const float* from = (*this)[row];
    for (int i = 0; i < width; i += 16) __builtin_prefetch(from + i);
  }

  const int rows, width;

 private:
  Pooled<float> values_;
};

// Clusters of states, and their active tokens.
class Centroids {
 public:
  // centroids: (clusters, width); norms: (clusters). Cluster c has tokens[offsets[c]] to
  // tokens[offsets[c + 1] - 1], in rising order; both stay the caller's.
  Centroids(const float* centroids, const float* norms, int clusters, int width,
            const int64_t* offsets, const int32_t* tokens)
      : centroids_(centroids, clusters, width),
        norms_(norms, norms + clusters),
        offsets_(offsets),
        tokens_(tokens) {}

  // |C|² - 2 h·C of this thread's share of the centroids. in: (rows, width). distances: (rows,
  // count()) result; the caller waits before it calls `nearest`.
  void measure(const Team& team, const float* in, int rows, float* distances) const {
    const int clusters = centroids_.rows, end = team.end(clusters);
    for (int row = 0; row < rows; ++row, distances += clusters) {
      const float* state = in + size_t(row) * centroids_.width;
      for (int c = team.begin(clusters); c < end;) {
        float found[AT_ONCE];
        const int count = std::min(AT_ONCE, end - c);
        const float* others[AT_ONCE];
        for (int n = 0; n < AT_ONCE; ++n) others[n] = centroids_[c + std::min(n, count - 1)];
        products<AT_ONCE>(state, others, centroids_.width, found);
        for (int n = 0; n < count; ++n, ++c) distances[c] = norms_[c] - 2 * found[n];
      }
    }
  }

  // The cluster of a row. distances: those of all rows.
  int nearest(const float* distances, int row) const {
    const float* own = distances + size_t(row) * count();
    return int(std::min_element(own, own + count()) - own);
  }

  // The active tokens of a cluster: [begin, end).
  const int32_t* begin(int cluster) const { return tokens_ + offsets_[cluster]; }
  const int32_t* end(int cluster) const { return tokens_ + offsets_[cluster + 1]; }
  int size(int cluster) const { return int(end(cluster) - begin(cluster)); }
  int count() const { return centroids_.rows; }

 private:
  static constexpr int AT_ONCE = 4;

  const RowTable centroids_;
  Aligned<float> norms_;
  const int64_t* offsets_;
  const int32_t* tokens_;
};

// A projection whose weights are read row by row, at the active tokens of clusters.
template <class Weights>
class Clustered {
 public:
  // weight: (vocabulary, width); bias: (vocabulary) or null. The rest: see `Centroids`.
  Clustered(const float* weight, const float* bias, int vocabulary, int width,
            const float* centroids, const float* norms, int clusters, const int64_t* offsets,
            const int32_t* tokens)
      : weights_(weight, vocabulary, width),
        centroids_(centroids, norms, clusters, width, offsets, tokens),
        bias_(vocabulary, 0.0f) {
    if (bias) bias_.assign(bias, bias + vocabulary);
  }

  int vocabulary() const { return int(bias_.size()); }
  int width() const { return weights_.width; }

 protected:
  static constexpr int AT_ONCE = 4;  // products that are computed at once

  const Weights weights_;
  const Centroids centroids_;
  Aligned<float> bias_;
};

}  // namespace native
