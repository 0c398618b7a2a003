// The tokens of drafted blocks, one place after another (specdec_plugin/models/chain_head.py).
#pragma once

#include <memory>

#include "vocab/candidates.h"
#include "engine/native/linear.h"

namespace native {

// What a call works on.
struct Links {
  int rows, block;
  const float* states;  // (rows, block, dim) h
  const int64_t* last;  // (rows) the token before the block
  int never;            // a symbol that is not drafted, or -1
  float floor;          // a row stops before its tokens are all right with less probability
  int64_t* tokens;      // (rows, block)
  int64_t* lengths;     // (rows) tokens before the stop
};

// Two projections of the same states: all scores of h, for a few places at once, say which symbols
// may come into question there; of those only, the scores of the chained states are computed.
class Chain {
 public:
  int dim, token_dim, units;
  std::unique_ptr<Linear> from_state, from_before, out;  // A; B beside C; D
  const Linear* projection;
  const float* symbols;    // (vocabulary, dim) the weights of `projection`, which packs them
  const float* bias;       // (vocabulary) or null
  const float* embedding;  // (vocabulary, token_dim)
  float scale;

  // Makes room for a call, before its threads start.
  void prepare(const Links& links, int threads) {
    const int inputs = links.rows * links.block, vocabulary = projection->outputs;
    before_.assign(size_t(links.rows) * (token_dim + units), 0.0f);
    states_.resize(size_t(inputs) * units);
    inner_.resize(size_t(links.rows) * units);
    chosen_.resize(size_t(links.rows) * dim);
    values_.resize(size_t(links.rows) * TOGETHER * vocabulary);
    candidates_.resize(size_t(links.rows) * TOGETHER);
    narrow_.resize(std::max(from_state->room(inputs),
                            std::max(from_before->room(links.rows), projection->room(TOGETHER))));
    parts_.resize(size_t(links.rows) * threads);
    sure_.assign(links.rows, 1.0f);
    going_ = links.rows;
    for (int row = 0; row < links.rows; ++row) links.lengths[row] = links.block;
  }

  // By all threads. Everyone has waited at the end.
  void run(const Team& team, const Links& links) {
    from_state->run(team, links.states, dim, links.rows * links.block, narrow_.data(),
                    {states_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int place = 0; place < links.block && going_ > 0; ++place) {
      if (place % TOGETHER == 0) look(team, links, place);
      link(team, links, place);
      choose(team, links, place);
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

  std::vector<Part> parts_;
  std::vector<float> before_, states_, inner_, chosen_, values_, sure_;
  std::vector<Candidates> candidates_;  // (rows, TOGETHER)
  std::vector<uint32_t> narrow_;
  int going_;

  // The candidates of the places from `first` on.
  void look(const Team& team, const Links& links, int first) {
    const int vocabulary = projection->outputs, places = std::min(TOGETHER, links.block - first);
    if (!Candidates::all(vocabulary)) {
      for (int row = 0; row < links.rows; ++row) {
        const float* states = links.states + (size_t(row) * links.block + first) * dim;
        float* values = &values_[size_t(row) * TOGETHER * vocabulary];
        projection->run(team, states, dim, places, narrow_.data(),
                        {values, size_t(vocabulary), nullptr, Activation::none});
        team.wait();
      }
    }
    const int count = links.rows * places;
    for (int i = team.begin(count); i < team.end(count); ++i) {
      const size_t slot = size_t(i / places) * TOGETHER + i % places;
      candidates_[slot].find(&values_[slot * vocabulary], vocabulary, links.never, BEST);
    }
    team.wait();
  }

  // chosen = h + D relu(A h + [B C] [e ; u]); the new u goes to the second half of `before_`.
  void link(const Team& team, const Links& links, int place) {
    const size_t width = token_dim + units, step = size_t(links.block) * dim;
    for (int row = team.begin(links.rows); row < team.end(links.rows); ++row) {
      const int64_t token = place ? links.tokens[row * size_t(links.block) + place - 1] : links.last[row];
      for (int i = 0; i < token_dim; ++i) before_[row * width + i] = scale * embedding[token * token_dim + i];
    }
    team.wait();
    from_before->run(team, before_.data(), width, links.rows, narrow_.data(),
                     {inner_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(links.rows); row < team.end(links.rows); ++row)
      for (int i = 0; i < units; ++i) {
        const size_t input = size_t(row) * links.block + place;
        const float sum = inner_[row * size_t(units) + i] + states_[input * units + i];
        before_[row * width + token_dim + i] = sum > 0 ? sum : 0;
      }
    team.wait();
    out->run(team, before_.data() + token_dim, width, links.rows, narrow_.data(),
             {chosen_.data(), size_t(dim), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(links.rows); row < team.end(links.rows); ++row)
      for (int i = 0; i < dim; ++i)
        chosen_[row * size_t(dim) + i] += links.states[row * step + size_t(place) * dim + i];
    team.wait();
  }

  // The best candidate of every row. Each thread scores its share of them.
  void choose(const Team& team, const Links& links, int place) {
    for (int row = 0; row < links.rows; ++row) {
      Candidates& candidates = candidates_[size_t(row) * TOGETHER + place % TOGETHER];
      const int begin = team.begin(candidates.count), end = team.end(candidates.count);
      const float* state = &chosen_[row * size_t(dim)];
      float* scores = candidates.scores;
      for (int i = begin; i < end; ++i) {
        const int symbol = candidates.symbols[i];
        scores[i] = dot(state, symbols + size_t(symbol) * dim, dim) + (bias ? bias[symbol] : 0.0f);
      }
      Part& part = parts_[row * size_t(team.size) + team.index];
      const float nothing = -std::numeric_limits<float>::infinity();
      part = {0, nothing, nothing};
      if (begin == end) continue;
      if (links.floor > 0) part.sum = log_sum_exp(scores + begin, end - begin);
      const int best = begin + argmax(scores + begin, end - begin);
      part.best = candidates.symbols[best];
      part.greatest = scores[best];
    }
    team.wait();
    for (int row = team.begin(links.rows); row < team.end(links.rows); ++row)
      decide(links, row, place, &parts_[row * size_t(team.size)], team.size);
    team.wait();
  }

  void decide(const Links& links, int row, int place, const Part* parts, int count) {
    const Part* best = parts;
    for (int i = 1; i < count; ++i)
      if (parts[i].greatest > best->greatest) best = parts + i;
    links.tokens[row * size_t(links.block) + place] = best->best;
    if (links.floor <= 0 || links.lengths[row] < links.block) return;
    float total = 0;
    for (int i = 0; i < count; ++i) total += std::exp(parts[i].sum - best->greatest);
    sure_[row] /= total;
    if (sure_[row] < links.floor) {
      links.lengths[row] = place;
#pragma omp atomic
      --going_;
    }
  }
};

}  // namespace native
