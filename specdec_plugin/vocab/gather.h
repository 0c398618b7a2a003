// A projection onto the active tokens of each state's cluster (Amer et al., 2022, section 2.3).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/native/linear.h"
#include "vocab/best.h"
#include "vocab/centroids.h"

namespace native {

// What a team notes of its rows while it scores them.
struct GatherScratch {
  std::vector<int> own;      // (rows) the cluster of each row
  bool packed = false;       // whether all scores may be computed
  bool all = false;          // whether they were, and then masked
  Aligned<float> distances;  // (rows, clusters)
  Aligned<uint32_t> wanted;  // (vocabulary) the rows of a block that need a token's score
  Aligned<uint32_t> inputs;  // of the product of all scores
};

// Several teams may score at a time, each with its scratch.
class Gather : public Clustered<RowTable> {
 public:
  using Clustered::Clustered;

  // To be called before the threads of a team call `run`.
  void prepare(int rows, GatherScratch& scratch) {
    scratch.own.resize(rows);
    scratch.distances.resize(size_t(rows) * centroids_.count());
    if (rows > 1) scratch.wanted.resize(vocabulary());
    scratch.packed = wanted_once_.load(std::memory_order_relaxed);
    if (!scratch.packed) return;
    pack_once();
    scratch.inputs.resize(full_->scratch_size(rows));
  }

  // in: (rows, width); out: (rows, vocabulary), -inf at tokens that are not active. The caller
  // waits before it reads `out` or calls `normaliser`.
  void run(const Team& team, const float* in, int rows, float* out, GatherScratch& scratch) const {
    const int begin = team.begin(vocabulary()), end = team.end(vocabulary());
    if (rows == 1) std::fill(out + begin, out + end, MINUS_INFINITY);
    centroids_.measure(team, in, rows, scratch.distances.data());
    team.wait();
    // Every thread finds all clusters by itself, which takes less time than to wait for another.
    static thread_local std::vector<int> own;
    own.resize(rows);
    for (int row = 0; row < rows; ++row)
      own[row] = centroids_.nearest(scratch.distances.data(), row);
    const bool wanted = mostly_active(own), all = wanted && scratch.packed;
    if (team.index == 0) {
      scratch.own = own;
      scratch.all = all;
      if (wanted) wanted_once_.store(true, std::memory_order_relaxed);
    }
    if (rows == 1) {
      gather(team, in, own[0], out);
    } else if (all) {
      full_->run(team, in, width(), rows, scratch.inputs.data(),
                 {out, size_t(vocabulary()), nullptr, Activation::none});
      for (int row = 0; row < rows; ++row)
        mask(own[row], out + size_t(row) * vocabulary(), full_->begin(team), full_->end(team));
    } else {
      for (int first = 0; first < rows; first += BLOCK)
        spread(team, in + size_t(first) * width(), std::min(BLOCK, rows - first), &own[first],
               scratch.wanted.data(), out + size_t(first) * vocabulary());
    }
  }

  // log Σ exp of a row's active scores. scores: (vocabulary).
  float normaliser(int row, const float* scores, const GatherScratch& scratch) const {
    if (scratch.all) return log_sum_exp(scores, vocabulary());
    Aligned<float> active;
    const int own = scratch.own[row];
    active.reserve(centroids_.size(own));
    for (const int32_t* token = centroids_.begin(own); token < centroids_.end(own); ++token)
      active.push_back(scores[*token]);
    return log_sum_exp(active.data(), int(active.size()));
  }

 private:
  // Rows that are computed together, a bit each. A weight is read once for all of them.
  static constexpr int BLOCK = 32;
  static constexpr int AHEAD = 8;  // rows of weights that are prefetched

  // All scores take as much memory again as the weights, so they are packed after they would have
  // been faster once.
  mutable std::atomic<bool> wanted_once_{false};
  std::mutex packing_;
  std::unique_ptr<Linear> full_;  // computes all scores
  Aligned<uint32_t> masks_;       // (clusters, words of a bit for each symbol) the active ones

  // Whether all scores of some rows take less time than the active ones. own: (rows) clusters. The
  // unit is the time of all scores of few rows, for which the weights are read in their order. The
  // numbers were fitted to times of 2 to 28 rows with 32,408 symbols of 256 numbers.
  bool mostly_active(const std::vector<int>& own) const {
    const int rows = int(own.size()), blocks = (rows + BLOCK - 1) / BLOCK;
    double absent = 1;  // the part of the symbols that no row wants, were clusters independent
    double shares = 0;  // the parts that the rows want, added up
    for (int row = 0; row < rows; ++row) {
      const double share = double(centroids_.size(own[row])) / vocabulary();
      shares += share;
      if (first_of(own.data(), row)) absent *= 1 - share;
    }
    return rows > 1 && 2 * blocks * (1 - absent) + shares / 3 > std::max(1.0, 0.15 * rows);
  }

  // Whether no earlier row has the cluster of this one.
  static bool first_of(const int* own, int row) {
    return std::find(own, own + row, own[row]) == own + row;
  }

  int words() const { return (vocabulary() + 31) / 32; }

  // std::call_once would bind a wheel to glibc 2.34.
  void pack_once() {
    const std::lock_guard<std::mutex> lock(packing_);
    if (masks_.empty()) pack_full();
  }

  // Packs the weights for all scores, and the masks of each cluster.
  void pack_full() {
    const Matrix weight{weights_[0], Format::float32, size_t(width())};
    full_.reset(new Linear(weight, bias_.data(), vocabulary(), Format::float32, 1));
    masks_.assign(size_t(centroids_.count()) * words(), 0u);
    for (int cluster = 0; cluster < centroids_.count(); ++cluster)
      for (const int32_t* token = centroids_.begin(cluster); token < centroids_.end(cluster);
           ++token)
        masks_[size_t(cluster) * words() + *token / 32] |= 1u << *token % 32;
  }

  // Masks the scores of tokens in [begin, end) that are not active. begin: a multiple of LANES.
  void mask(int cluster, float* scores, int begin, int end) const {
    Ints lanes;
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] = 1 << lane;
    const uint32_t* words_of = &masks_[size_t(cluster) * words()];
    int symbol = begin;
    for (; symbol + LANES <= end; symbol += LANES) {
      const Ints bits = Ints{} + int32_t(words_of[symbol / 32] >> symbol % 32);
      store(scores + symbol, (bits & lanes) != 0 ? load(scores + symbol) : splat(MINUS_INFINITY));
    }
    for (; symbol < end; ++symbol)
      if (!(words_of[symbol / 32] >> symbol % 32 & 1)) scores[symbol] = MINUS_INFINITY;
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
  void spread(const Team& team, const float* in, int rows, const int* own, uint32_t* wanted,
              float* out) const {
    const int vocabulary = this->vocabulary();
    const int begin = team.begin(vocabulary), end = team.end(vocabulary);
    std::fill(wanted + begin, wanted + end, 0u);
    for (int row = 0; row < rows; ++row) {
      float* scores = out + size_t(row) * vocabulary;
      std::fill(scores + begin, scores + end, MINUS_INFINITY);
      if (!first_of(own, row)) continue;
      uint32_t those = 0;  // rows of the same cluster, a bit each
      for (int other = row; other < rows; ++other)
        those |= uint32_t(own[other] == own[row]) << other;
      const int32_t* last = centroids_.end(own[row]);
      const int32_t* token = std::lower_bound(centroids_.begin(own[row]), last, begin);
      for (; token < last && *token < end; ++token) wanted[*token] |= those;
    }
    static thread_local std::vector<int> tokens;
    tokens.clear();
    for (int token = begin; token < end; ++token)
      if (wanted[token]) tokens.push_back(token);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i + AHEAD < tokens.size()) weights_.prefetch(tokens[i + AHEAD]);
      score_token(in, tokens[i], wanted[tokens[i]], out);
    }
  }

  // The scores of one token after the states that want it.
  void score_token(const float* in, int token, uint32_t those, float* out) const {
    while (those) {
      int rows[AT_ONCE], count = 0;
      const float* states[AT_ONCE];
      for (; those && count < AT_ONCE; those &= those - 1, ++count) {
        rows[count] = __builtin_ctz(those);
        states[count] = in + size_t(rows[count]) * weights_.width;
      }
      float found[AT_ONCE];
      const float* weights = weights_[token];
      switch (count) {
        case 1: products<1>(weights, states, weights_.width, found); break;
        case 2: products<2>(weights, states, weights_.width, found); break;
        case 3: products<3>(weights, states, weights_.width, found); break;
        default: products<4>(weights, states, weights_.width, found);
      }
      for (int n = 0; n < count; ++n)
        out[size_t(rows[n]) * vocabulary() + token] = found[n] + bias_[token];
    }
  }
};

// in: (rows, width); out: (rows, vocabulary). normalisers: (rows) log Σ exp of each row. Afterwards
// the score of `suppressed_id` is -inf, unless `suppressed_id` is negative.
extern "C" void gather_run(Gather* gather, const float* in, int rows, int suppressed_id, float* out,
                           float* normalisers, int threads) {
  GatherScratch scratch;
  gather->prepare(rows, scratch);
  parallel(threads, [&](const Team& team) {
    gather->run(team, in, rows, out, scratch);
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      float* scores = out + size_t(row) * gather->vocabulary();
      normalisers[row] = gather->normaliser(row, scores, scratch);
      if (suppressed_id >= 0) scores[suppressed_id] = MINUS_INFINITY;
    }
  });
}

}  // namespace native
