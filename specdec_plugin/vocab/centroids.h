// The cluster that each state is nearest to (Amer et al., 2022, equation 2).
#pragma once

#include <algorithm>
#include <vector>

#include "engine/native/pool.h"
#include "engine/native/team.h"
#include "engine/native/vector.h"

namespace native {

// The products of one vector with N others. Each is one chain of sums, so that it does not depend
// on N; the others keep the processor busy in the meantime.
template <int N>
static inline void products(const float* one, const float* const* others, int width, float* out) {
  Vec sums[N] = {};
  int i = 0;
  for (; i + LANES <= width; i += LANES) {
    Vec value = load(one + i);
    hold(value);
    for (int n = 0; n < N; ++n) sums[n] += value * load(others[n] + i);
  }
  for (int n = 0; n < N; ++n) {
    float rest = 0;
    for (int k = i; k < width; ++k) rest += one[k] * others[n][k];
    out[n] = sum(sums[n]) + rest;
  }
}

// A matrix whose rows are wanted one by one, in memory that few translations of addresses reach.
struct RowTable {
  RowTable(const float* values, int rows, int width) : rows(rows), width(width) {
    values_.allocate(size_t(rows) * width);
    std::memcpy(&values_[0], values, sizeof(float) * rows * width);
  }

  const float* operator[](int row) const { return &values_[size_t(row) * width]; }

  // Rows far apart are not what the processor looks ahead for by itself.
  void fetch(int row) const {
    const float* from = (*this)[row];
    for (int i = 0; i < width; i += 16) __builtin_prefetch(from + i);
  }

  const int rows, width;

 private:
  Pooled<float> values_;
};

// Groups of states, and which of their tokens are active.
class Centroids {
 public:
  // centroids: (clusters, width); norms: (clusters). Cluster c has tokens[offsets[c]] to
  // tokens[offsets[c + 1] - 1], in rising order; both stay the caller's.
  Centroids(const float* centroids, const float* norms, int clusters, int width,
            const int64_t* offsets, const int32_t* tokens)
      : centroids_(centroids, clusters, width),
        norms_(norms, norms + clusters),
        offsets_(offsets),
        tokens_(tokens) {
    for (int cluster = 0; cluster < clusters; ++cluster)
      largest_ = std::max(largest_, size(cluster));
  }

  // Makes room for so many rows, before threads call `measure`.
  void prepare(int rows) { distances_.resize(size_t(rows) * centroids_.rows); }

  // |C|² - 2 h·C of this thread's share of centroids. in: (rows, width). The caller waits before it
  // asks for the nearest.
  void measure(const Team& team, const float* in, int rows) {
    const int clusters = centroids_.rows, end = team.end(clusters);
    for (int row = 0; row < rows; ++row) {
      const float* state = in + size_t(row) * centroids_.width;
      float* distances = &distances_[size_t(row) * clusters];
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

  int nearest(int row) const {
    const float* distances = &distances_[size_t(row) * centroids_.rows];
    return int(std::min_element(distances, distances + centroids_.rows) - distances);
  }

  // The active tokens of a cluster.
  const int32_t* begin(int cluster) const { return tokens_ + offsets_[cluster]; }
  const int32_t* end(int cluster) const { return tokens_ + offsets_[cluster + 1]; }
  int size(int cluster) const { return int(end(cluster) - begin(cluster)); }
  int count() const { return centroids_.rows; }
  int largest() const { return largest_; }

 private:
  static constexpr int AT_ONCE = 4;

  const RowTable centroids_;
  std::vector<float> norms_;
  const int64_t* offsets_;
  const int32_t* tokens_;
  int largest_ = 0;               // most active tokens of any cluster
  std::vector<float> distances_;  // (rows, clusters)
};

}  // namespace native
