// Verification of a draft: feeds it, scores it, accepts a prefix of it. The reference on PyTorch's
// operators is specdec_plugin/decoding/loop.py.
#pragma once

#include <chrono>
#include <numeric>
#include <utility>

#include "decoding/rows.h"
#include "engine/native/stack.h"
#include "vocab/candidates.h"
#include "vocab/error_bound.h"
#include "vocab/gather.h"

namespace native {

struct Round {
  Rows rows;
  Call call;   // of the verifier's decoder: positions, cache and source
  int block;   // most tokens a row may have drafted
  const int64_t* draft;          // (count, block)
  const int64_t* draft_lengths;  // (count); null: nothing is drafted
  int never;              // a symbol that is not chosen
  int64_t eos;            // ends a sentence
  int64_t min_len, max_len;  // tokens before an end may come, and after which it must
  const Linear* screen;   // a rounded projection that says which symbols are scored exactly;
  const float* symbols;   // (vocabulary, dim) the weights of the exact one,
  const float* bias;      // (vocabulary) or null; without a screen all symbols are scored exactly;
  Gather* gather;         // scores a part of the symbols, exactly, instead of both; or null
  Certainty certainty;    // how far the rounded scores may be off (with a screen, and `beta` of 1)
  int beta;               // a drafted token stands if it is one of the verifier's best `beta`,
  float tolerance;        // and its log-probability so near that of the best;
  const float* numbers;   // (vocabulary) what symbols mean, NaN if no number; or null. If not, also
  float epsilon;          // where its number is so near that of the best;
  int least;              // and the first `least` - 1 stand, unless one of the two ends the sentence
  int64_t* drafted;       // (count) what comes of it: how many tokens were drafted,
  int64_t* kept;          // how many of them stand,
  int64_t* added;         // how many are appended,
  int64_t* lengths;       // how many there are now,
  int64_t* ended;         // and whether the last one ends the sentence
  int64_t asked;          // with a screen, and `beta` of 1: symbols that were scored exactly because
  int64_t sure;           // they might be the best, and places where only one might
  double scoring;         // seconds from hidden states to scores
};

// Feeds the newest token and the draft of each row, and appends what stands of the draft and the
// verifier's own next token.
class Verification {
 public:
  // projection: of all symbols, exactly; not read with a screen or a gather.
  void run(Stack& stack, const Linear* projection, Round& round, int threads) {
    const Rows& rows = round.rows;
    const Linear* first = round.screen ? round.screen : projection;
    width_ = 1;
    vocabulary_ = round.gather ? round.gather->vocabulary() : first->outputs;
    dim_ = stack.dim;
    for (int row = 0; row < rows.count; ++row) {
      const int64_t wanted = round.draft_lengths ? round.draft_lengths[row] : 0;
      round.drafted[row] = std::min(wanted, round.max_len - rows.lengths[row]);
      width_ = std::max(width_, 1 + int(round.drafted[row]));
    }
    const int inputs = rows.count * width_;
    fed_.assign(inputs, round.eos);  // some symbol where a row drafted less than another
    for (int row = 0; row < rows.count; ++row) {
      int64_t* fed = &fed_[size_t(row) * width_];
      fed[0] = rows.tokens[size_t(row) * rows.room + rows.lengths[row]];
      const int64_t* draft = round.draft + size_t(row) * round.block;
      std::copy(draft, draft + round.drafted[row], fed + 1);
    }
    hidden_.resize(size_t(inputs) * dim_);
    values_.resize(size_t(inputs) * vocabulary_);
    if (round.gather) {
      round.gather->prepare(inputs);
    } else {
      narrow_.resize(first->room(inputs));
    }
    normalisers_.resize(inputs);
    best_.resize(inputs);
    asked_.resize(inputs);
    Call call = round.call;
    call.rows = rows.count;
    call.width = call.token_stride = width_;
    call.tokens = fed_.data();
    call.starts = rows.lengths;
    call.out = hidden_.data();
    stack.prepare(call, threads);
    Barrier barrier(threads);
    std::chrono::steady_clock::time_point layers_done;
#pragma omp parallel num_threads(threads)
    {
      const Team team(barrier);
      stack.run(team, call);
      team.wait();
      if (team.index == 0) layers_done = std::chrono::steady_clock::now();
      if (round.gather) {
        round.gather->run(team, hidden_.data(), inputs, values_.data());
      } else {
        first->run(team, hidden_.data(), dim_, inputs, narrow_.data(),
                   {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
      }
      team.wait();
      for (int input = team.begin(inputs); input < team.end(inputs); ++input) rank(round, input);
    }
    round.scoring = std::chrono::duration<double>(std::chrono::steady_clock::now() - layers_done).count();
    for (int row = 0; row < rows.count; ++row) append(round, row);
    if (round.screen) {
      round.asked = std::accumulate(asked_.begin(), asked_.end(), int64_t(0));
      round.sure = std::count(asked_.begin(), asked_.end(), 1);
    }
  }

 private:
  static constexpr int CHUNK = 128;  // scores that are looked at together

  int width_, vocabulary_, dim_;
  std::vector<int64_t> fed_, best_, asked_;
  std::vector<float> hidden_, values_, normalisers_;
  std::vector<uint32_t> narrow_;

  // The normaliser of one place, and then its best symbol among those that may be chosen.
  void rank(const Round& round, int input) {
    float* values = &values_[size_t(input) * vocabulary_];
    const int64_t place = round.rows.lengths[input / width_] + input % width_;
    if (round.screen && round.beta > 1) refine(round, input, values);
    if (round.screen && round.beta == 1) certify(round, input, values, place < round.min_len);
    normalisers_[input] = round.gather ? round.gather->normaliser(input, values)
                                       : log_sum_exp(values, vocabulary_);
    values[round.never] = -std::numeric_limits<float>::infinity();
    if (place >= round.max_len) {
      best_[input] = round.eos;
      return;
    }
    if (place < round.min_len) values[round.eos] = -std::numeric_limits<float>::infinity();
    best_[input] = argmax(values, vocabulary_);
  }

  // Scores exactly what has a great score, what was drafted, and the end of a sentence. Rounded
  // scores are off by some tenths, so several times as many symbols are asked for as may stand.
  void refine(const Round& round, int input, float* values) {
    Candidates candidates;
    candidates.find(values, vocabulary_, -1, std::clamp(4 * round.beta, 32, 96));
    for (int i = 0; i < candidates.count; ++i) score(round, input, candidates.symbols[i], values);
    score_known(round, input, values);
  }

  // Scores exactly whatever may be the best, which no other symbol can be then. `early`: the end
  // of a sentence may not come yet.
  void certify(const Round& round, int input, float* values, bool early) {
    // What may not be chosen must not raise the bar.
    const float nothing = -std::numeric_limits<float>::infinity();
    const float never = std::exchange(values[round.never], nothing), end = values[round.eos];
    if (early) values[round.eos] = nothing;
    const float greatest = greatest_of(values, vocabulary_);
    const float* state = &hidden_[size_t(input) * dim_];
    const float bar = greatest - 2 * round.certainty.doubt(state, dim_, greatest);
    asked_[input] = 0;
    for (int first = 0; first < vocabulary_; first += CHUNK) {
      const int count = std::min(CHUNK, vocabulary_ - first);
      if (greatest_of(values + first, count) < bar) continue;
      for (int symbol = first; symbol < first + count; ++symbol) {
        if (values[symbol] < bar) continue;
        score(round, input, symbol, values);
        ++asked_[input];
      }
    }
    values[round.never] = never;
    values[round.eos] = end;
    score_known(round, input, values);
  }

  // What will be asked for by its name: a drafted token, and the end of a sentence.
  void score_known(const Round& round, int input, float* values) const {
    score(round, input, round.eos, values);
    if (input % width_ + 1 < width_) score(round, input, fed_[input + 1], values);
  }

  void score(const Round& round, int input, int64_t symbol, float* values) const {
    values[symbol] = dot(&hidden_[size_t(input) * dim_], round.symbols + symbol * dim_, dim_) +
                     (round.bias ? round.bias[symbol] : 0.0f);
  }

  bool stands(const Round& round, int input, int64_t token) const {
    const int64_t best = best_[input];
    if (token == best) return true;
    const float* values = &values_[size_t(input) * vocabulary_];
    if (!std::isfinite(values[token])) return false;
    if (input % width_ + 1 < round.least && token != round.eos && best != round.eos) return true;
    if (round.numbers) return std::fabs(round.numbers[token] - round.numbers[best]) <= round.epsilon;
    return round.beta > 1 && values[best] - values[token] <= round.tolerance &&
           count_above(values, vocabulary_, values[token]) < round.beta;
  }

  // Nothing follows an end of sentence, drafted or not.
  void append(Round& round, int row) const {
    const Rows& rows = round.rows;
    const int first = row * width_;
    const size_t end = size_t(row) * rows.room + rows.lengths[row];
    if (rows.iterate) {
      int64_t* said = rows.iterate + size_t(row) * rows.iterate_room + rows.lengths[row];
      std::copy_n(&best_[first], round.drafted[row] + 1, said);
    }
    int added = 0, kept = 0;
    bool over = false;
    while (!over) {
      const bool stood = added < round.drafted[row] &&
                         stands(round, first + added, fed_[first + added + 1]);
      const int64_t token = stood ? fed_[first + added + 1] : best_[first + added];
      rows.tokens[end + added + 1] = token;
      rows.scores[end + added] =
          values_[size_t(first + added) * vocabulary_ + token] - normalisers_[first + added];
      kept += stood;
      ++added;
      over = token == round.eos || !stood;
    }
    if (rows.states)
      std::copy_n(&hidden_[size_t(first + added - 1) * dim_], dim_, rows.states + size_t(row) * dim_);
    rows.lengths[row] += added;
    round.added[row] = added;
    round.kept[row] = kept;
    round.lengths[row] = rows.lengths[row];
    round.ended[row] = rows.tokens[end + added] == round.eos;
  }
};

}  // namespace native
