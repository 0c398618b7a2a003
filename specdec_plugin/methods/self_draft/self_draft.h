// Drafts of the verifier with rounded weights.
#pragma once

#include <algorithm>

#include "decoding/iterations.h"
#include "decoding/sampling.h"
#include "engine/native/stack.h"
#include "vocab/low_rank.h"
#include "vocab/shortlist.h"

namespace native {

// Drafts token by token with a stack of rounded weights. It reads the verifier's cache, and writes
// entries to slots that the verifier will overwrite.
class SelfDraft {
 public:
  // projection: scores all symbols; not used with a shortlist or factors of low rank.
  void run(const Stack& stack, const Linear* projection, const SelfDraftCall& call, int threads) {
    const int count = call.rows.count;
    const Linear* scoring = reduces(call) ? call.low_rank.up : projection;
    threads = stack.useful_threads(call.shortlist ? nullptr : scoring, count, threads);
    const StackCall inputs = prepare(stack, projection, call, threads);
    parallel(threads, [&](const Team& team) {
      for (int position = 0; position < call.block; ++position) {
        pass_.run(team, inputs);
        team.wait();
        score(team, projection, call, position);
        team.wait();
        if (team.index == 0) {
          unfinished_ = false;
          for (int row = 0; row < count; ++row) add(call, row, position, team.size);
        }
        team.wait();
        if (!unfinished_) break;
      }
    });
  }

 private:
  Pass pass_;
  bool unfinished_;
  std::vector<int64_t> tokens_, starts_;
  Aligned<float> hidden_, values_;
  std::vector<Best> best_;  // (rows, threads)
  LowRankSearch search_;
  Aligned<uint32_t> scratch_;

  // Makes room, and begins with the newest token of each row. Returns what the layers are fed.
  StackCall prepare(const Stack& stack, const Linear* projection, const SelfDraftCall& call,
                    int threads) {
    const RowsCall& rows = call.rows;
    const int count = rows.count;
    tokens_.resize(count);
    starts_.assign(rows.lengths, rows.lengths + count);
    for (int row = 0; row < count; ++row) {
      tokens_[row] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      call.draft_lengths[row] = 0;
    }
    grow(hidden_, size_t(count) * stack.dim);
    if (call.shortlist) {
      call.shortlist->prepare(count);
    } else {
      grow(values_, size_t(count) * projection->outputs);
      scratch_.resize(projection->scratch_size(count));
    }
    if (reduces(call)) search_.prepare(call.low_rank, count, threads);
    best_.resize(size_t(count) * threads);
    StackCall inputs = call.stack;
    inputs.rows = count;
    inputs.width = inputs.token_stride = 1;
    inputs.tokens = tokens_.data();
    inputs.starts = starts_.data();
    inputs.out = hidden_.data();
    pass_.prepare(stack, inputs, threads);
    unfinished_ = true;
    return inputs;
  }

  // The best symbols of each row, or what is drawn. The caller waits.
  void score(const Team& team, const Linear* projection, const SelfDraftCall& call, int position) {
    if (call.shortlist) {
      score_shortlist(team, call, position);
    } else if (reduces(call)) {
      score_likely(team, call, position);
    } else if (draws(call.rows.sampling)) {
      draw_from_all(team, *projection, call, position);
    } else {
      score_all(team, *projection, call, position);
    }
  }

  // Whether factors of low rank find the symbols. Where symbols are drawn, any may be the best.
  static bool reduces(const SelfDraftCall& call) {
    return call.low_rank.down && !call.shortlist && !draws(call.rows.sampling);
  }

  // Whether no end may come yet.
  static bool early(const SelfDraftCall& call, int row, int position) {
    return call.rows.lengths[row] + position < call.min_len;
  }

  // Each thread scores a part of the shortlist and notes the best.
  void score_shortlist(const Team& team, const SelfDraftCall& call, int position) {
    Shortlist& shortlist = *call.shortlist;
    const int count = call.rows.count;
    shortlist.measure(team, hidden_.data(), count);
    team.wait();
    const Sampling& sampling = call.rows.sampling;
    for (int row = 0; row < count; ++row) {
      const auto best = [&](const auto& adjust) {
        return shortlist.best(team, &hidden_[size_t(row) * shortlist.width()], row,
                              call.suppressed_id, early(call, row, position) ? call.eos : -1,
                              adjust);
      };
      Best& part = best_[size_t(row) * team.size + team.index];
      if (draws(sampling)) {
        // The cut is left out: few of the symbols that it removes are in the shortlist.
        part = best(Draw(sampling, row, position));
      } else {
        part = best([](const int*, float*, int) {});
      }
    }
  }

  // Each thread scores a part of all symbols roughly, and the likely ones of them exactly.
  void score_likely(const Team& team, const SelfDraftCall& call, int position) {
    const int count = call.rows.count, dim = call.low_rank.down->inputs;
    const size_t vocabulary = call.low_rank.up->outputs;
    search_.reduce(team, hidden_.data(), count);
    team.wait();
    search_.score(team, count, values_.data());
    for (int row = 0; row < count; ++row) {
      float* values = &values_[row * vocabulary];
      exclude(call, row, position, values, search_.begin(team), search_.end(team));
      search_.compare(team, row, values);
    }
    team.wait();
    for (int row = 0; row < count; ++row)
      best_[size_t(row) * team.size + team.index] =
          search_.best(team, row, &hidden_[size_t(row) * dim], &values_[row * vocabulary]);
  }

  // Draws for the rows in turn: each thread for some of them.
  void draw_from_all(const Team& team, const Linear& projection, const SelfDraftCall& call,
                     int position) {
    const int vocabulary = projection.outputs, count = call.rows.count;
    const Sampling& sampling = call.rows.sampling;
    projection.run(team, hidden_.data(), projection.inputs, count, scratch_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(count); row < team.end(count); ++row) {
      float* values = &values_[size_t(row) * vocabulary];
      cool(values, vocabulary, sampling.temperature);
      const float normaliser = sampling.top_p > 0 ? log_sum_exp(values, vocabulary) : 0;
      values[call.suppressed_id] = MINUS_INFINITY;
      if (early(call, row, position)) values[call.eos] = MINUS_INFINITY;
      const Draw draw(sampling, row, position);
      Best* parts = &best_[size_t(row) * team.size];
      std::fill_n(parts, team.size, Best());
      parts[0].symbol = draw.from(values, vocabulary, normaliser);
    }
  }

  // Each thread scores a part of all symbols and notes the best.
  void score_all(const Team& team, const Linear& projection, const SelfDraftCall& call,
                 int position) {
    const int vocabulary = projection.outputs, count = call.rows.count;
    projection.run(team, hidden_.data(), projection.inputs, count, scratch_.data(),
                   {values_.data(), size_t(vocabulary), nullptr, Activation::none});
    const int begin = projection.begin(team), size = projection.end(team) - begin;
    for (int row = 0; row < count; ++row) {
      exclude(call, row, position, &values_[size_t(row) * vocabulary], begin, begin + size);
      const float* values = &values_[size_t(row) * vocabulary + begin];
      const int best = argmax(values, size);
      best_[size_t(row) * team.size + team.index] = {begin + best,
                                                     size > 0 ? values[best] : MINUS_INFINITY};
    }
  }

  // Rules out symbols in [begin, end) that may not be drafted. values: (vocabulary).
  static void exclude(const SelfDraftCall& call, int row, int position, float* values, int begin,
                      int end) {
    const auto rule_out = [&](int64_t symbol) {
      if (begin <= symbol && symbol < end) values[symbol] = MINUS_INFINITY;
    };
    rule_out(call.suppressed_id);
    if (early(call, row, position)) rule_out(call.eos);
  }

  // Adds a token to a row. A row that has ended is fed undefined tokens until all have ended.
  void add(const SelfDraftCall& call, int row, int position, int threads) {
    const int64_t symbol = best_of(&best_[size_t(row) * threads], threads).symbol;
    const bool ended = call.draft_lengths[row] < position ||
                       (position > 0 && tokens_[row] == call.eos) ||
                       call.rows.lengths[row] + position >= call.max_len;
    tokens_[row] = symbol;
    ++starts_[row];
    if (ended) return;
    call.draft[size_t(row) * call.block + position] = symbol;
    ++call.draft_lengths[row];
    if (symbol != call.eos) unfinished_ = true;
  }
};

extern "C" void self_draft_run(SelfDraft* self_draft, Stack* stack, const Linear* projection,
                               const SelfDraftCall* call, int threads) {
  self_draft->run(*stack, projection, *call, threads);
}

extern "C" void self_draft_iterate(SelfDraft* self_draft, Stack* stack, const Linear* projection,
                                   const SelfDraftCall* call, Verification* verification,
                                   Stack* verifier, const Linear* exact, VerifyCall* verify,
                                   Iterations* iterations, int threads) {
  const auto draft = [=] {
    self_draft->run(*stack, projection, *call, threads);
    return true;
  };
  iterate({verification, verifier, exact, verify, threads}, *iterations, draft, [] {});
}

}  // namespace native
