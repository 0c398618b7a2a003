// The tokens of drafted blocks, one place after another (specdec_plugin/models/chain_head.py).
#pragma once

#include <memory>

#include "vocab/candidates.h"
#include "engine/native/linear.h"

namespace native {

// Two projections of the same states: all scores of h, for a few places at once, say which symbols
// may come into question there; of those only, the scores of the chained states are computed.
class Chain {
 public:
  // The first three maps (A; B beside C; D) belong to the chain from now on, the rest does not.
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

  // Makes room for a call, before its threads start.
  void prepare(const ChainCall& call, int threads) {
    const int inputs = call.rows * call.block, vocabulary = projection->outputs;
    before_.assign(size_t(call.rows) * (token_dim + units), 0.0f);
    states_.resize(size_t(inputs) * units);
    inner_.resize(size_t(call.rows) * units);
    chosen_.resize(size_t(call.rows) * dim);
    values_.resize(size_t(call.rows) * TOGETHER * vocabulary);
    candidates_.resize(size_t(call.rows) * TOGETHER);
    narrow_.resize(std::max(from_state->room(inputs),
                            std::max(from_before->room(call.rows), projection->room(TOGETHER))));
    parts_.resize(size_t(call.rows) * threads);
    sure_.assign(call.rows, 1.0f);
    going_ = call.rows;
    for (int row = 0; row < call.rows; ++row) call.lengths[row] = call.block;
  }

  // By all threads. Everyone has waited at the end.
  void run(const Team& team, const ChainCall& call) {
    from_state->run(team, call.hidden, dim, call.rows * call.block, narrow_.data(),
                    {states_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int place = 0; place < call.block && going_ > 0; ++place) {
      if (place % TOGETHER == 0) look(team, call, place);
      link(team, call, place);
      choose(team, call, place);
    }
  }

 private:
  // Places whose candidates are looked for at once: few blocks go on for more.
  static constexpr int TOGETHER = 8, BEST = 32;

  // What one thread found: its best symbol, the score of it, the log of the sum of exponentials.
  struct Part {
    int best;
    float greatest, sum;
  };

  const int dim, token_dim, units;
  const std::unique_ptr<Linear> from_state, from_before, out;
  const Linear* const projection;
  const float *const weight, *const bias, *const embedding;
  const float scale;
  std::vector<Part> parts_;
  std::vector<float> before_, states_, inner_, chosen_, values_, sure_;
  std::vector<Candidates> candidates_;  // (rows, TOGETHER)
  std::vector<uint32_t> narrow_;
  int going_;

  // The candidates of the places from `first` on.
  void look(const Team& team, const ChainCall& call, int first) {
    const int vocabulary = projection->outputs, places = std::min(TOGETHER, call.block - first);
    if (!Candidates::all(vocabulary)) {
      for (int row = 0; row < call.rows; ++row) {
        const float* states = call.hidden + (size_t(row) * call.block + first) * dim;
        float* values = &values_[size_t(row) * TOGETHER * vocabulary];
        projection->run(team, states, dim, places, narrow_.data(),
                        {values, size_t(vocabulary), nullptr, Activation::none});
        team.wait();
      }
    }
    const int count = call.rows * places;
    for (int i = team.begin(count); i < team.end(count); ++i) {
      const size_t slot = size_t(i / places) * TOGETHER + i % places;
      candidates_[slot].find(&values_[slot * vocabulary], vocabulary, call.suppressed_id, BEST);
    }
    team.wait();
  }

  // chosen = h + D relu(A h + [B C] [e ; u]); the new u goes to the second half of `before_`.
  void link(const Team& team, const ChainCall& call, int place) {
    const size_t width = token_dim + units, step = size_t(call.block) * dim;
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row) {
      const int64_t token = place ? call.tokens[row * size_t(call.block) + place - 1] : call.last[row];
      for (int i = 0; i < token_dim; ++i) before_[row * width + i] = scale * embedding[token * token_dim + i];
    }
    team.wait();
    from_before->run(team, before_.data(), width, call.rows, narrow_.data(),
                     {inner_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      for (int i = 0; i < units; ++i) {
        const size_t input = size_t(row) * call.block + place;
        const float sum = inner_[row * size_t(units) + i] + states_[input * units + i];
        before_[row * width + token_dim + i] = sum > 0 ? sum : 0;
      }
    team.wait();
    out->run(team, before_.data() + token_dim, width, call.rows, narrow_.data(),
             {chosen_.data(), size_t(dim), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      for (int i = 0; i < dim; ++i)
        chosen_[row * size_t(dim) + i] += call.hidden[row * step + size_t(place) * dim + i];
    team.wait();
  }

  // The best candidate of every row. Each thread scores its share of them.
  void choose(const Team& team, const ChainCall& call, int place) {
    for (int row = 0; row < call.rows; ++row) {
      Candidates& candidates = candidates_[size_t(row) * TOGETHER + place % TOGETHER];
      const int begin = team.begin(candidates.count), end = team.end(candidates.count);
      const float* state = &chosen_[row * size_t(dim)];
      float* scores = candidates.scores;
      for (int i = begin; i < end; ++i) {
        const int symbol = candidates.symbols[i];
        scores[i] = dot(state, weight + size_t(symbol) * dim, dim) + (bias ? bias[symbol] : 0.0f);
      }
      Part& part = parts_[row * size_t(team.size) + team.index];
      const float nothing = -std::numeric_limits<float>::infinity();
      part = {0, nothing, nothing};
      if (begin == end) continue;
      if (call.confidence > 0) part.sum = log_sum_exp(scores + begin, end - begin);
      const int best = begin + argmax(scores + begin, end - begin);
      part.best = candidates.symbols[best];
      part.greatest = scores[best];
    }
    team.wait();
    for (int row = team.begin(call.rows); row < team.end(call.rows); ++row)
      decide(call, row, place, &parts_[row * size_t(team.size)], team.size);
    team.wait();
  }

  void decide(const ChainCall& call, int row, int place, const Part* parts, int count) {
    const Part* best = parts;
    for (int i = 1; i < count; ++i)
      if (parts[i].greatest > best->greatest) best = parts + i;
    call.tokens[row * size_t(call.block) + place] = best->best;
    if (call.confidence <= 0 || call.lengths[row] < call.block) return;
    float total = 0;
    for (int i = 0; i < count; ++i) total += std::exp(parts[i].sum - best->greatest);
    sure_[row] /= total;
    if (sure_[row] < call.confidence) {
      call.lengths[row] = place;
#pragma omp atomic
      --going_;
    }
  }
};

extern "C" void chain_run(Chain* chain, const ChainCall* call, int threads) {
  chain->prepare(*call, threads);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  chain->run(Team(barrier), *call);
}

}  // namespace native
