// A projection onto the active tokens of each state's cluster (Amer et al., 2022, section 2.3).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/native/linear.h"
#include "vocab/best.h"
#include "vocab/centroids.h"

namespace native {

class Gather : public Clustered<RowTable> {
 public:
  using Clustered::Clustered;

  // To be called before the threads call `run`.
  void prepare(int rows) {
    own_.resize(rows);
    centroids_.prepare(rows);
    if (rows > 1) wanted_.resize(vocabulary());
    if (!full_ && mostly_active(int64_t(rows) * centroids_.largest(), rows)) {
      full_.reset(new Linear(weights_[0], bias_.data(), vocabulary(), width(), Format::float32, 1));
      pack_active();
    }
  }

  // in: (rows, width); out: (rows, vocabulary), -inf at tokens that are not active. The caller
  // waits before it reads `out` or calls `normaliser`.
  void run(const Team& team, const float* in, int rows, float* out) {
    const int begin = team.begin(vocabulary()), end = team.end(vocabulary());
    if (rows == 1) std::fill(out + begin, out + end, NOTHING);
    centroids_.measure(team, in, rows);
    team.wait();
    // Every thread finds all clusters by itself, which takes less time than to wait for another.
    static thread_local std::vector<int> own;
    own.resize(rows);
    int64_t active = 0;
    for (int row = 0; row < rows; ++row) {
      own[row] = centroids_.nearest(row);
      active += centroids_.size(own[row]);
    }
    const bool all = mostly_active(active, rows);
    if (team.index == 0) {
      own_ = own;
      all_ = all;
    }
    if (rows == 1) {
      gather(team, in, own[0], out);
    } else if (all) {
      full_->run(team, in, width(), rows, nullptr,
                 {out, size_t(vocabulary()), nullptr, Activation::none});
      for (int row = 0; row < rows; ++row)
        mask(own[row], out + size_t(row) * vocabulary(), full_->begin(team), full_->end(team));
    } else {
      for (int first = 0; first < rows; first += BLOCK)
        spread(team, in + size_t(first) * width(), std::min(BLOCK, rows - first), &own[first],
               out + size_t(first) * vocabulary());
    }
  }

  // log Σ exp of a row's active scores. scores: (vocabulary).
  float normaliser(int row, const float* scores) const {
    if (all_) return log_sum_exp(scores, vocabulary());
    Aligned<float> active;
    const int own = own_[row];
    active.reserve(centroids_.size(own));
    for (const int32_t* token = centroids_.begin(own); token < centroids_.end(own); ++token)
      active.push_back(scores[*token]);
    return log_sum_exp(active.data(), int(active.size()));
  }

 private:
  // Rows that are computed together, a bit each. A weight is read once for all of them.
  static constexpr int BLOCK = 32;

  std::vector<int> own_;          // (rows) the cluster of each row
  bool all_ = false;              // whether all scores were computed, and then masked
  std::unique_ptr<Linear> full_;  // computes them
  Aligned<uint32_t> active_;      // (clusters, words of a bit for each symbol) masks them
  Aligned<uint32_t> wanted_;      // (vocabulary) the rows of a block that need a token's score

  // Whether all scores of some rows take less time than the active ones. All scores are computed in
  // tiles, five times as fast each; and up to nine rows take as long as the reading of the weights.
  bool mostly_active(int64_t active, int rows) const {
    return rows > 1 && 9 * active > int64_t(vocabulary()) * 2 * std::max(9, rows);
  }

  int words() const { return (vocabulary() + 31) / 32; }

  void pack_active() {
    active_.assign(size_t(centroids_.count()) * words(), 0u);
    for (int cluster = 0; cluster < centroids_.count(); ++cluster)
      for (const int32_t* token = centroids_.begin(cluster); token < centroids_.end(cluster);
           ++token)
        active_[size_t(cluster) * words() + *token / 32] |= 1u << *token % 32;
  }

  // Masks the scores of tokens in [begin, end) that are not active. begin: a multiple of LANES.
  void mask(int cluster, float* scores, int begin, int end) const {
    Ints lanes;
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] = 1 << lane;
    const uint32_t* words_of = &active_[size_t(cluster) * words()];
    int symbol = begin;
    for (; symbol + LANES <= end; symbol += LANES) {
      const Ints bits = Ints{} + int32_t(words_of[symbol / 32] >> symbol % 32);
      store(scores + symbol, (bits & lanes) != 0 ? load(scores + symbol) : splat(NOTHING));
    }
    for (; symbol < end; ++symbol)
      if (!(words_of[symbol / 32] >> symbol % 32 & 1)) scores[symbol] = NOTHING;
  }

  // The scores of one state: this thread's share of the cluster's tokens.
  void gather(const Team& team, const float* state, int cluster, float* out) const {
    const int32_t* tokens = centroids_.begin(cluster);
    const int size = centroids_.size(cluster), end = team.end(size);
    for (int i = team.begin(size); i < end; i += AT_ONCE) {
      const float* others[AT_ONCE];
      float found[AT_ONCE];
      for (int n = 0; n < AT_ONCE; ++n) {
        others[n] = weights_[tokens[std::min(i + n, end - 1)]];
        if (i + n + 2 * AT_ONCE < end) weights_.prefetch(tokens[i + n + 2 * AT_ONCE]);
      }
      products<AT_ONCE>(state, others, weights_.width, found);
      for (int n = 0; n < AT_ONCE && i + n < end; ++n)
        out[tokens[i + n]] = found[n] + bias_[tokens[i + n]];
    }
  }

  // The scores of several states: this thread's share of the vocabulary.
  void spread(const Team& team, const float* in, int rows, const int* own, float* out) {
    const int vocabulary = this->vocabulary();
    const int begin = team.begin(vocabulary), end = team.end(vocabulary);
    std::fill(wanted_.begin() + begin, wanted_.begin() + end, 0u);
    for (int row = 0; row < rows; ++row) {
      float* scores = out + size_t(row) * vocabulary;
      std::fill(scores + begin, scores + end, NOTHING);
      const int32_t* last = centroids_.end(own[row]);
      const int32_t* token = std::lower_bound(centroids_.begin(own[row]), last, begin);
      for (; token < last && *token < end; ++token) wanted_[*token] |= 1u << row;
    }
    for (int token = begin; token < end; ++token) {
      if (!wanted_[token]) continue;
      int indices[BLOCK], count = 0;
      for (uint32_t left = wanted_[token]; left; left &= left - 1)
        indices[count++] = __builtin_ctz(left);
      for (int i = 0; i < count; i += AT_ONCE) {
        const float* others[AT_ONCE];
        float found[AT_ONCE];
        for (int n = 0; n < AT_ONCE; ++n)
          others[n] = in + size_t(indices[std::min(i + n, count - 1)]) * weights_.width;
        products<AT_ONCE>(weights_[token], others, weights_.width, found);
        for (int n = 0; n < AT_ONCE && i + n < count; ++n)
          out[size_t(indices[i + n]) * vocabulary + token] = found[n] + bias_[token];
      }
    }
  }
};

// in: (rows, width); out: (rows, vocabulary). normalisers: (rows) log Σ exp of each row. Afterwards
// the score of `suppressed_id` is -inf, unless `suppressed_id` is negative.
extern "C" void gather_run(Gather* gather, const float* in, int rows, int suppressed_id, float* out,
                           float* normalisers, int threads) {
  gather->prepare(rows);
  parallel(threads, [&](const Team& team) {
    gather->run(team, in, rows, out);
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      float* scores = out + size_t(row) * gather->vocabulary();
      normalisers[row] = gather->normaliser(row, scores);
      if (suppressed_id >= 0) scores[suppressed_id] = NOTHING;
    }
  });
}

}  // namespace native
