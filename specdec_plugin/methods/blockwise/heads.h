// The next tokens of each row, predicted from a state of the verifier (proposal_heads.py,
// `ProposalHeads`).
#pragma once

#include <algorithm>
#include <memory>

#include "decoding/iterations.h"
#include "decoding/sampling.h"
#include "engine/native/attention.h"
#include "engine/native/linear.h"
#include "vocab/best.h"

namespace native {

// Proposal heads run a few at a time; the next ones run if a draft has not ended.
class Heads {
 public:
  const int dim;
  const bool joint;
  const int readers;  // attention heads of each proposal head; 0: they do not read the source
  std::vector<std::unique_ptr<Linear>> query;  // Q_i, with readers
  std::vector<std::unique_ptr<Linear>> inner;  // A_i; one for all heads if joint
  std::vector<std::unique_ptr<Linear>> outer;  // B_i

  Heads(int dim, bool joint, int readers) : dim(dim), joint(joint), readers(readers) {}

  void run(const Linear& projection, const HeadsCall& call, int threads) {
    threads = useful_threads(call.rows * products(projection, call.block), WAITS, threads);
    prepare(projection, call, threads);
    parallel(threads, [&](const Team& team) {
      for (int first = 0; first < call.block && unfinished_ > 0; first += HEADS_AT_ONCE) {
        const int heads = std::min(HEADS_AT_ONCE, call.block - first);
        run_heads(team, call, first, heads);
        team.wait();
        score(team, projection, call, first, heads);
        team.wait();
        if (team.index == 0) decide(call, first, heads, team.size);
        team.wait();
      }
    });
  }

 private:
  static constexpr int WAITS = 5;  // of all heads, where they do not read the source

  Aligned<float> queries_;  // (heads at once, rows, source dim) Q h
  Aligned<float> joined_;   // (heads at once, rows, dim + source dim) h and what was read
  Aligned<float> scores_;   // (threads, score_stride_)
  size_t score_stride_;
  Aligned<float> inner_;   // (rows, stride_) relu(A h)
  Aligned<float> states_;  // (heads at once, rows, dim) z
  Aligned<float> values_, confidence_;
  std::vector<Best> parts_;  // (heads at once, rows, threads)
  Aligned<uint32_t> scratch_;
  size_t stride_, scratch_size_;
  int unfinished_;

  // Multiply-adds of a row's proposals.
  size_t products(const Linear& projection, int block) const {
    size_t all = block * projection.weights();
    for (const auto* maps : {&query, &inner, &outer})
      for (const auto& each : *maps) all += each->weights();
    return all;
  }

  void prepare(const Linear& projection, const HeadsCall& call, int threads) {
    size_t width = 0;
    scratch_size_ = projection.scratch_size(HEADS_AT_ONCE * call.rows);
    for (const auto& each : inner) width += each->outputs;
    for (const auto* maps : {&query, &inner, &outer})
      for (const auto& each : *maps)
        scratch_size_ = std::max(scratch_size_, each->scratch_size(call.rows));
    if (readers) {
      const size_t inputs = size_t(HEADS_AT_ONCE) * call.rows, source_dim = query[0]->outputs;
      queries_.resize(inputs * source_dim);
      joined_.resize(inputs * (dim + source_dim));
      score_stride_ = call.source_length + 2 * LANES;
      scores_.resize(score_stride_ * threads);
    }
    stride_ = stride_of(width);
    inner_.resize(call.rows * stride_);
    grow(states_, size_t(HEADS_AT_ONCE) * call.rows * dim);
    grow(values_, size_t(HEADS_AT_ONCE) * call.rows * projection.outputs);
    parts_.resize(size_t(HEADS_AT_ONCE) * call.rows * threads);
    // Products that threads compute without waiting in between have scratch of their own.
    scratch_.resize(HEADS_AT_ONCE * scratch_size_);
    confidence_.assign(call.rows, 1.0f);
    unfinished_ = call.rows;
    std::fill_n(call.draft_lengths, call.rows, int64_t(-1));
  }

  // Lets some heads read the source, and writes joined_.
  void read_source(const Team& team, const HeadsCall& call, int first, int heads) {
    const int source_dim = query[0]->outputs, head_dim = source_dim / readers;
    for (int i = 0; i < heads; ++i)
      query[first + i]->run(team, call.hidden, dim, call.rows, scratch_.data() + i * scratch_size_,
                            {&queries_[size_t(i) * call.rows * source_dim], size_t(source_dim),
                             nullptr, Activation::none});
    team.wait();
    const float factor = 1.0f / std::sqrt(float(head_dim));
    const size_t one = size_t(call.source_length) * head_dim;
    const size_t all = call.total_rows * readers * one;
    const int items = heads * call.rows * readers;
    for (int item = team.begin(items); item < team.end(items); ++item) {
      const size_t input = item / readers, reader = item % readers, row = input % call.rows;
      const size_t source_row = call.row_index ? call.row_index[row] : row;
      float* joined = &joined_[input * (dim + source_dim)];
      if (reader == 0) std::memcpy(joined, call.hidden + row * dim, sizeof(float) * dim);
      const float* keys = call.source_kv + (source_row * readers + reader) * one;
      const float* mask =
          call.source_mask ? call.source_mask + source_row * call.source_length : nullptr;
      attend(&queries_[input * source_dim + reader * head_dim], factor,
             Slots{keys, size_t(head_dim)}, Slots{keys + all, size_t(head_dim)}, call.source_length,
             mask, head_dim, &scores_[team.index * score_stride_],
             joined + dim + reader * head_dim);
    }
    team.wait();
  }

  // z = h + B relu(A h) of some heads. The caller waits.
  void run_heads(const Team& team, const HeadsCall& call, int first, int heads) {
    if (readers) read_source(team, call, first, heads);
    if (!joint || first == 0) {
      size_t shift = 0;
      const int count = joint ? 1 : heads;
      for (int i = 0; i < first && !joint; ++i) shift += inner[i]->outputs;
      for (int i = 0; i < count; ++i) {
        const Linear& map = *inner[joint ? 0 : first + i];
        const float* in = readers ? &joined_[size_t(i) * call.rows * map.inputs] : call.hidden;
        map.run(team, in, map.inputs, call.rows, scratch_.data() + i * scratch_size_,
                {&inner_[shift], stride_, nullptr, Activation::relu});
        shift += map.outputs;
      }
      team.wait();
    }
    size_t shift = 0;
    for (int i = 0; i < first && !joint; ++i) shift += outer[i]->inputs;
    for (int i = 0; i < heads; ++i) {
      const Linear& map = *outer[first + i];
      map.run(team, &inner_[shift], stride_, call.rows, scratch_.data() + i * scratch_size_,
              {&states_[size_t(i) * call.rows * dim], size_t(dim), call.hidden, Activation::none});
      if (!joint) shift += map.inputs;
    }
  }

  // Each thread finds the best of the symbols that it scores. The caller waits.
  void score(const Team& team, const Linear& projection, const HeadsCall& call, int first,
             int heads) {
    const int vocabulary = projection.outputs, inputs = heads * call.rows;
    projection.run(team, states_.data(), dim, inputs, scratch_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    if (draws(call.sampling)) {
      team.wait();
      for (int input = team.begin(inputs); input < team.end(inputs); ++input)
        draw(call, first, input, &values_[size_t(input) * vocabulary], vocabulary, team.size);
      return;
    }
    const int begin = projection.begin(team), end = projection.end(team);
    for (int input = 0; input < inputs; ++input) {
      float* values = &values_[size_t(input) * vocabulary];
      Best& part = parts_[size_t(input) * team.size + team.index];
      part = Best();
      if (begin == end) continue;
      if (call.confidence > 0) part.log_sum = log_sum_exp(values + begin, end - begin);
      if (begin <= call.suppressed_id && call.suppressed_id < end)
        values[call.suppressed_id] = MINUS_INFINITY;
      part.symbol = begin + argmax(values + begin, end - begin);
      part.score = values[part.symbol];
    }
  }

  // Draws the token of one head for one row, from the scores of all symbols.
  void draw(const HeadsCall& call, int first, int input, float* values, int vocabulary,
            int threads) {
    const Draw draw(call.sampling, input % call.rows, first + input / call.rows);
    cool(values, vocabulary, call.sampling.temperature);
    Best* parts = &parts_[size_t(input) * threads];
    std::fill_n(parts, threads, Best());
    if (call.confidence > 0 || call.sampling.top_p > 0)
      parts[0].log_sum = log_sum_exp(values, vocabulary);
    if (call.suppressed_id >= 0) values[call.suppressed_id] = MINUS_INFINITY;
    parts[0].symbol = draw.from(values, vocabulary, parts[0].log_sum);
    parts[0].score = values[parts[0].symbol];
  }

  void decide(const HeadsCall& call, int first, int heads, int threads) {
    for (int row = 0; row < call.rows; ++row)
      for (int i = 0; i < heads && call.draft_lengths[row] < 0; ++i)
        add(call, row, first + i, &parts_[(size_t(i) * call.rows + row) * threads], threads);
  }

  // Adds the token of one head to a draft that has not ended.
  void add(const HeadsCall& call, int row, int index, const Best* parts, int threads) {
    const Best& best = best_of(parts, threads);
    bool uncertain = false;
    if (call.confidence > 0) {
      confidence_[row] /= inverse_probability(parts, threads, best);
      uncertain = confidence_[row] < call.confidence && index >= call.min_draft;
    }
    if (!uncertain) call.draft[size_t(row) * call.block + index] = best.symbol;
    const int length = uncertain ? index : index + 1;
    if (uncertain || best.symbol == call.eos || length == call.block) {
      call.draft_lengths[row] = length;
      --unfinished_;
    }
  }
};

extern "C" {

// The linear maps belong to the heads from now on.
void heads_query(Heads* heads, Linear* query) { heads->query.emplace_back(query); }

void heads_inner(Heads* heads, Linear* inner) { heads->inner.emplace_back(inner); }

void heads_outer(Heads* heads, Linear* outer) { heads->outer.emplace_back(outer); }

void heads_run(Heads* heads, const Linear* projection, const HeadsCall* call, int threads) {
  heads->run(*projection, *call, threads);
}

void heads_iterate(Heads* heads, const Linear* projection, HeadsCall* call,
                   Verification* verification, Stack* verifier, const Linear* exact,
                   VerifyCall* verify, Iterations* iterations, int threads) {
  const auto draft = [=] {
    heads->run(*projection, *call, threads);
    return true;
  };
  const auto learn = [=] { call->hidden = verify->hidden; };
  iterate({verification, verifier, exact, verify, threads}, *iterations, draft, learn);
}

}  // extern "C"

}  // namespace native
