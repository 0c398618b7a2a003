// Drafts of the verifier itself, with its weights rounded.
#pragma once

#include <algorithm>

#include "decoding/rows.h"
#include "engine/native/stack.h"
#include "vocab/shortlist.h"

namespace native {

struct Monologue {
  Rows rows;
  Call call;   // of the verifier: positions, cache and source
  int block;
  int never;               // a symbol that is not drafted
  int64_t eos;               // ends a draft
  int64_t min_len, max_len;  // as in `Round`
  Shortlist* shortlist;    // knows which symbols come into question, and scores those; or null
  int64_t* draft;          // (count, block) what comes of it, rubbish beyond the lengths
  int64_t* draft_lengths;  // (count)
};

// Drafts token by token with a copy of the verifier whose weights are rounded. It reads the
// verifier's cache, and puts its own entries where the verifier will put the right ones.
class Speaker {
 public:
  // projection: of all symbols; not read with a shortlist.
  void run(Stack& stack, const Linear* projection, const Monologue& monologue, int threads) {
    const Rows& rows = monologue.rows;
    const int count = rows.count;
    tokens_.resize(count);
    starts_.assign(rows.lengths, rows.lengths + count);
    for (int row = 0; row < count; ++row) {
      tokens_[row] = rows.tokens[size_t(row) * rows.room + rows.lengths[row]];
      monologue.draft_lengths[row] = 0;
    }
    hidden_.resize(size_t(count) * stack.dim);
    if (monologue.shortlist) {
      monologue.shortlist->prepare(count);
    } else {
      values_.resize(size_t(count) * projection->outputs);
      narrow_.resize(projection->room(count));
    }
    best_.resize(size_t(count) * threads);
    Call call = monologue.call;
    call.rows = count;
    call.width = call.token_stride = 1;
    call.tokens = tokens_.data();
    call.starts = starts_.data();
    call.out = hidden_.data();
    stack.prepare(call, threads);
    speaking_ = true;
    Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      for (int place = 0; place < monologue.block; ++place) {
        stack.run(team, call);
        team.wait();
        if (monologue.shortlist) {
          look_up(team, monologue, place);
        } else {
          look_through(team, *projection, monologue, place);
        }
        team.wait();
        if (team.index == 0) {
          speaking_ = false;
          for (int row = 0; row < count; ++row) add(monologue, row, place, team.size);
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
  static bool early(const Monologue& monologue, int row, int place) {
    return monologue.rows.lengths[row] + place < monologue.min_len;
  }

  // Each thread scores a part of the shortlist, and notes the best.
  void look_up(const Team& team, const Monologue& monologue, int place) {
    Shortlist& shortlist = *monologue.shortlist;
    const int count = monologue.rows.count;
    shortlist.measure(team, hidden_.data(), count);
    team.wait();
    for (int row = 0; row < count; ++row)
      best_[size_t(row) * team.size + team.index] =
          shortlist.best(team, &hidden_[size_t(row) * shortlist.width()], row, monologue.never,
                         early(monologue, row, place) ? monologue.eos : -1);
  }

  // Each thread scores a part of all symbols, and notes the best.
  void look_through(const Team& team, const Linear& projection, const Monologue& monologue, int place) {
    const int vocabulary = projection.outputs, count = monologue.rows.count;
    projection.run(team, hidden_.data(), projection.inputs, count, narrow_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    const int begin = projection.begin(team), size = projection.end(team) - begin;
    const float nothing = -std::numeric_limits<float>::infinity();
    for (int row = 0; row < count; ++row) {
      float* values = &values_[size_t(row) * vocabulary + begin];
      const auto rule_out = [&](int64_t symbol) {
        if (begin <= symbol && symbol < begin + size) values[symbol - begin] = nothing;
      };
      rule_out(monologue.never);
      if (early(monologue, row, place)) rule_out(monologue.eos);
      const int best = argmax(values, size);
      best_[size_t(row) * team.size + team.index] = {begin + best, size > 0 ? values[best] : nothing};
    }
  }

  // A row that has ended goes on with rubbish while others speak.
  void add(const Monologue& monologue, int row, int place, int threads) {
    const Best* first = &best_[size_t(row) * threads];
    const int64_t symbol = std::max_element(first, first + threads, [](const Best& a, const Best& b) {
                             return a.score < b.score;
                           })->symbol;
    const bool ended = monologue.draft_lengths[row] < place ||
                       (place > 0 && tokens_[row] == monologue.eos) ||
                       monologue.rows.lengths[row] + place >= monologue.max_len;
    tokens_[row] = symbol;
    ++starts_[row];
    if (ended) return;
    monologue.draft[size_t(row) * monologue.block + place] = symbol;
    ++monologue.draft_lengths[row];
    if (symbol != monologue.eos) speaking_ = true;
  }
};

}  // namespace native
