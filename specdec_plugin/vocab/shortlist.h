// The best of the active tokens of a state's cluster, for drafts (Amer et al., 2022, section 2.3).
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "vocab/centroids.h"
#include "engine/native/formats.h"

namespace native {

struct Best {
  int symbol;
  float score;
};

// Weights of 8 bits a row of which is wanted now and then: where `Linear` has panels, each row is
// by itself here.
class RoundedRows {
 public:
  RoundedRows(const float* values, int rows, int width)
      : width(width), words_((width + 4 * LANES - 1) / (4 * LANES) * LANES), steps_(rows) {
    data_.allocate(size_t(rows) * words_);
    for (int row = 0; row < rows; ++row)
      steps_[row] = Whole<8>::pack_weight(values + size_t(row) * width, width, &data_[row * words_]);
  }

  void fetch(int row) const {
    for (size_t i = 0; i < words_; i += 16) __builtin_prefetch(&data_[row * words_ + i]);
  }

  // A vector that is multiplied with rows; what is behind its end is nothing.
  Rounding pack(const float* values, std::vector<uint32_t>& input) const {
    input.assign(words_, 0);
    return Whole<8>::pack_input(values, width, input.data());
  }

  // Its products with N rows.
  template <int N>
  void multiply(const std::vector<uint32_t>& input, Rounding rounding, const int (&rows)[N],
                float (&out)[N]) const {
    Ints sums[N] = {};
    for (size_t i = 0; i < words_; i += LANES) {
      const Ints values = load_ints(&input[i]);
      for (int n = 0; n < N; ++n)
        Whole<8>::add_products(sums[n], load_ints(&data_[rows[n] * words_ + i]), values);
    }
    for (int n = 0; n < N; ++n)
      out[n] = Whole<8>::value(sum(sums[n]), rounding.sum) * steps_[rows[n]] * rounding.step;
  }

  const int width;

 private:
  const size_t words_;  // of a row: a multiple of LANES
  std::vector<float> steps_;
  Pooled<uint32_t> data_;  // (rows, words)
};

class Shortlist {
 public:
  // As of `Gather`.
  Shortlist(const float* weight, const float* bias, int vocabulary, int width,
            const float* centroids, const float* norms, int clusters, const int64_t* offsets,
            const int32_t* tokens)
      : weights_(weight, vocabulary, width),
        centroids_(centroids, norms, clusters, width, offsets, tokens),
        bias_(vocabulary, 0.0f) {
    if (bias) bias_.assign(bias, bias + vocabulary);
  }

  int width() const { return weights_.width; }

  void prepare(int rows) { centroids_.prepare(rows); }

  // To be called before `best`; the caller waits in between.
  void measure(const Team& team, const float* in, int rows) { centroids_.measure(team, in, rows); }

  // The best of this thread's share of what is active after a state, without two symbols.
  Best best(const Team& team, const float* state, int row, int64_t never, int64_t nor) const {
    const int cluster = centroids_.nearest(row), size = centroids_.size(cluster);
    const int32_t* tokens = centroids_.begin(cluster);
    static thread_local std::vector<uint32_t> input;
    const Rounding rounding = weights_.pack(state, input);
    Best found = {0, -std::numeric_limits<float>::infinity()};
    const int end = team.end(size);
    for (int i = team.begin(size); i < end; i += AT_ONCE) {
      int rows[AT_ONCE];
      float scores[AT_ONCE];
      for (int n = 0; n < AT_ONCE; ++n) {
        rows[n] = tokens[std::min(i + n, end - 1)];
        if (i + n + AHEAD < end) weights_.fetch(tokens[i + n + AHEAD]);
      }
      weights_.multiply(input, rounding, rows, scores);
      for (int n = 0; n < AT_ONCE; ++n) {
        const float score = scores[n] + bias_[rows[n]];
        if (score > found.score && rows[n] != never && rows[n] != nor) found = {rows[n], score};
      }
    }
    return found;
  }

 private:
  static constexpr int AT_ONCE = 4, AHEAD = 16;

  const RoundedRows weights_;
  Centroids centroids_;
  std::vector<float> bias_;
};

}  // namespace native
