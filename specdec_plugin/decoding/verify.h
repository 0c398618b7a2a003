// Verification of a draft: feeds it, scores it, accepts a prefix of it. The reference on PyTorch's
// operators is specdec_plugin/decoding/loop.py.
#pragma once

#include <chrono>
#include <numeric>
#include <utility>

#include "engine/native/error_bound.h"
#include "engine/native/stack.h"
#include "vocab/candidates.h"
#include "vocab/gather.h"

namespace native {

// Feeds the newest token and the draft of each row, and appends what stands of the draft and the
// verifier's own next token.
class Verification {
 public:
  // projection: of all symbols, exactly; not read with a screen or a gather.
  void run(Stack& stack, const Linear* projection, VerifyCall& call, int threads) {
    const Rows& rows = call.rows;
    const Linear* first = call.prefilter ? call.prefilter : projection;
    width_ = 1;
    vocabulary_ = call.gather ? call.gather->vocabulary() : first->outputs;
    dim_ = stack.dim;
    for (int row = 0; row < rows.count; ++row) {
      const int64_t wanted = call.draft_lengths ? call.draft_lengths[row] : 0;
      call.drafted[row] = std::min(wanted, call.max_len - rows.lengths[row]);
      width_ = std::max(width_, 1 + int(call.drafted[row]));
    }
    const int inputs = rows.count * width_;
    fed_.assign(inputs, call.eos);  // some symbol where a row drafted less than another
    for (int row = 0; row < rows.count; ++row) {
      int64_t* fed = &fed_[size_t(row) * width_];
      fed[0] = rows.tokens[size_t(row) * rows.capacity + rows.lengths[row]];
      const int64_t* draft = call.draft + size_t(row) * call.block;
      std::copy(draft, draft + call.drafted[row], fed + 1);
    }
    hidden_.resize(size_t(inputs) * dim_);
    values_.resize(size_t(inputs) * vocabulary_);
    if (call.gather) {
      call.gather->prepare(inputs);
    } else {
      narrow_.resize(first->room(inputs));
    }
    normalisers_.resize(inputs);
    best_.resize(inputs);
    rescored_.resize(inputs);
    StackCall inputs_of = call.stack;
    inputs_of.rows = rows.count;
    inputs_of.width = inputs_of.token_stride = width_;
    inputs_of.tokens = fed_.data();
    inputs_of.starts = rows.lengths;
    inputs_of.out = hidden_.data();
    stack.prepare(inputs_of, threads);
    Barrier barrier(threads);
    std::chrono::steady_clock::time_point layers_done;
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      stack.run(team, inputs_of);
      team.wait();
      if (team.index == 0) layers_done = std::chrono::steady_clock::now();
      if (call.gather) {
        call.gather->run(team, hidden_.data(), inputs, values_.data());
      } else {
        first->run(team, hidden_.data(), dim_, inputs, narrow_.data(),
                   {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
      }
      team.wait();
      for (int input = team.begin(inputs); input < team.end(inputs); ++input) rank(call, input);
    }
    call.scoring_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - layers_done).count();
    for (int row = 0; row < rows.count; ++row) append(call, row);
    if (call.prefilter) {
      call.rescored = std::accumulate(rescored_.begin(), rescored_.end(), int64_t(0));
      call.certain = std::count(rescored_.begin(), rescored_.end(), 1);
    }
  }

 private:
  static constexpr int CHUNK = 128;  // scores that are looked at together

  int width_, vocabulary_, dim_;
  std::vector<int64_t> fed_, best_, rescored_;
  std::vector<float> hidden_, values_, normalisers_;
  std::vector<uint32_t> narrow_;

  // The normaliser of one place, and then its best symbol among those that may be chosen.
  void rank(const VerifyCall& call, int input) {
    float* values = &values_[size_t(input) * vocabulary_];
    const int64_t place = call.rows.lengths[input / width_] + input % width_;
    if (call.prefilter && call.beta > 1) refine(call, input, values);
    if (call.prefilter && call.beta == 1) certify(call, input, values, place < call.min_len);
    normalisers_[input] = call.gather ? call.gather->normaliser(input, values)
                                       : log_sum_exp(values, vocabulary_);
    values[call.suppressed_id] = -std::numeric_limits<float>::infinity();
    if (place >= call.max_len) {
      best_[input] = call.eos;
      return;
    }
    if (place < call.min_len) values[call.eos] = -std::numeric_limits<float>::infinity();
    best_[input] = argmax(values, vocabulary_);
  }

  // Scores exactly what has a great score, what was drafted, and the end of a sentence. Rounded
  // scores are off by some tenths, so several times as many symbols are asked for as may stand.
  void refine(const VerifyCall& call, int input, float* values) {
    Candidates candidates;
    candidates.find(values, vocabulary_, -1, std::clamp(4 * call.beta, 32, 96));
    for (int i = 0; i < candidates.count; ++i) score(call, input, candidates.symbols[i], values);
    score_known(call, input, values);
  }

  // Scores exactly whatever may be the best, which no other symbol can be then. `early`: the end
  // of a sentence may not come yet.
  void certify(const VerifyCall& call, int input, float* values, bool early) {
    // What may not be chosen must not raise the bar.
    const float nothing = -std::numeric_limits<float>::infinity();
    const float never = std::exchange(values[call.suppressed_id], nothing), end = values[call.eos];
    if (early) values[call.eos] = nothing;
    const float greatest = greatest_of(values, vocabulary_);
    const float* state = &hidden_[size_t(input) * dim_];
    const float bar = greatest - 2 * error_of(call.error_bound, state, dim_, greatest);
    rescored_[input] = 0;
    for (int first = 0; first < vocabulary_; first += CHUNK) {
      const int count = std::min(CHUNK, vocabulary_ - first);
      if (greatest_of(values + first, count) < bar) continue;
      for (int symbol = first; symbol < first + count; ++symbol) {
        if (values[symbol] < bar) continue;
        score(call, input, symbol, values);
        ++rescored_[input];
      }
    }
    values[call.suppressed_id] = never;
    values[call.eos] = end;
    score_known(call, input, values);
  }

  // What will be asked for by its name: a drafted token, and the end of a sentence.
  void score_known(const VerifyCall& call, int input, float* values) const {
    score(call, input, call.eos, values);
    if (input % width_ + 1 < width_) score(call, input, fed_[input + 1], values);
  }

  void score(const VerifyCall& call, int input, int64_t symbol, float* values) const {
    values[symbol] = dot(&hidden_[size_t(input) * dim_], call.weight + symbol * dim_, dim_) +
                     (call.bias ? call.bias[symbol] : 0.0f);
  }

  bool stands(const VerifyCall& call, int input, int64_t token) const {
    const int64_t best = best_[input];
    if (token == best) return true;
    const float* values = &values_[size_t(input) * vocabulary_];
    if (!std::isfinite(values[token])) return false;
    if (input % width_ + 1 < call.min_block && token != call.eos && best != call.eos) return true;
    if (call.numbers) return std::fabs(call.numbers[token] - call.numbers[best]) <= call.epsilon;
    return call.beta > 1 && values[best] - values[token] <= call.tolerance &&
           count_above(values, vocabulary_, values[token]) < call.beta;
  }

  // Nothing follows an end of sentence, drafted or not.
  void append(VerifyCall& call, int row) const {
    const Rows& rows = call.rows;
    const int first = row * width_;
    const size_t end = size_t(row) * rows.capacity + rows.lengths[row];
    if (call.argmax) {
      int64_t* argmax = call.argmax + size_t(row) * (call.block + 1);
      int64_t* undrafted = std::copy_n(&best_[first], call.drafted[row] + 1, argmax);
      std::fill(undrafted, argmax + call.block + 1, int64_t(-1));
    }
    int added = 0, kept = 0;
    bool over = false;
    while (!over) {
      const bool stood = added < call.drafted[row] &&
                         stands(call, first + added, fed_[first + added + 1]);
      const int64_t token = stood ? fed_[first + added + 1] : best_[first + added];
      rows.tokens[end + added + 1] = token;
      rows.scores[end + added] =
          values_[size_t(first + added) * vocabulary_ + token] - normalisers_[first + added];
      kept += stood;
      ++added;
      over = token == call.eos || !stood;
    }
    if (call.hidden)
      std::copy_n(&hidden_[size_t(first + added - 1) * dim_], dim_, call.hidden + size_t(row) * dim_);
    rows.lengths[row] += added;
    call.added[row] = added;
    call.kept[row] = kept;
    call.lengths[row] = rows.lengths[row];
    call.ended[row] = rows.tokens[end + added] == call.eos;
  }
};

extern "C" void verification_run(Verification* verification, Stack* stack,
                                 const Linear* projection, VerifyCall* call, int threads) {
  verification->run(*stack, projection, *call, threads);
}

}  // namespace native
