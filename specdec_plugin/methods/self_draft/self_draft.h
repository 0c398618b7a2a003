// Drafts of the verifier itself, with its weights rounded.
#pragma once

#include <algorithm>

#include "engine/native/stack.h"
#include "vocab/shortlist.h"

namespace native {

// Drafts token by token with a copy of the verifier whose weights are rounded. It reads the
// verifier's cache, and puts its own entries where the verifier will put the right ones.
class SelfDraft {
 public:
  // projection: of all symbols; not read with a shortlist.
  void run(Stack& stack, const Linear* projection, const SelfDraftCall& call, int threads) {
    const Rows& rows = call.rows;
    const int count = rows.count;
    tokens_.resize(count);
    starts_.assign(rows.lengths, rows.lengths + count);
    for (int row = 0; row < count; ++row) {
      tokens_[row] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      call.draft_lengths[row] = 0;
    }
    hidden_.resize(size_t(count) * stack.dim);
    if (call.shortlist) {
      call.shortlist->prepare(count);
    } else {
      values_.resize(size_t(count) * projection->outputs);
      narrow_.resize(projection->room(count));
    }
    best_.resize(size_t(count) * threads);
    StackCall inputs = call.stack;
    inputs.rows = count;
    inputs.width = inputs.token_stride = 1;
    inputs.tokens = tokens_.data();
    inputs.starts = starts_.data();
    inputs.out = hidden_.data();
    stack.prepare(inputs, threads);
    speaking_ = true;
    Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      for (int place = 0; place < call.block; ++place) {
        stack.run(team, inputs);
        team.wait();
        if (call.shortlist) {
          look_up(team, call, place);
        } else {
          look_through(team, *projection, call, place);
        }
        team.wait();
        if (team.index == 0) {
          speaking_ = false;
          for (int row = 0; row < count; ++row) add(call, row, place, team.size);
        }
        team.wait();
        if (!speaking_) break;
      }
    }
  }

 private:
  bool speaking_;
  std::vector<int64_t> tokens_, starts_;
  std::vector<float> hidden_, values_;
  std::vector<Best> best_;  // (rows, threads)
  std::vector<uint32_t> narrow_;

  // An end may not come yet.
  static bool early(const SelfDraftCall& call, int row, int place) {
    return call.rows.lengths[row] + place < call.min_len;
  }

  // Each thread scores a part of the shortlist, and notes the best.
  void look_up(const Team& team, const SelfDraftCall& call, int place) {
    Shortlist& shortlist = *call.shortlist;
    const int count = call.rows.count;
    shortlist.measure(team, hidden_.data(), count);
    team.wait();
    for (int row = 0; row < count; ++row)
      best_[size_t(row) * team.size + team.index] =
          shortlist.best(team, &hidden_[size_t(row) * shortlist.width()], row, call.suppressed_id,
                         early(call, row, place) ? call.eos : -1);
  }

  // Each thread scores a part of all symbols, and notes the best.
  void look_through(const Team& team, const Linear& projection, const SelfDraftCall& call, int place) {
    const int vocabulary = projection.outputs, count = call.rows.count;
    projection.run(team, hidden_.data(), projection.inputs, count, narrow_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    const int begin = projection.begin(team), size = projection.end(team) - begin;
    const float nothing = -std::numeric_limits<float>::infinity();
    for (int row = 0; row < count; ++row) {
      float* values = &values_[size_t(row) * vocabulary + begin];
      const auto rule_out = [&](int64_t symbol) {
        if (begin <= symbol && symbol < begin + size) values[symbol - begin] = nothing;
      };
      rule_out(call.suppressed_id);
      if (early(call, row, place)) rule_out(call.eos);
      const int best = argmax(values, size);
      best_[size_t(row) * team.size + team.index] = {begin + best, size > 0 ? values[best] : nothing};
    }
  }

  // A row that has ended goes on with rubbish while others speak.
  void add(const SelfDraftCall& call, int row, int place, int threads) {
    const Best* first = &best_[size_t(row) * threads];
    const int64_t symbol = std::max_element(first, first + threads, [](const Best& a, const Best& b) {
                             return a.score < b.score;
                           })->symbol;
    const bool ended = call.draft_lengths[row] < place ||
                       (place > 0 && tokens_[row] == call.eos) ||
                       call.rows.lengths[row] + place >= call.max_len;
    tokens_[row] = symbol;
    ++starts_[row];
    if (ended) return;
    call.draft[size_t(row) * call.block + place] = symbol;
    ++call.draft_lengths[row];
    if (symbol != call.eos) speaking_ = true;
  }
};

extern "C" void self_draft_run(SelfDraft* self_draft, Stack* stack, const Linear* projection,
                               const SelfDraftCall* call, int threads) {
  self_draft->run(*stack, projection, *call, threads);
}

}  // namespace native
