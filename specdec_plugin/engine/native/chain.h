// The tokens of drafted blocks, one place after another (specdec_plugin/models/chain_head.py).
#pragma once

#include <memory>

#include "linear.h"

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

class Chain {
 public:
  int dim, token_dim, units;
  std::unique_ptr<Linear> from_state, from_before, out;  // A; B beside C; D
  const Linear* projection;
  const float* embedding;  // (vocabulary, token_dim)
  float scale;

  // Makes room for a call, before its threads start.
  void prepare(const Links& links, int threads) {
    const int inputs = links.rows * links.block, vocabulary = projection->outputs;
    before_.assign(size_t(links.rows) * (token_dim + units), 0.0f);
    states_.resize(size_t(inputs) * units);
    inner_.resize(size_t(links.rows) * units);
    chosen_.resize(size_t(links.rows) * dim);
    values_.resize(size_t(links.rows) * vocabulary);
    narrow_.resize(std::max(from_state->room(inputs),
                            std::max(from_before->room(links.rows), projection->room(links.rows))));
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
      link(team, links, place);
      project(team, links, place);
    }
  }

 private:
  // What one thread found: its best symbol, the score of it, the log of the sum of exponentials.
  struct Part {
    int best;
    float greatest, sum;
  };

  std::vector<Part> parts_;
  std::vector<float> before_, states_, inner_, chosen_, values_, sure_;
  std::vector<uint32_t> narrow_;
  int going_;

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

  // The best symbol of every row. Each thread looks through the scores that it computed.
  void project(const Team& team, const Links& links, int place) {
    const int vocabulary = projection->outputs;
    projection->run(team, chosen_.data(), dim, links.rows, narrow_.data(),
                    {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    const int begin = projection->begin(team), count = projection->end(team) - begin;
    for (int row = 0; row < links.rows; ++row) {
      const float nothing = -std::numeric_limits<float>::infinity();
      float* values = &values_[row * size_t(vocabulary) + begin];
      Part& part = parts_[row * size_t(team.size) + team.index];
      part.sum = links.floor > 0 && count > 0 ? log_sum_exp(values, count) : nothing;
      if (begin <= links.never && links.never < begin + count) values[links.never - begin] = nothing;
      part.best = argmax(values, count);
      part.greatest = count > 0 ? values[part.best] : nothing;
      part.best += begin;
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
