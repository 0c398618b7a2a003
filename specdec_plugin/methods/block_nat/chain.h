// The tokens of drafted blocks, chosen one after another (chain_head.py, `ChainHead`).
#pragma once

#include <memory>

#include "decoding/sampling.h"
#include "engine/native/linear.h"
#include "vocab/best.h"
#include "vocab/candidates.h"

namespace native {

// The states h of a few positions are projected at once, and the symbols with the greatest scores
// are candidates. Of the chained states only the candidates' scores are computed.
class Chain {
 public:
  // The chain owns the first three maps (A; B beside C; D) from now on, but nothing else.
  // weight: (vocabulary, dim) of `projection`, which packs it; bias: (vocabulary) or null;
  // embedding: (vocabulary, token_dim), multiplied with `scale`.
  Chain(Linear* from_state, Linear* from_before, Linear* out, const Linear* projection,
        const float* weight, const float* bias, const float* embedding, int token_dim, float scale)
      : dim(out->outputs),
        token_dim(token_dim),
        units(out->inputs),
        from_state(from_state),
        from_before(from_before),
        out(out),
        projection(projection),
        weight(weight),
        bias(bias),
        embedding(embedding),
        scale(scale) {}

  // To be called before the threads call `run`.
  void prepare(const ChainCall& call, int threads) {
    const int inputs = call.rows * call.block, vocabulary = projection->outputs;
    before_.assign(size_t(call.rows) * (token_dim + units), 0.0f);
    states_.resize(size_t(inputs) * units);
    inner_.resize(size_t(call.rows) * units);
    chosen_.resize(size_t(call.rows) * dim);
    values_.resize(size_t(call.rows) * CHAIN_POSITIONS * vocabulary);
    candidates_.resize(size_t(call.rows) * CHAIN_POSITIONS);
    scratch_.resize(std::max(
        from_state->scratch_size(inputs),
        std::max(from_before->scratch_size(call.rows), projection->scratch_size(CHAIN_POSITIONS))));
    parts_.resize(size_t(call.rows) * threads);
    confidence_.assign(call.rows, 1.0f);
    unfinished_ = call.rows;
    for (int row = 0; row < call.rows; ++row) call.lengths[row] = call.block;
  }

  // By all threads, which have waited for each other at the end.
  void run(const Team& team, const ChainCall& call) {
    from_state->run(team, call.hidden, dim, call.rows * call.block, scratch_.data(),
                    {states_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int position = 0; position < call.block && unfinished_ > 0; ++position) {
      if (position % CHAIN_POSITIONS == 0) find_candidates(team, call, position);
      link(team, call, position);
      choose(team, call, position);
    }
  }

 private:
  static constexpr int BEST = 32;  // see `Candidates::find`

  const int dim, token_dim, units;
  const std::unique_ptr<Linear> from_state, from_before, out;
  const Linear* const projection;
  const float *const weight, *const bias, *const embedding;
  const float scale;
  std::vector<Best> parts_;  // (rows, threads)
  std::vector<float> before_, states_, inner_, chosen_, values_, confidence_;
  std::vector<Candidates> candidates_;  // (rows, CHAIN_POSITIONS)
  std::vector<uint32_t> scratch_;
  std::atomic<int> unfinished_;

  // Finds the candidates of CHAIN_POSITIONS positions from `first` on.
  void find_candidates(const Team& team, const ChainCall& call, int first) {
    const int vocabulary = projection->outputs,
              positions = std::min(CHAIN_POSITIONS, call.block - first);
    if (!Candidates::all(vocabulary)) {
      for (int row = 0; row < call.rows; ++row) {
        const float* states = call.hidden + (size_t(row) * call.block + first) * dim;
        float* values = &values_[size_t(row) * CHAIN_POSITIONS * vocabulary];
        projection->run(team, states, dim, positions, scratch_.data(),
                        {values, size_t(vocabulary), nullptr, Activation::none});
        team.wait();
      }
    }
    const int count = call.rows * positions;
    for (int i = team.begin(count); i < team.end(count); ++i) {
      const size_t slot = size_t(i / positions) * CHAIN_POSITIONS + i % positions;
      candidates_[slot].find(&values_[slot * vocabulary], vocabulary, call.suppressed_id, BEST);
    }
    team.wait();
  }

  // chosen = h + D relu(A h + [B C] [e ; u]); the new u goes to the second half of `before_`.
  void link(const Team& team, const ChainCall& call, int position) {
    const size_t width = token_dim + units, step = size_t(call.block) * dim;
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row) {
      const int64_t token =
          position ? call.tokens[row * size_t(call.block) + position - 1] : call.last[row];
      for (int i = 0; i < token_dim; ++i)
        before_[row * width + i] = scale * embedding[token * token_dim + i];
    }
    team.wait();
    from_before->run(team, before_.data(), width, call.rows, scratch_.data(),
                     {inner_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      for (int i = 0; i < units; ++i) {
        const size_t input = size_t(row) * call.block + position;
        const float sum = inner_[row * size_t(units) + i] + states_[input * units + i];
        before_[row * width + token_dim + i] = sum > 0 ? sum : 0;
      }
    team.wait();
    out->run(team, before_.data() + token_dim, width, call.rows, scratch_.data(),
             {chosen_.data(), size_t(dim), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      for (int i = 0; i < dim; ++i)
        chosen_[row * size_t(dim) + i] += call.hidden[row * step + size_t(position) * dim + i];
    team.wait();
  }

  // The best candidate of every row. Each thread scores its share of them.
  void choose(const Team& team, const ChainCall& call, int position) {
    for (int row = 0; row < call.rows; ++row) {
      Candidates& candidates =
          candidates_[size_t(row) * CHAIN_POSITIONS + position % CHAIN_POSITIONS];
      const int begin = team.begin(candidates.count), end = team.end(candidates.count);
      const float* state = &chosen_[row * size_t(dim)];
      float* scores = candidates.scores;
      for (int i = begin; i < end; ++i) {
        const int symbol = candidates.symbols[i];
        scores[i] = dot(state, weight + size_t(symbol) * dim, dim) + (bias ? bias[symbol] : 0.0f);
      }
      Best& part = parts_[row * size_t(team.size) + team.index];
      part = Best();
      if (begin == end) continue;
      if (draws(call.sampling)) cool(scores + begin, end - begin, call.sampling.temperature);
      if (call.confidence > 0) part.log_sum = log_sum_exp(scores + begin, end - begin);
      const int best = begin + argmax(scores + begin, end - begin);
      part.symbol = candidates.symbols[best];
      part.score = scores[best];
    }
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      decide(call, row, position, &parts_[row * size_t(team.size)], team.size);
    team.wait();
  }

  // What is drawn among the candidates of one row.
  Best drawn(const ChainCall& call, int row, int position) const {
    const Candidates& candidates =
        candidates_[size_t(row) * CHAIN_POSITIONS + position % CHAIN_POSITIONS];
    const Draw draw(call.sampling, row, position);
    const float normaliser =
        call.sampling.top_p > 0 ? log_sum_exp(candidates.scores, candidates.count) : 0;
    const int found =
        draw.from(candidates.scores, candidates.count, normaliser, candidates.symbols);
    Best best;
    best.symbol = candidates.symbols[found];
    best.score = candidates.scores[found];
    return best;
  }

  // Combines what the threads found for one row.
  void decide(const ChainCall& call, int row, int position, const Best* parts, int threads) {
    const Best best = draws(call.sampling) ? drawn(call, row, position) : best_of(parts, threads);
    call.tokens[row * size_t(call.block) + position] = best.symbol;
    if (call.confidence <= 0 || call.lengths[row] < call.block) return;
    confidence_[row] /= inverse_probability(parts, threads, best);
    if (confidence_[row] < call.confidence) {
      call.lengths[row] = position;
      --unfinished_;
    }
  }
};

extern "C" void chain_run(Chain* chain, const ChainCall* call, int threads) {
  chain->prepare(*call, threads);
  parallel(threads, [&](const Team& team) { chain->run(team, *call); });
}

}  // namespace native
