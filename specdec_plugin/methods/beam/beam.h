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

class BeamSearch {
 public:
  // Searches until all sentences are done, or `call.until`.
  void run(Stack& stack, const Linear* projection, BeamCall& call, int threads) {
    vocabulary_ = projection->outputs;
    dim_ = stack.dim;
    for (; call.left > 0 && call.step < call.until; ++call.step) {
      StackCall fed = feed(call);
      stack.prepare(fed, threads);
      scratch_.resize(projection->scratch_size(fed.rows));
      Barrier barrier(threads);
      std::chrono::steady_clock::time_point layers_done;
#pragma omp parallel num_threads(threads)
      {
        const Team team(barrier);
        stack.run(team, fed);
        team.wait();
        if (team.index == 0) layers_done = std::chrono::steady_clock::now();
        projection->run(team, hidden_.data(), dim_, fed.rows, scratch_.data(),
                        {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
        team.wait();
        for (int row = team.begin(fed.rows); row < team.end(fed.rows); ++row) rank(call, row);
      }
      call.scoring_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - layers_done).count();
      advance(call);
    }
  }

 private:
  static constexpr int CHUNK = 64;  // scores that are compared with a bound at once

  int vocabulary_, dim_;
  std::vector<int64_t> rows_, fed_, starts_, inherited_;
  std::vector<float> hidden_, values_;
  std::vector<uint32_t> scratch_;
  std::vector<std::vector<Continuation>> best_;  // by row, up to 2 B each
  std::vector<Continuation> merged_;

  // In the first step all beams of a sentence are equal, and only the first one runs.
  static int running(const BeamCall& call) { return call.step == 0 ? 1 : call.beams; }

  static size_t at(const BeamCall& call, int64_t step, int64_t row) {
    return size_t(step) * call.sentences * call.beams + row;
  }

  // The newest token of each row of the sentences that are left.
  StackCall feed(const BeamCall& call) {
    const int beams = running(call), count = call.left * beams;
    rows_.resize(count);
    fed_.resize(count);
    starts_.assign(count, call.step);
    for (int i = 0; i < count; ++i) {
      rows_[i] = call.order[i / beams] * call.beams + i % beams;
      fed_[i] = call.tokens[at(call, call.step, rows_[i])];
    }
    hidden_.resize(size_t(count) * dim_);
    values_.resize(size_t(count) * vocabulary_);
    best_.resize(count);
    StackCall fed = call.stack;
    fed.rows = count;
    fed.width = fed.token_stride = 1;
    fed.tokens = fed_.data();
    fed.starts = starts_.data();
    fed.row_index = rows_.data();
    fed.ancestors = call.ancestors;
    fed.out = hidden_.data();
    return fed;
  }

  // The token that a row has to continue with; -1: any.
  static int64_t forced(const BeamCall& call, int64_t row) {
    if (call.step >= call.max_len) return call.eos;
    if (!in_prefix(call)) return -1;
    const int64_t token = call.prefix[row / call.beams * call.prefix_width + call.step];
    return token == call.suppressed_id ? -1 : token;
  }

  static bool in_prefix(const BeamCall& call) {
    return call.step < call.prefix_width && call.step < call.max_len;
  }

  // The best continuations of a row, by fairseq's rules: unknown, limit, prefix or minimum,
  // n-grams.
  void rank(const BeamCall& call, int index) {
    float* values = &values_[size_t(index) * vocabulary_];
    const int64_t row = rows_[index], only = forced(call, row);
    const float shift = call.totals[at(call, call.step, row)];
    const float normaliser = log_sum_exp(values, vocabulary_);
    values[call.suppressed_id] = NOTHING;
    values[call.unk] -= call.unk_penalty;
    if (call.step < call.min_len && !in_prefix(call)) values[call.eos] = NOTHING;
    if (call.ngram > 1) block_ngrams(call, row, values);
    std::vector<Continuation>& best = best_[index];
    best.clear();
    if (only >= 0) {
      best.push_back({shift + (values[only] - normaliser), only, row});
      return;
    }
    find_best(values, 2 * call.beams, best);
    for (Continuation& each : best) {
      each.total = shift + (each.total - normaliser);
      each.row = row;
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

  // Rules out what would repeat an n-gram of the row's hypothesis, its first symbol included.
  void block_ngrams(const BeamCall& call, int64_t row, float* values) const {
    static thread_local std::vector<int64_t> line;
    line.resize(call.step + 1);
    for (int64_t step = call.step; step >= 0; --step) {
      line[step] = call.tokens[at(call, step, row)];
      if (step > 0) row = call.parents[at(call, step, row)];
    }
    const int64_t size = call.ngram, fed = call.step + 1;
    for (int64_t first = 0; first + size <= fed; ++first)
      if (std::equal(line.begin() + first, line.begin() + first + size - 1, line.end() - size + 1))
        values[line[first + size - 1]] = NOTHING;
  }

  // Finishes hypotheses, and makes the best other continuations the next beams.
  void advance(BeamCall& call) {
    int left = 0;
    const int beams = running(call);
    for (int i = 0; i < call.left; ++i) {
      const int64_t sentence = call.order[i];
      merge(call, sentence, i * beams, beams);
      finish(call, sentence);
      if (call.counts[sentence] == call.beams || call.step == call.max_len) continue;
      branch(call, sentence);
      call.order[left++] = sentence;
    }
    call.left = left;
  }

  // The 2 B best continuations of a sentence, the best first.
  void merge(const BeamCall& call, int64_t sentence, int first, int beams) {
    merged_.clear();
    for (int beam = 0; beam < beams; ++beam)
      merged_.insert(merged_.end(), best_[first + beam].begin(), best_[first + beam].end());
    // A prefix that ends the sentence makes all beams the first one.
    if (in_prefix(call) && forced(call, sentence * call.beams) == call.eos)
      merged_.assign(beams, best_[first][0]);
    const size_t most = std::min(merged_.size(), size_t(2 * call.beams));
    std::partial_sort(merged_.begin(), merged_.begin() + most, merged_.end());
    merged_.resize(most);
    // What is missing is impossible; rows of it find nothing.
    merged_.resize(2 * call.beams, {NOTHING, call.suppressed_id, sentence * call.beams});
  }

  static bool ends(const BeamCall& call, const Continuation& each) {
    return each.token == call.eos && each.total > NOTHING;
  }

  // Ends of sentences count among the B best continuations.
  void finish(const BeamCall& call, int64_t sentence) const {
    for (int rank = 0; rank < call.beams; ++rank) {
      const Continuation& each = merged_[rank];
      int64_t& count = call.counts[sentence];
      if (!ends(call, each) || count == call.beams) continue;
      trace(call, each, size_t(sentence) * call.beams + count++);
    }
  }

  // Writes a finished hypothesis: follows the parents of its last row back to the first step.
  static void trace(const BeamCall& call, const Continuation& last, size_t index) {
    const size_t first = index * (call.max_len + 1);
    int64_t token = last.token, row = last.row;
    float total = last.total;
    call.found_lengths[index] = call.step + 1;
    call.found_totals[index] = total;
    for (int64_t step = call.step; step >= 0; --step) {
      const size_t before = at(call, step, row);
      call.found_tokens[first + step] = token;
      call.found_scores[first + step] = total - call.totals[before];
      token = call.tokens[before];
      total = call.totals[before];
      if (step > 0) row = call.parents[before];
    }
  }

  // The first B continuations that do not end the sentence.
  void branch(const BeamCall& call, int64_t sentence) {
    const size_t capacity = call.stack.capacity, slots = call.step + 1;
    inherited_.resize(call.beams * slots);
    int beam = 0;
    for (const Continuation& each : merged_) {
      if (ends(call, each)) continue;
      if (beam == call.beams) break;
      const int64_t row = sentence * call.beams + beam;
      const size_t next = at(call, call.step + 1, row);
      call.tokens[next] = each.token;
      call.parents[next] = each.row;
      call.totals[next] = each.total;
      std::copy_n(call.ancestors + each.row * capacity, slots, &inherited_[beam * slots]);
      ++beam;
    }
    for (int each = 0; each < call.beams; ++each) {
      const int64_t row = sentence * call.beams + each;
      std::copy_n(&inherited_[each * slots], slots, call.ancestors + row * capacity);
    }
  }
};

extern "C" void beam_search_run(BeamSearch* search, Stack* stack, const Linear* projection,
                                BeamCall* call, int threads) {
  search->run(*stack, projection, *call, threads);
}

}  // namespace native
