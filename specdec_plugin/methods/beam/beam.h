// Beam search of a batch, as fairseq's `SequenceGenerator` runs it. The reference on PyTorch's
// operators is `TorchBeamSearch` in search.py.
#pragma once

#include <algorithm>
#include <chrono>

#include "engine/native/stack.h"
#include "vocab/best.h"

namespace native {

// A token that may follow a beam.
struct Continuation {
  float total;  // log-probabilities, cumulated
  int64_t token, row;
};

// Better ones first; of equal ones, that of the lower beam and token.
static inline bool operator<(const Continuation& a, const Continuation& b) {
  if (a.total != b.total) return a.total > b.total;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

// A model that scores continuations.
struct Scorer {
  const Stack* stack;
  const Linear* projection;
};

class BeamSearch {
 public:
  // Searches until all sentences are done, or `call.until`. With `call.block`, the drafter searches
  // first and the model verifies its steps, once a single sentence is left.
  void run(const Scorer& model, const Scorer& drafter, BeamCall& call, int threads) {
    beams_ = call.beams;
    vocabulary_ = model.projection->outputs;
    dim_ = model.stack->dim;
    while (call.left > 0 && call.step < call.until) {
      const auto begin = std::chrono::steady_clock::now();
      const int64_t first = call.step;
      const int drafted = draft(drafter, call, threads);
      verify(model, call, drafted, threads);
      call.passes += drafted > 0;
      (drafted > 0 ? call.drafted_steps : call.plain_steps) += call.step - first;
      (drafted > 0 ? call.drafted_seconds : call.plain_seconds) += seconds_since(begin);
    }
  }

 private:
  static constexpr int CHUNK = 64;  // scores that are compared with a bound at once

  // What is fed: the newest token of a row before a step.
  struct Input {
    int64_t step, row;
  };

  Pass pass_;
  int beams_, vocabulary_, dim_;
  std::vector<Input> inputs_;
  std::vector<int64_t> rows_, fed_, starts_, lines_, inherited_;
  std::vector<float> hidden_, values_;
  std::vector<uint32_t> scratch_;
  std::vector<std::vector<Continuation>> best_;  // by input, up to 2 B each
  std::vector<Continuation> merged_, next_;
  std::vector<int64_t> drafted_lines_;  // (steps, B, capacity) the ancestors before each step

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  size_t at(const BeamCall& call, int64_t step, int64_t row) const {
    return size_t(step) * call.sentences * beams_ + row;
  }

  static bool in_prefix(const BeamCall& call, int64_t step) {
    return step < call.prefix_width && step < call.max_len;
  }

  // The token that a row has to continue with; -1: any.
  int64_t forced(const BeamCall& call, const Input& input) const {
    if (input.step >= call.max_len) return call.eos;
    if (!in_prefix(call, input.step)) return -1;
    const int64_t token = call.prefix[input.row / beams_ * call.prefix_width + input.step];
    return token == call.suppressed_id ? -1 : token;
  }

  // --- scoring -----------------------------------------------------------------------------

  // The newest tokens of the sentences that are left. In the first step all beams of a sentence are
  // equal, and only the first one runs.
  void collect(const BeamCall& call) {
    const int beams = call.step == 0 ? 1 : beams_;
    inputs_.resize(size_t(call.left) * beams);
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i] = {call.step, call.order[i / beams] * beams_ + int64_t(i % beams)};
  }

  // The best continuations of each input. lines: (inputs, capacity) the rows that hold their slots.
  void score(const Scorer& model, const int64_t* lines, BeamCall& call, int threads) {
    const int count = int(inputs_.size());
    rows_.resize(count);
    fed_.resize(count);
    starts_.resize(count);
    for (int i = 0; i < count; ++i) {
      rows_[i] = inputs_[i].row;
      starts_[i] = inputs_[i].step;
      fed_[i] = call.tokens[at(call, inputs_[i].step, inputs_[i].row)];
    }
    hidden_.resize(size_t(count) * dim_);
    values_.resize(size_t(count) * vocabulary_);
    best_.resize(count);
    scratch_.resize(model.projection->scratch_size(count));
    StackCall fed = call.stack;
    fed.rows = count;
    fed.width = fed.token_stride = 1;
    fed.tokens = fed_.data();
    fed.starts = starts_.data();
    fed.row_index = rows_.data();
    fed.ancestors = lines;
    fed.out = hidden_.data();
    pass_.prepare(*model.stack, fed, threads);
    std::chrono::steady_clock::time_point layers_done;
    parallel(threads, [&](const Team& team) {
      pass_.run(team, fed);
      team.wait();
      if (team.index == 0) layers_done = std::chrono::steady_clock::now();
      model.projection->run(team, hidden_.data(), dim_, count, scratch_.data(),
                            {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
      team.wait();
      for (int input = team.begin(count); input < team.end(count); ++input) rank(call, input);
    });
    call.scoring_seconds += seconds_since(layers_done);
  }

  // The best continuations of an input, by fairseq's rules: unknown, limit, prefix or minimum,
  // n-grams. Their totals are log-probabilities of the one token.
  void rank(const BeamCall& call, int index) {
    float* values = &values_[size_t(index) * vocabulary_];
    const Input& input = inputs_[index];
    const int64_t only = forced(call, input);
    const float normaliser = log_sum_exp(values, vocabulary_);
    values[call.suppressed_id] = NOTHING;
    values[call.unk] -= call.unk_penalty;
    if (input.step < call.min_len && !in_prefix(call, input.step)) values[call.eos] = NOTHING;
    if (call.ngram > 1) block_ngrams(call, input, values);
    std::vector<Continuation>& best = best_[index];
    best.clear();
    if (only >= 0) {
      best.push_back({values[only] - normaliser, only, input.row});
      return;
    }
    find_best(values, 2 * beams_, best);
    for (Continuation& each : best) {
      each.total -= normaliser;
      each.row = input.row;
    }
  }

  // The `count` greatest values. Those of the chunks with the greatest maxima are enough.
  void find_best(const float* values, int count, std::vector<Continuation>& best) const {
    static thread_local std::vector<float> greatest, sorted;
    const int chunks = (vocabulary_ + CHUNK - 1) / CHUNK;
    greatest.resize(chunks);
    for (int i = 0; i < chunks; ++i)
      greatest[i] = greatest_of(values + i * CHUNK, std::min(CHUNK, vocabulary_ - i * CHUNK));
    float bound = NOTHING;
    if (count < chunks) {
      sorted = greatest;
      std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(),
                       std::greater<float>());
      bound = sorted[count - 1];
    }
    for (int i = 0; i < chunks; ++i) {
      if (greatest[i] < bound) continue;
      for (int token = i * CHUNK; token < std::min(vocabulary_, (i + 1) * CHUNK); ++token)
        if (values[token] >= bound) best.push_back({values[token], token, 0});
    }
    if (int(best.size()) > count) {
      std::partial_sort(best.begin(), best.begin() + count, best.end());
      best.resize(count);
    }
  }

  // Rules out what would repeat an n-gram of the hypothesis, its first symbol included.
  void block_ngrams(const BeamCall& call, const Input& input, float* values) const {
    static thread_local std::vector<int64_t> line;
    line.resize(input.step + 1);
    int64_t row = input.row;
    for (int64_t step = input.step; step >= 0; --step) {
      line[step] = call.tokens[at(call, step, row)];
      if (step > 0) row = call.parents[at(call, step, row)];
    }
    const int64_t size = call.ngram, fed = input.step + 1;
    for (int64_t first = 0; first + size <= fed; ++first)
      if (std::equal(line.begin() + first, line.begin() + first + size - 1, line.end() - size + 1))
        values[line[first + size - 1]] = NOTHING;
  }

  // --- a step ------------------------------------------------------------------------------

  // The 2 B best continuations of a sentence, the best first. Its inputs begin at `first`.
  void merge(const BeamCall& call, int first, int beams) {
    const Input& input = inputs_[first];
    merged_.clear();
    for (int beam = 0; beam < beams; ++beam)
      for (Continuation each : best_[first + beam]) {
        each.total += call.totals[at(call, input.step, each.row)];
        merged_.push_back(each);
      }
    // A prefix that ends the sentence makes all beams the first one.
    if (in_prefix(call, input.step) && forced(call, input) == call.eos)
      merged_.assign(beams, Continuation(merged_[0]));
    const size_t most = std::min(merged_.size(), size_t(2 * beams_));
    std::partial_sort(merged_.begin(), merged_.begin() + most, merged_.end());
    merged_.resize(most);
    // What is missing is impossible; rows of it find nothing.
    merged_.resize(2 * beams_, {NOTHING, call.suppressed_id, input.row});
    next_.clear();
    for (const Continuation& each : merged_)
      if (!ends(call, each) && int(next_.size()) < beams_) next_.push_back(each);
  }

  static bool ends(const BeamCall& call, const Continuation& each) {
    return each.token == call.eos && each.total > NOTHING;
  }

  // Ends of sentences count among the B best continuations.
  int count_ends(const BeamCall& call) const {
    return int(std::count_if(merged_.begin(), merged_.begin() + beams_,
                             [&](const Continuation& each) { return ends(call, each); }));
  }

  void finish(const BeamCall& call, int64_t sentence, int64_t step) const {
    int64_t& count = call.counts[sentence];
    for (int rank = 0; rank < beams_ && count < beams_; ++rank)
      if (ends(call, merged_[rank]))
        trace(call, merged_[rank], step, size_t(sentence) * beams_ + count++);
  }

  // Writes a finished hypothesis: follows the parents of its last row back to the first step.
  void trace(const BeamCall& call, const Continuation& last, int64_t end, size_t index) const {
    const size_t first = index * (call.max_len + 1);
    int64_t token = last.token, row = last.row;
    float total = last.total;
    call.found_lengths[index] = end + 1;
    call.found_totals[index] = total;
    for (int64_t step = end; step >= 0; --step) {
      const size_t before = at(call, step, row);
      call.found_tokens[first + step] = token;
      call.found_scores[first + step] = total - call.totals[before];
      token = call.tokens[before];
      total = call.totals[before];
      if (step > 0) row = call.parents[before];
    }
  }

  // Makes the chosen continuations the beams of the next step. lines: (beams, capacity) the
  // ancestors of the sentence's rows before this one.
  void branch(const BeamCall& call, int64_t sentence, int64_t step, const int64_t* lines) {
    const size_t capacity = call.stack.capacity, slots = step + 1;
    inherited_.resize(beams_ * slots);
    for (int beam = 0; beam < beams_; ++beam) {
      const size_t next = at(call, step + 1, sentence * beams_ + beam);
      call.tokens[next] = next_[beam].token;
      call.parents[next] = next_[beam].row;
      call.totals[next] = next_[beam].total;
      const int64_t* line = lines + (next_[beam].row - sentence * beams_) * capacity;
      std::copy_n(line, slots, &inherited_[beam * slots]);
    }
    for (int beam = 0; beam < beams_; ++beam) {
      int64_t* own = call.ancestors + (sentence * beams_ + beam) * capacity;
      std::copy_n(&inherited_[beam * slots], slots, own);
      std::fill(own + slots, own + capacity, sentence * beams_ + beam);
    }
  }

  // --- drafts ------------------------------------------------------------------------------

  // Lets the drafter search from here, as if its scores were the model's; tells for how many steps.
  // Keys and values that it leaves in the cache are written again by the model.
  int draft(const Scorer& drafter, BeamCall& call, int threads) {
    if (call.block == 0 || call.left > 1 || call.step == 0 || call.step < call.prefix_width)
      return 0;
    const int64_t sentence = call.order[0], most = std::min(call.until - 1, call.max_len);
    const size_t line_size = size_t(beams_) * call.stack.capacity;
    const int64_t* lines = call.ancestors + sentence * line_size;
    const int64_t begin = call.step;
    drafted_lines_.assign(lines, lines + line_size);
    int64_t ended = call.counts[sentence];
    for (; call.step < most && call.step - begin < call.block; ++call.step) {
      collect(call);
      score(drafter, lines, call, threads);
      merge(call, 0, beams_);
      ended += count_ends(call);
      if (ended >= beams_) break;
      branch(call, sentence, call.step, lines);
      drafted_lines_.insert(drafted_lines_.end(), lines, lines + line_size);
    }
    const int drafted = int(call.step - begin);
    call.step = begin;
    return drafted;
  }

  // Searches a step with the model, and as many drafted ones behind it as are the model's, too.
  void verify(const Scorer& model, BeamCall& call, int drafted, int threads) {
    const int beams = call.step == 0 ? 1 : beams_;
    collect(call);
    if (drafted > 0) {
      for (int64_t step = call.step + 1; step <= call.step + drafted; ++step)
        for (int beam = 0; beam < beams_; ++beam)
          inputs_.push_back({step, call.order[0] * beams_ + beam});
      lines_ = drafted_lines_;
    } else {
      lines_.clear();
      for (const Input& input : inputs_) {
        const int64_t* line = call.ancestors + input.row * call.stack.capacity;
        lines_.insert(lines_.end(), line, line + call.stack.capacity);
      }
    }
    score(model, lines_.data(), call, threads);
    int left = 0;
    int64_t next = call.step;  // the same of all sentences: with several, nothing is drafted
    for (int i = 0; i < call.left; ++i)
      if (advance(call, call.order[i], i * beams, beams, drafted, next))
        call.order[left++] = call.order[i];
    call.left = left;
    call.step = next;
  }

  // Takes a sentence as far as the drafted steps are right, and a step further, to `next`. Tells
  // whether the sentence is not done.
  bool advance(const BeamCall& call, int64_t sentence, int first, int beams, int drafted,
               int64_t& next) {
    const int64_t* lines = drafted > 0 ? lines_.data() : call.ancestors;
    if (drafted == 0) lines += sentence * beams_ * call.stack.capacity;
    for (int64_t step = call.step;; ++step, first += beams_, --drafted) {
      merge(call, first, beams);
      finish(call, sentence, step);
      const bool over = call.counts[sentence] == beams_ || step == call.max_len;
      if (!over && drafted > 0 && adopt(call, step + 1, sentence)) {
        lines += size_t(beams_) * call.stack.capacity;
        continue;
      }
      if (!over) branch(call, sentence, step, lines);
      next = step + 1;
      return !over;
    }
  }

  // Whether the drafted beams before a step are those that the model chose, in whatever order; if
  // so, gives them the model's totals.
  bool adopt(const BeamCall& call, int64_t step, int64_t sentence) const {
    const size_t first = at(call, step, sentence * beams_);
    static thread_local std::vector<float> totals;
    totals.assign(beams_, NOTHING);
    for (const Continuation& each : next_)
      for (int beam = 0; beam < beams_; ++beam)
        if (call.tokens[first + beam] == each.token && call.parents[first + beam] == each.row)
          totals[beam] = each.total;
    for (float total : totals)
      if (!(total > NOTHING)) return false;
    std::copy(totals.begin(), totals.end(), call.totals + first);
    return true;
  }
};

// drafter: null for none.
extern "C" void beam_search_run(BeamSearch* search, Stack* stack, const Linear* projection,
                                Stack* drafter, const Linear* drafter_projection, BeamCall* call,
                                int threads) {
  search->run({stack, projection}, {drafter, drafter_projection}, *call, threads);
}

}  // namespace native
