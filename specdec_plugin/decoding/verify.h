// Verification of a draft: feeds it, scores it and accepts a prefix. The reference on PyTorch's
// operators is `VerifiedStep` in steps.py.
#pragma once

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "decoding/constraints.h"
#include "decoding/ensemble.h"
#include "decoding/late_normalisers.h"
#include "decoding/sampling.h"
#include "engine/native/stack.h"
#include "vocab/best.h"
#include "vocab/candidates.h"
#include "vocab/gather.h"
#include "vocab/mean_score.h"
#include "vocab/rescoring.h"
#include "vocab/state_sample.h"

namespace native {

// Feeds the newest token and the draft of each row. Appends the accepted tokens of the draft and
// the verifier's own next token.
class Verification {
  using Clock = std::chrono::steady_clock;

 public:
  // Whether a draft has a symbol that is not scored, and whose vector would be read anyway.
  static bool has_foreign(const VerifyCall& call, const Linear* projection) {
    const uint64_t symbols = vocabulary_of(call, projection);
    for (int row = 0; row < call.rows.count; ++row) {
      const int64_t* draft = call.draft + size_t(row) * call.block;
      const auto foreign = [=](int64_t symbol) { return uint64_t(symbol) >= symbols; };
      if (std::any_of(draft, draft + length_of(call, row), foreign)) return true;
    }
    return false;
  }

  // Forgets a batch that was not decoded to its end.
  void begin() { late_.clear(); }

  // projection: scores all symbols exactly; not used with a gather.
  void run(const Stack& stack, const Linear* projection, VerifyCall& call, int threads) {
    exact_ = projection;
    vocabulary_ = vocabulary_of(call, projection);
    dim_ = stack.dim;
    limit(call);
    prefilters_ = call.prefilter.rounded && inputs() <= call.prefiltered;
    const Linear* first = prefilters_ ? call.prefilter.rounded : projection;
    feed(call);
    make_room(call, first);
    const auto layers_done = score(stack, first, call, threads);
    for (int row = 0; row < call.rows.count; ++row) append(call, row);
    int64_t* const ends = call.ended + call.rows.count;
    if (projection && (late_.many() || std::find(call.ended, ends, 1) < ends))
      late_.subtract(*projection, call.rows, call.temperature, threads);
    call.scoring_seconds = std::chrono::duration<double>(Clock::now() - layers_done).count();
    count(call);
  }

 private:
  Pass pass_;
  OtherModels others_;
  LateNormalisers late_;
  GatherScratch gathered_;
  const Linear* exact_;  // scores symbols that a prefilter leaves
  int width_, vocabulary_, dim_;
  bool prefilters_;
  std::vector<int64_t> fed_, argmax_, rescored_;
  Aligned<float> hidden_, values_, normalisers_;
  Aligned<uint32_t> scratch_;

  static int vocabulary_of(const VerifyCall& call, const Linear* projection) {
    return call.gather ? call.gather->vocabulary() : projection->outputs;
  }

  // How many tokens of a row's draft there are, whatever a drafter tells.
  static int64_t length_of(const VerifyCall& call, int row) {
    return call.draft_lengths ? std::clamp<int64_t>(call.draft_lengths[row], 0, call.block) : 0;
  }

  int inputs() const { return int(fed_.size()); }  // rows, each with its width

  // Cuts drafts off at the length limit, and finds the width: the longest draft and one token.
  void limit(VerifyCall& call) {
    width_ = 1;
    for (int row = 0; row < call.rows.count; ++row) {
      const int64_t wanted = length_of(call, row);
      call.drafted[row] = std::min(wanted, call.rules.max_len - call.rows.lengths[row]);
      width_ = std::max(width_, 1 + int(call.drafted[row]));
    }
    // Any symbol will do behind the draft of a row.
    fed_.assign(size_t(call.rows.count) * width_, call.rules.eos);
  }

  // The newest token of each row, and its draft.
  void feed(const VerifyCall& call) {
    const RowsCall& rows = call.rows;
    for (int row = 0; row < rows.count; ++row) {
      int64_t* inputs_of = &fed_[size_t(row) * width_];
      inputs_of[0] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      const int64_t* draft = call.draft + size_t(row) * call.block;
      std::copy(draft, draft + call.drafted[row], inputs_of + 1);
    }
  }

  // first: scores all symbols, perhaps roughly.
  void make_room(const VerifyCall& call, const Linear* first) {
    grow(hidden_, size_t(inputs()) * dim_);
    grow(values_, size_t(inputs()) * vocabulary_);
    if (call.gather) {
      call.gather->prepare(inputs(), gathered_);
    } else {
      scratch_.resize(first->scratch_size(inputs()));
    }
    normalisers_.resize(inputs());
    argmax_.resize(inputs());
    rescored_.resize(inputs());
  }

  // Runs the layers and ranks the symbols of each input; returns when the layers were done.
  Clock::time_point score(const Stack& stack, const Linear* first, const VerifyCall& call,
                          int threads) {
    const int count = inputs();
    threads = stack.useful_threads(call.gather ? nullptr : first, count, threads);
    StackCall fed = call.stack;
    fed.rows = call.rows.count;
    fed.width = fed.token_stride = width_;
    fed.tokens = fed_.data();
    fed.starts = call.rows.lengths;
    fed.out = hidden_.data();
    pass_.prepare(stack, fed, threads);
    others_.prepare(call.others, call.other_models, fed, threads);
    Clock::time_point layers_done;
    parallel(threads, [&](const Team& team) {
      pass_.run(team, fed);
      others_.layers(team);
      team.wait();
      if (team.index == 0) layers_done = Clock::now();
      if (call.gather) {
        call.gather->run(team, hidden_.data(), count, values_.data(), gathered_);
      } else {
        first->run(team, hidden_.data(), dim_, count, scratch_.data(),
                   {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
      }
      others_.project(team);
      team.wait();
      for (int input = team.begin(count); input < team.end(count); ++input) rank(call, input);
    });
    return layers_done;
  }

  // Tells what the prefilter was good for.
  void count(VerifyCall& call) const {
    call.certified = call.rescored = call.certain = 0;
    if (!prefilters_) return;
    call.certified = inputs();
    call.rescored = std::accumulate(rescored_.begin(), rescored_.end(), int64_t(0));
    call.certain = std::count(rescored_.begin(), rescored_.end(), 1);
  }

  // Whether normalisers are those of all exact scores, which the prefilter does not give.
  bool late(const VerifyCall& call) const { return prefilters_ && call.exact_scores; }

  // The normaliser of one input's scores, and then the argmax of the symbols that may be chosen.
  void rank(const VerifyCall& call, int input) {
    float* values = &values_[size_t(input) * vocabulary_];
    const int64_t position = call.rows.lengths[input / width_] + input % width_;
    const int64_t only = prefixed(call.rules, input / width_, position);
    const bool early = ends_early(call.rules, position);
    normalisers_[input] =
        prefilters_ ? rescore(call, input, values, only, early) : normalise(call, input, values);
    values[call.rules.unk] -= call.rules.unk_penalty;
    values[call.rules.suppressed_id] = MINUS_INFINITY;
    if (position >= call.rules.max_len) {
      values[call.rules.eos] = forced_score(values[call.rules.eos], normalisers_[input]);
      argmax_[input] = call.rules.eos;
      return;
    }
    if (early) values[call.rules.eos] = MINUS_INFINITY;
    argmax_[input] =
        only >= 0 ? force(only, values, normalisers_[input]) : choose(call, input, values);
  }

  // Cools the scores of one input. What it returns is to be subtracted from them, now or later.
  float normalise(const VerifyCall& call, int input, float* values) {
    if (call.other_models > 0) {
      others_.log_probabilities(input, call.temperature, values, vocabulary_);
      return 0;
    }
    cool(values, vocabulary_, call.temperature);
    return call.gather ? call.gather->normaliser(input, values, gathered_)
                       : log_sum_exp(values, vocabulary_);
  }

  // Leaves one choice. Its score stays, unless a clustered projection left it out.
  int64_t force(int64_t only, float* values, float normaliser) const {
    const float kept = forced_score(values[only], normaliser);
    std::fill_n(values, vocabulary_, MINUS_INFINITY);
    values[only] = kept;
    return only;
  }

  // The greatest score's symbol, that of a preferred symbol raised for a moment.
  int preferred(const VerifyCall& call, int input, float* values) const {
    const int64_t row = input / width_;
    const int64_t symbol = call.preferred[row * (call.block + 1) + input % width_];
    if (symbol < 0) return argmax(values, vocabulary_);
    const float kept = values[symbol];
    values[symbol] = kept + call.preference;
    const int best = argmax(values, vocabulary_);
    values[symbol] = kept;
    return best;
  }

  // The greatest score's symbol, or the one that is drawn.
  int choose(const VerifyCall& call, int input, float* values) const {
    if (call.preferred) return preferred(call, input, values);
    const Sampling& sampling = call.rows.sampling;
    if (!draws(sampling)) return argmax(values, vocabulary_);
    const Draw draw(sampling, input / width_, input % width_);
    return draw.from(values, vocabulary_, normalisers_[input]);
  }

  // Replaces a prefilter's scores of one input by exact ones, where those are read; cools all. What
  // it returns is to be subtracted from them. only: see `prefixed`. early: whether the end of a
  // sentence may not come yet.
  float rescore(const VerifyCall& call, int input, float* values, int64_t only, bool early) {
    const float* state = &hidden_[size_t(input) * dim_];
    const bool approximates = call.scored && !call.exact_scores;
    if (approximates) shift_to_mean(values, vocabulary_, state, dim_, call.prefilter.mean);
    cool(values, vocabulary_, call.temperature);
    Rescoring exact({*exact_, call.prefilter.weights}, call.temperature, state, values);
    if (only >= 0) {
      exact.rescore(only);
      rescored_[input] = call.beta == 1;
    } else if (call.beta == 1) {
      rescore_possible(call, input, values, early, exact);
    }
    if (approximates && call.beta == 1) exact.rescore_likely();
    if (call.beta > 1) rescore_best(call, values, exact);
    // The drafted symbol is read in any case, and the end of a sentence.
    exact.rescore(call.rules.eos);
    if (input % width_ + 1 < width_) exact.rescore(fed_[input + 1]);
    return call.beta == 1 ? exact.normaliser() : log_sum_exp(values, vocabulary_);
  }

  // Scores all symbols exactly that might be the best.
  void rescore_possible(const VerifyCall& call, int input, float* values, bool early,
                        Rescoring& exact) {
    // Symbols that may not be chosen must not raise the bound.
    const float suppressed = std::exchange(values[call.rules.suppressed_id], MINUS_INFINITY),
                end = values[call.rules.eos];
    if (early) values[call.rules.eos] = MINUS_INFINITY;
    rescored_[input] = exact.rescore_possible(call.prefilter.error_bound);
    values[call.rules.suppressed_id] = suppressed;
    values[call.rules.eos] = end;
  }

  // Scores the best symbols exactly. Rounded scores are off by some tenths, so that several times
  // as many are scored as may be accepted.
  void rescore_best(const VerifyCall& call, const float* values, Rescoring& exact) const {
    Candidates candidates;
    candidates.find(values, vocabulary_, -1, std::clamp(4 * call.beta, 32, 96));
    for (int i = 0; i < candidates.count; ++i) exact.rescore(candidates.symbols[i]);
  }

  // Whether a drafted token may stand in place of the argmax.
  bool accepts(const VerifyCall& call, int input, int64_t token) const {
    const int64_t best = argmax_[input];
    if (token == best) return true;
    const float* values = &values_[size_t(input) * vocabulary_];
    if (!std::isfinite(values[token])) return false;
    if (input % width_ + 1 < call.min_block && token != call.rules.eos && best != call.rules.eos)
      return true;
    if (call.numbers) return std::fabs(call.numbers[token] - call.numbers[best]) <= call.epsilon;
    return call.beta > 1 && values[best] - values[token] <= call.tolerance &&
           count_above(values, vocabulary_, values[token]) < call.beta;
  }

  // Appends the accepted tokens and the verifier's own, up to an end of the sentence.
  void append(VerifyCall& call, int row) {
    const RowsCall& rows = call.rows;
    const int first = row * width_;
    const size_t end = size_t(row) * rows.capacity + rows.lengths[row];
    if (call.argmax) {
      int64_t* argmax = call.argmax + size_t(row) * (call.block + 1);
      int64_t* undrafted = std::copy_n(&argmax_[first], call.drafted[row] + 1, argmax);
      std::fill(undrafted, argmax + call.block + 1, int64_t(-1));
    }
    int added = 0, kept = 0;
    bool over = false;
    while (!over) {
      const bool accepted =
          added < call.drafted[row] && accepts(call, first + added, fed_[first + added + 1]);
      const int64_t token = accepted ? fed_[first + added + 1] : argmax_[first + added];
      rows.tokens[end + added + 1] = token;
      rows.scores[end + added] =
          values_[size_t(first + added) * vocabulary_ + token] - normalisers_[first + added];
      if (call.sample && !draws(rows.sampling))
        record_state(*call.sample, &hidden_[size_t(first + added) * dim_], dim_);
      if (late(call))
        late_.add(&hidden_[size_t(first + added) * dim_], dim_, row, rows.lengths[row] + added);
      kept += accepted;
      ++added;
      over = token == call.rules.eos || !accepted;
    }
    if (call.hidden)
      std::copy_n(&hidden_[size_t(first + added - 1) * dim_], dim_,
                  call.hidden + size_t(row) * dim_);
    rows.lengths[row] += added;
    call.added[row] = added;
    call.kept[row] = kept;
    call.lengths[row] = rows.lengths[row];
    call.ended[row] = rows.tokens[end + added] == call.rules.eos;
  }
};

extern "C" void verification_begin(Verification* verification) { verification->begin(); }

// Frees what it took, until it is used again.
extern "C" void verification_free_memory(Verification* verification) {
  *verification = Verification();
}

extern "C" void verification_run(Verification* verification, Stack* stack, const Linear* projection,
                                 VerifyCall* call, int threads) {
  call->foreign = Verification::has_foreign(*call, projection);
  if (!call->foreign) verification->run(*stack, projection, *call, threads);
}

}  // namespace native
