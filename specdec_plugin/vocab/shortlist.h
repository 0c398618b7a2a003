// The best of the active tokens of a state's cluster, for drafts (Amer et al., 2022, section 2.3).
#pragma once

#include <algorithm>
#include <vector>

#include "engine/native/formats.h"
#include "vocab/best.h"
#include "vocab/centroids.h"

namespace native {

// 8-bit weights whose rows are read one by one. `Linear` stores them in panels, here each row is
// one piece of memory.
class RoundedRows {
 public:
  RoundedRows(const float* values, int rows, int width)
      : width(width), words_((width + 4 * LANES - 1) / (4 * LANES) * LANES), steps_(rows) {
    data_.allocate(size_t(rows) * words_);
    for (int row = 0; row < rows; ++row)
      steps_[row] =
          Integers<8>::pack_weight(values + size_t(row) * width, width, &data_[row * words_]);
  }

  void prefetch(int row) const {
    for (size_t i = 0; i < words_; i += 16) __builtin_prefetch(&data_[row * words_ + i]);
  }

  // Rounds a vector that is multiplied with rows. Zeros fill its last words.
  Rounding pack(const float* values, Aligned<uint32_t>& input) const {
    input.assign(words_, 0);
    return Integers<8>::pack_input(values, width, input.data());
  }

  // Its products with N rows.
  template <int N>
  void multiply(const Aligned<uint32_t>& input, Rounding rounding, const int (&rows)[N],
                float (&out)[N]) const {
    Ints sums[N] = {};
    for (size_t i = 0; i < words_; i += LANES) {
      const Ints values = load_ints(&input[i]);
      for (int n = 0; n < N; ++n)
        Integers<8>::add_products(sums[n], load_ints(&data_[rows[n] * words_ + i]), values);
    }
    for (int n = 0; n < N; ++n)
      out[n] = Integers<8>::value(sum(sums[n]), rounding.sum) * steps_[rows[n]] * rounding.step;
  }

  const int width;

 private:
  const size_t words_;  // of a row: a multiple of LANES
  Aligned<float> steps_;
  Pooled<uint32_t> data_;  // (rows, words)
};

class Shortlist : public Clustered<RoundedRows> {
 public:
  using Clustered::Clustered;

  void prepare(int rows) { distances_.resize(size_t(rows) * centroids_.count()); }

  // To be called before `best`; the caller waits in between.
  void measure(const Team& team, const float* in, int rows) {
    centroids_.measure(team, in, rows, distances_.data());
  }

  // The best of this thread's share of the active tokens after a state, two symbols excluded.
  // adjust(symbols, scores, count) may change scores before they are compared.
  template <class Adjust>
  Best best(const Team& team, const float* state, int row, int64_t excluded, int64_t also_excluded,
            const Adjust& adjust) const {
    const int cluster = centroids_.nearest(distances_.data(), row);
    const int size = centroids_.size(cluster);
    const int32_t* tokens = centroids_.begin(cluster);
    static thread_local Aligned<uint32_t> input;
    const Rounding rounding = weights_.pack(state, input);
    Best found;
    const int end = team.end(size);
    for (int i = team.begin(size); i < end; i += AT_ONCE) {
      int rows[AT_ONCE];
      float scores[AT_ONCE];
      for (int n = 0; n < AT_ONCE; ++n) {
        rows[n] = tokens[std::min(i + n, end - 1)];
        if (i + n + AHEAD < end) weights_.prefetch(tokens[i + n + AHEAD]);
      }
      weights_.multiply(input, rounding, rows, scores);
      for (int n = 0; n < AT_ONCE; ++n) scores[n] += bias_[rows[n]];
      adjust(rows, scores, AT_ONCE);
      for (int n = 0; n < AT_ONCE; ++n) {
        const float score = scores[n];
        if (score > found.score && rows[n] != excluded && rows[n] != also_excluded)
          found = {rows[n], score};
      }
    }
    return found;
  }

 private:
  static constexpr int AHEAD = 16;  // rows that are prefetched

  Aligned<float> distances_;  // (rows, clusters)
};

}  // namespace native
