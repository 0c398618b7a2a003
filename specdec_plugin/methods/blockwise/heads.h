// The next tokens of each row, read off a state of the verifier by proposal heads
// (specdec_plugin/models/proposal_heads.py).
#pragma once

#include <algorithm>
#include <memory>

#include "engine/native/attention.h"
#include "engine/native/linear.h"

namespace native {

// A few heads at a time: the next ones are asked if some draft goes on.
class Heads {
 public:
  const int dim;
  const bool joint;
  const int readers;  // attention heads of each head; 0: they do not read the source
  std::vector<std::unique_ptr<Linear>> query;  // Q_i, if they do
  std::vector<std::unique_ptr<Linear>> inner;  // A: one for all if joint, else each head's own
  std::vector<std::unique_ptr<Linear>> outer;  // B_i of each head

  Heads(int dim, bool joint, int readers) : dim(dim), joint(joint), readers(readers) {}

  void run(const Linear& projection, const HeadsCall& call, int threads) {
    prepare(projection, call, threads);
    Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      for (int first = 0; first < call.block && going_ > 0; first += TOGETHER) {
        const int heads = std::min(TOGETHER, call.block - first);
        look(team, call, first, heads);
        team.wait();
        score(team, projection, call, heads);
        team.wait();
        if (team.index == 0) decide(call, first, heads, team.size);
        team.wait();
      }
    }
  }

 private:
  // Heads at a time: all of them share one pass over the weights of the projection.
  static constexpr int TOGETHER = 4;

  // What one thread found: its best symbol, the score of it, the log of the sum of exponentials.
  struct Part {
    int best;
    float greatest, sum;
  };

  std::vector<float> queries_;  // (heads at a time, rows, source dim) Q h
  std::vector<float> known_;    // (heads at a time, rows, dim + source dim) h, and what they found
  std::vector<float> scores_;   // (threads, score_room_)
  size_t score_room_;
  std::vector<float> inner_;   // (rows, stride_) relu(A h)
  std::vector<float> states_;  // (heads at a time, rows, dim) z
  std::vector<float> values_, sure_;
  std::vector<Part> parts_;  // (heads at a time, rows, threads)
  std::vector<uint32_t> narrow_;
  size_t stride_, room_;
  int going_;

  void prepare(const Linear& projection, const HeadsCall& call, int threads) {
    size_t width = 0;
    room_ = projection.room(TOGETHER * call.rows);
    for (const auto& each : inner) {
      width += each->outputs;
      room_ = std::max(room_, each->room(call.rows));
    }
    for (const auto& each : outer) room_ = std::max(room_, each->room(call.rows));
    for (const auto& each : query) room_ = std::max(room_, each->room(call.rows));
    if (readers) {
      const size_t inputs = size_t(TOGETHER) * call.rows, source_dim = query[0]->outputs;
      queries_.resize(inputs * source_dim);
      known_.resize(inputs * (dim + source_dim));
      score_room_ = call.source_length + 2 * LANES;
      scores_.resize(score_room_ * threads);
    }
    stride_ = width + LANES;
    inner_.resize(call.rows * stride_);
    states_.resize(size_t(TOGETHER) * call.rows * dim);
    values_.resize(size_t(TOGETHER) * call.rows * projection.outputs);
    parts_.resize(size_t(TOGETHER) * call.rows * threads);
    // Products that nobody waits between have inputs of their own.
    narrow_.resize(TOGETHER * room_);
    sure_.assign(call.rows, 1.0f);
    going_ = call.rows;
    std::fill_n(call.draft_lengths, call.rows, int64_t(-1));
  }

  // known_ of some heads.
  void read(const Team& team, const HeadsCall& call, int first, int heads) {
    const int source_dim = query[0]->outputs, head_dim = source_dim / readers;
    for (int i = 0; i < heads; ++i)
      query[first + i]->run(team, call.hidden, dim, call.rows, narrow_.data() + i * room_,
                            {&queries_[size_t(i) * call.rows * source_dim], size_t(source_dim),
                             nullptr, Activation::none});
    team.wait();
    const float factor = 1.0f / std::sqrt(float(head_dim));
    const size_t one = size_t(call.source_length) * head_dim;
    const size_t plane = call.total_rows * readers * one;
    const int items = heads * call.rows * readers;
    for (int item = team.begin(items); item < team.end(items); ++item) {
      const size_t input = item / readers, reader = item % readers, row = input % call.rows;
      const size_t place = call.row_index ? call.row_index[row] : row;
      float* known = &known_[input * (dim + source_dim)];
      if (reader == 0) std::memcpy(known, call.hidden + row * dim, sizeof(float) * dim);
      const float* keys = call.source_kv + (place * readers + reader) * one;
      const float* mask = call.source_mask ? call.source_mask + place * call.source_length : nullptr;
      attend(&queries_[input * source_dim + reader * head_dim], factor, {keys, size_t(head_dim)},
             {keys + plane, size_t(head_dim)}, call.source_length, mask, head_dim,
             &scores_[team.index * score_room_], known + dim + reader * head_dim);
    }
    team.wait();
  }

  // z = h + B relu(A h) of some heads. The caller waits.
  void look(const Team& team, const HeadsCall& call, int first, int heads) {
    if (readers) read(team, call, first, heads);
    if (!joint || first == 0) {
      size_t shift = 0;
      const int count = joint ? 1 : heads;
      for (int i = 0; i < first && !joint; ++i) shift += inner[i]->outputs;
      for (int i = 0; i < count; ++i) {
        const Linear& map = *inner[joint ? 0 : first + i];
        const float* in = readers ? &known_[size_t(i) * call.rows * map.inputs] : call.hidden;
        map.run(team, in, map.inputs, call.rows, narrow_.data() + i * room_,
                {&inner_[shift], stride_, nullptr, Activation::relu});
        shift += map.outputs;
      }
      team.wait();
    }
    size_t shift = 0;
    for (int i = 0; i < first && !joint; ++i) shift += outer[i]->inputs;
    for (int i = 0; i < heads; ++i) {
      const Linear& map = *outer[first + i];
      map.run(team, &inner_[shift], stride_, call.rows, narrow_.data() + i * room_,
              {&states_[size_t(i) * call.rows * dim], size_t(dim), call.hidden, Activation::none});
      if (!joint) shift += map.inputs;
    }
  }

  // Each thread looks through the scores that it computes. The caller waits.
  void score(const Team& team, const Linear& projection, const HeadsCall& call, int heads) {
    const int vocabulary = projection.outputs, inputs = heads * call.rows;
    projection.run(team, states_.data(), dim, inputs, narrow_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    const int begin = projection.begin(team), end = projection.end(team);
    const float nothing = -std::numeric_limits<float>::infinity();
    for (int input = 0; input < inputs; ++input) {
      float* values = &values_[size_t(input) * vocabulary];
      Part& part = parts_[size_t(input) * team.size + team.index];
      part = {begin, nothing, nothing};
      if (begin == end) continue;
      if (call.confidence > 0) part.sum = log_sum_exp(values + begin, end - begin);
      if (begin <= call.suppressed_id && call.suppressed_id < end) values[call.suppressed_id] = nothing;
      part.best = begin + argmax(values + begin, end - begin);
      part.greatest = values[part.best];
    }
  }

  void decide(const HeadsCall& call, int first, int heads, int threads) {
    for (int row = 0; row < call.rows; ++row)
      for (int i = 0; i < heads && call.draft_lengths[row] < 0; ++i)
        add(call, row, first + i, &parts_[(size_t(i) * call.rows + row) * threads], threads);
  }

  // The token of one head, if the draft goes on.
  void add(const HeadsCall& call, int row, int place, const Part* parts, int threads) {
    const Part* best = std::max_element(
        parts, parts + threads, [](const Part& a, const Part& b) { return a.greatest < b.greatest; });
    bool unsure = false;
    if (call.confidence > 0) {
      float total = 0;
      for (int i = 0; i < threads; ++i) total += std::exp(parts[i].sum - best->greatest);
      sure_[row] /= total;
      unsure = sure_[row] < call.confidence && place >= call.min_draft;
    }
    if (!unsure) call.draft[size_t(row) * call.block + place] = best->best;
    const int length = unsure ? place : place + 1;
    if (unsure || best->best == call.eos || length == call.block) {
      call.draft_lengths[row] = length;
      --going_;
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

}  // extern "C"

}  // namespace native
