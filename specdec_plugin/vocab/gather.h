// A projection on the active tokens of each state's cluster (Amer et al., 2022, section 2.3).
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "vocab/centroids.h"
#include "engine/native/linear.h"

namespace native {

class Gather {
 public:
  // weight: (vocabulary, width); bias: (vocabulary) or null. The rest: see `Centroids`.
  Gather(const float* weight, const float* bias, int vocabulary, int width, const float* centroids,
         const float* norms, int clusters, const int64_t* offsets, const int32_t* tokens)
      : weights_(weight, vocabulary, width),
        centroids_(centroids, norms, clusters, width, offsets, tokens),
        bias_(vocabulary, 0.0f) {
    if (bias) bias_.assign(bias, bias + vocabulary);
  }

  int vocabulary() const { return weights_.rows; }
  int width() const { return weights_.width; }

  // Makes room for so many rows, before threads call `run`.
  void prepare(int rows) {
    own_.resize(rows);
    centroids_.prepare(rows);
    if (rows > 1) wanted_.resize(vocabulary());
    if (!full_ && is_much(int64_t(rows) * centroids_.largest(), rows)) {
      full_.reset(new Linear(weights_[0], bias_.data(), vocabulary(), width(), Format::float32));
      note_active();
    }
  }

  // in: (rows, width); out: (rows, vocabulary), -inf where nothing is active. The caller waits
  // before it reads `out`, or asks for a normaliser.
  void run(const Team& team, const float* in, int rows, float* out) {
    const int begin = team.begin(vocabulary()), end = team.end(vocabulary());
    if (rows == 1) std::fill(out + begin, out + end, NOTHING);
    centroids_.measure(team, in, rows);
    team.wait();
    // Every thread finds all clusters for itself, sooner than it could wait for another.
    static thread_local std::vector<int> own;
    own.resize(rows);
    int64_t active = 0;
    for (int row = 0; row < rows; ++row) {
      own[row] = centroids_.nearest(row);
      active += centroids_.size(own[row]);
    }
    const bool all = is_much(active, rows);
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
        rule_out(own[row], out + size_t(row) * vocabulary(), full_->begin(team), full_->end(team));
    } else {
      for (int first = 0; first < rows; first += BLOCK)
        spread(team, in + size_t(first) * width(), std::min(BLOCK, rows - first), &own[first],
               out + size_t(first) * vocabulary());
    }
  }

  // log Σ exp of a row's active scores. scores: (vocabulary).
  float normaliser(int row, const float* scores) const {
    if (all_) return log_sum_exp(scores, vocabulary());
    std::vector<float> active;
    const int own = own_[row];
    active.reserve(centroids_.size(own));
    for (const int32_t* token = centroids_.begin(own); token < centroids_.end(own); ++token)
      active.push_back(scores[*token]);
    return log_sum_exp(active.data(), int(active.size()));
  }

 private:
  // Rows that are computed together, a bit for each; each weight is read once for all of them.
  static constexpr int BLOCK = 32;
  static constexpr int AT_ONCE = 4;
  static constexpr float NOTHING = -std::numeric_limits<float>::infinity();

  const RowTable weights_;
  Centroids centroids_;
  std::vector<float> bias_;
  std::vector<int> own_;          // (rows) the cluster of each
  bool all_ = false;              // whether all scores were computed, and then ruled out
  std::unique_ptr<Linear> full_;  // for that
  std::vector<uint32_t> active_;  // (clusters, words of a bit for each symbol), for that
  std::vector<uint32_t> wanted_;  // (vocabulary) by which rows of a block

  // Whether all scores of so many rows take less time than those that are active: they are computed
  // by tiles, five times as fast each, and up to nine rows in the time of reading the weights.
  bool is_much(int64_t active, int rows) const {
    return rows > 1 && 9 * active > int64_t(vocabulary()) * 2 * std::max(9, rows);
  }

  int words() const { return (vocabulary() + 31) / 32; }

  void note_active() {
    active_.assign(size_t(centroids_.count()) * words(), 0u);
    for (int cluster = 0; cluster < centroids_.count(); ++cluster)
      for (const int32_t* token = centroids_.begin(cluster); token < centroids_.end(cluster); ++token)
        active_[size_t(cluster) * words() + *token / 32] |= 1u << *token % 32;
  }

  // Takes the scores from begin, a multiple of LANES, to end away where the cluster has no active
  // token.
  void rule_out(int cluster, float* scores, int begin, int end) const {
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

  // One state: this thread's share of its cluster's tokens.
  void gather(const Team& team, const float* state, int cluster, float* out) const {
    const int32_t* tokens = centroids_.begin(cluster);
    const int size = centroids_.size(cluster), end = team.end(size);
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
      float* scores = out + size_t(row) * vocabulary;
      std::fill(scores + begin, scores + end, NOTHING);
      const int32_t* last = centroids_.end(own[row]);
      const int32_t* token = std::lower_bound(centroids_.begin(own[row]), last, begin);
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

// in: (rows, width); out: (rows, vocabulary); normalisers: (rows) the log of the sum of exponentials of
// each row. Afterwards the output `suppressed_id` is ruled out, unless it is negative.
extern "C" void gather_run(Gather* gather, const float* in, int rows, int suppressed_id, float* out,
                           float* normalisers, int threads) {
  gather->prepare(rows);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  {
    const Team team(barrier);
    gather->run(team, in, rows, out);
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      float* scores = out + size_t(row) * gather->vocabulary();
      normalisers[row] = gather->normaliser(row, scores);
      if (suppressed_id >= 0) scores[suppressed_id] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace native
