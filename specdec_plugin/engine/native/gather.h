// A vocabulary projection at the active tokens of each state's cluster (paper 004, section 2.3).
#pragma once

#include <algorithm>
#include <vector>

#include "pool.h"
#include "team.h"
#include "vector.h"

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

class Gather {
 public:
  // weight: (vocabulary, width); bias: (vocabulary) or null; centroids: (clusters, width); norms:
  // (clusters). Cluster c has tokens[offsets[c]] to tokens[offsets[c + 1] - 1], in rising order;
  // both stay the caller's.
  Gather(const float* weight, const float* bias, int vocabulary, int width, const float* centroids,
         const float* norms, int clusters, const int64_t* offsets, const int32_t* tokens)
      : weights_(weight, vocabulary, width),
        centroids_(centroids, clusters, width),
        bias_(vocabulary, 0.0f),
        norms_(norms, norms + clusters),
        offsets_(offsets),
        tokens_(tokens) {
    if (bias) bias_.assign(bias, bias + vocabulary);
  }

  int vocabulary() const { return weights_.rows; }
  int width() const { return weights_.width; }

  // Makes room for so many rows, before threads call `run`.
  void prepare(int rows) {
    own_.resize(rows);
    distances_.resize(size_t(std::min(rows, BLOCK)) * centroids_.rows);
    if (rows > 1) wanted_.resize(vocabulary());
  }

  // in: (rows, width); out: (rows, vocabulary), -inf where nothing is active. The caller waits
  // before it reads `out`, or asks for a normaliser.
  void run(const Team& team, const float* in, int rows, float* out) {
    for (int first = 0; first < rows; first += BLOCK) {
      if (first > 0) team.wait();
      block(team, in + size_t(first) * width(), std::min(BLOCK, rows - first), first,
            out + size_t(first) * vocabulary());
    }
  }

  // log Σ exp of a row's active scores. scores: (vocabulary).
  float normaliser(int row, const float* scores) const {
    std::vector<float> active;
    active.reserve(size_t(offsets_[own_[row] + 1] - offsets_[own_[row]]));
    for (int64_t i = offsets_[own_[row]]; i < offsets_[own_[row] + 1]; ++i)
      active.push_back(scores[tokens_[i]]);
    return log_sum_exp(active.data(), int(active.size()));
  }

 private:
  // Rows that are computed together, a bit for each; each weight is read once for all of them.
  static constexpr int BLOCK = 32;
  static constexpr int AT_ONCE = 4;

  const RowTable weights_, centroids_;
  std::vector<float> bias_, norms_;
  const int64_t* offsets_;
  const int32_t* tokens_;
  std::vector<int> own_;          // (rows) the cluster of each
  std::vector<float> distances_;  // (rows of a block, clusters)
  std::vector<uint32_t> wanted_;  // (vocabulary) by which rows of a block

  void block(const Team& team, const float* in, int rows, int first, float* out) {
    measure(team, in, rows);
    const int begin = team.begin(vocabulary()), end = team.end(vocabulary());
    for (int row = 0; row < rows; ++row) {
      float* scores = out + size_t(row) * vocabulary();
      std::fill(scores + begin, scores + end, -std::numeric_limits<float>::infinity());
    }
    team.wait();
    // Every thread finds all clusters for itself, sooner than it could wait for another.
    int own[BLOCK];
    for (int row = 0; row < rows; ++row) own[row] = nearest(row);
    if (team.index == 0) std::copy(own, own + rows, own_.begin() + first);
    if (rows == 1) {
      gather(team, in, own[0], out);
    } else {
      spread(team, in, rows, own, out);
    }
  }

  // |C|² - 2 h·C of this thread's share of centroids.
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

  // One state: this thread's share of its cluster's tokens.
  void gather(const Team& team, const float* state, int cluster, float* out) const {
    const int32_t* tokens = tokens_ + offsets_[cluster];
    const int size = int(offsets_[cluster + 1] - offsets_[cluster]), end = team.end(size);
    for (int i = team.begin(size); i < end; i += AT_ONCE) {
      const float* others[AT_ONCE];
      float found[AT_ONCE];
      for (int n = 0; n < AT_ONCE; ++n) {
        others[n] = weights_[tokens[std::min(i + n, end - 1)]];
        if (i + n + 2 * AT_ONCE < end) weights_.fetch(tokens[i + n + 2 * AT_ONCE]);
      }
      products<AT_ONCE>(state, others, weights_.width, found);
      for (int n = 0; n < AT_ONCE && i + n < end; ++n)
        out[tokens[i + n]] = found[n] + bias_[tokens[i + n]];
    }
  }

  // Several states: which of them want each token of this thread's part of the vocabulary, and the
  // products with those.
  void spread(const Team& team, const float* in, int rows, const int* own, float* out) {
    const int vocabulary = weights_.rows;
    const int begin = team.begin(vocabulary), end = team.end(vocabulary);
    std::fill(wanted_.begin() + begin, wanted_.begin() + end, 0u);
    for (int row = 0; row < rows; ++row) {
      const int32_t* last = tokens_ + offsets_[own[row] + 1];
      const int32_t* token = std::lower_bound(tokens_ + offsets_[own[row]], last, begin);
      for (; token < last && *token < end; ++token) wanted_[*token] |= 1u << row;
    }
    for (int token = begin; token < end; ++token) {
      if (!wanted_[token]) continue;
      int places[BLOCK], count = 0;
      for (uint32_t left = wanted_[token]; left; left &= left - 1)
        places[count++] = __builtin_ctz(left);
      for (int i = 0; i < count; i += AT_ONCE) {
        const float* others[AT_ONCE];
        float found[AT_ONCE];
        for (int n = 0; n < AT_ONCE; ++n)
          others[n] = in + size_t(places[std::min(i + n, count - 1)]) * weights_.width;
        products<AT_ONCE>(weights_[token], others, weights_.width, found);
        for (int n = 0; n < AT_ONCE && i + n < count; ++n)
          out[size_t(places[i + n]) * vocabulary + token] = found[n] + bias_[token];
      }
    }
  }
};

}  // namespace native
