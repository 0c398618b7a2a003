// Beam search of a batch, as fairseq's `SequenceGenerator` runs it. The reference on PyTorch's
// operators is `TorchBeamSearch` in torch_search.py, with penalties and phrases `StrategySearch` in
// strategy_search.py.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "decoding/constraints.h"
#include "decoding/ensemble.h"
#include "decoding/workers.h"
#include "engine/native/row_cache.h"
#include "engine/native/source_rows.h"
#include "engine/native/stack.h"
#include "methods/beam/groups.h"
#include "methods/beam/phrases.h"
#include "vocab/best.h"
#include "vocab/gather.h"

namespace native {

// A model that scores continuations.
struct Scorer {
  const Stack* stack;
  const Linear* projection;
  Gather* gather;  // scores a part of the symbols instead of the projection; or null
  int others = 0;  // models beside it

  int vocabulary() const { return gather ? gather->vocabulary() : projection->outputs; }
};

// The sentences that one thread or team searches. When one is done, a waiting one takes its place.
class BeamWorker {
 public:
  // Searches as long as any sentence waits. Once a single one is left, the drafter searches first
  // and the model verifies its steps, up to `call.drafts` times. next: the index in `call.order` of
  // the next sentence. index: of this worker.
  void run(const Scorer& model, const Scorer& drafter, const Linear& source_in,
           const BeamCall& call, std::atomic<int>& next, Watch& watch, int index, int threads) {
    start(model, call);
    source_rows_.begin(source_in, call.source, call.active);
    other_rows_.begin(call.others, call.other_models, call.active * beams_, call.active);
    while (!watch.stopped(index) && admit(call, next, threads)) {
      const auto begin = std::chrono::steady_clock::now();
      const bool alone = may_draft(call, next);
      const int64_t first = active_[0].step;
      const bool drafts = alone && passes < call.drafts;
      make_room(model, call, drafts ? call.block : 0);
      const int drafted = drafts ? draft(drafter, call, threads) : 0;
      verify(model, call, drafted, watch, threads);
      if (!alone) continue;
      passes += drafted > 0;
      (drafted > 0 ? drafted_steps : plain_steps) += stopped_ - first;
      (drafted > 0 ? drafted_seconds : plain_seconds) += seconds_since(begin);
    }
  }

  // Of a run. Steps and their time are those of sentences that were left alone.
  int64_t passes = 0, drafted_steps = 0, plain_steps = 0;
  double drafted_seconds = 0, plain_seconds = 0, scoring_seconds = 0;

 private:
  static constexpr int CHUNK = 64;  // scores that are compared with a bound at once

  // A sentence that is searched. slot: its rows of the cache begin at slot * beams.
  struct Active {
    int64_t sentence, step, slot;
  };

  // What is fed: the newest token of a row before a step.
  struct Input {
    int64_t step, row, cache_row;
  };

  Pass pass_;
  RowCache cache_;
  SourceRows source_rows_;
  OtherRows other_rows_;
  OtherModels others_;
  StackCall fed_call_;
  int beams_, vocabulary_, dim_, room_;
  int64_t stopped_;  // the step at which the last sentence that advanced stopped
  std::vector<Active> active_;
  std::vector<int64_t> free_;       // slots
  std::vector<int64_t> ancestors_;  // (rows of the cache, room_) the row that holds each slot
  std::vector<Input> inputs_;
  std::vector<int64_t> rows_, sources_, fed_, starts_, lines_, inherited_;
  Aligned<float> hidden_, values_;
  Aligned<uint32_t> scratch_;
  GatherScratch gathered_;
  std::vector<std::vector<Continuation>> best_;  // by input, up to 2 B each
  std::vector<float> normalisers_;               // by input
  std::vector<Continuation> merged_, next_;
  std::vector<int> ranks_;              // (B) of next_ among merged_
  std::vector<char> idle_;              // (B) which of next_ are ignored
  std::vector<GroupState> groups_;      // by slot
  std::vector<PhraseBeams> phrases_;    // by slot
  std::vector<int64_t> drafted_lines_;  // (steps, B, room_) the ancestors before each step

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void start(const Scorer& model, const BeamCall& call) {
    passes = drafted_steps = plain_steps = 0;
    drafted_seconds = plain_seconds = scoring_seconds = 0;
    beams_ = call.beams;
    vocabulary_ = model.vocabulary();
    dim_ = model.stack->dim;
    room_ = int(call.rules.max_len) + 2;
    fed_call_ = call.stack;
    active_.clear();
    free_.clear();
    for (int slot = call.active - 1; slot >= 0; --slot) free_.push_back(slot);
    ancestors_.resize(size_t(call.active) * beams_ * room_);
    groups_.resize(call.active);
    phrases_.resize(call.active);
  }

  // Lets waiting sentences take free slots; tells whether any sentence is searched.
  bool admit(const BeamCall& call, std::atomic<int>& next, int threads) {
    while (!free_.empty()) {
      const int index = next.fetch_add(1);
      if (index >= call.sentences) break;
      active_.push_back({call.order[index], 0, free_.back()});
      source_rows_.add(call.order[index], free_.back());
      other_rows_.add(call.order[index], free_.back());
      groups_[free_.back()].begin(beams_, call.groups);
      begin_phrases(call, call.order[index], phrases_[free_.back()]);
      for (int beam = 0; beam < beams_; ++beam)
        ancestors_[(free_.back() * beams_ + beam) * room_] = free_.back() * beams_ + beam;
      free_.pop_back();
    }
    source_rows_.load(threads);
    source_rows_.describe(fed_call_);
    other_rows_.load(threads);
    return !active_.empty();
  }

  void begin_phrases(const BeamCall& call, int64_t sentence, PhraseBeams& phrases) const {
    if (!call.phrases) return phrases.clear(beams_);
    const int width = call.rules.prefix_width;
    const int64_t* prefix = width > 0 ? call.rules.prefix + sentence * width : nullptr;
    phrases.begin(call.phrases + sentence * call.phrase_width, call.ordered, beams_, prefix, width);
  }

  // Whether a single sentence is left, behind its first step and its prefix.
  bool may_draft(const BeamCall& call, const std::atomic<int>& next) const {
    return active_.size() == 1 && next.load() >= call.sentences && active_[0].step > 0 &&
           active_[0].step >= call.rules.prefix_width;
  }

  void make_room(const Scorer& model, const BeamCall& call, int drafted) {
    int64_t longest = 0;
    for (const Active& each : active_) longest = std::max(longest, each.step);
    const int slots = int(longest) + 1 + drafted;
    cache_.fit(fed_call_, *model.stack, call.active * beams_, slots, room_);
    other_rows_.fit(slots, room_);
  }

  size_t at(const BeamCall& call, int64_t step, int64_t row) const {
    return size_t(step) * call.sentences * beams_ + row;
  }

  // The token that a row has to continue with; -1: any.
  int64_t forced(const BeamCall& call, const Input& input) const {
    if (input.step >= call.rules.max_len) return call.rules.eos;
    return prefixed(call.rules, input.row / beams_, input.step);
  }

  // --- scoring -----------------------------------------------------------------------------

  // In the first step all beams of a sentence are equal, and only the first one runs.
  int beams_at(int64_t step) const { return step == 0 ? 1 : beams_; }

  // Adds the newest tokens of a sentence, and the ancestors of its rows.
  void collect(const Active& each, int64_t step, const int64_t* ancestors) {
    for (int beam = 0; beam < beams_at(step); ++beam) {
      inputs_.push_back({step, each.sentence * beams_ + beam, each.slot * beams_ + beam});
      const int64_t* line = ancestors + size_t(beam) * room_;
      lines_.resize(inputs_.size() * fed_call_.capacity);
      std::copy_n(line, step + 1, &lines_[(inputs_.size() - 1) * fed_call_.capacity]);
    }
  }

  const int64_t* ancestors_of(const Active& each) const {
    return &ancestors_[size_t(each.slot) * beams_ * room_];
  }

  // The best continuations of each input.
  void score(const Scorer& model, const BeamCall& call, int threads) {
    const int count = int(inputs_.size());
    threads =
        model.stack->useful_threads(model.gather ? nullptr : model.projection, count, threads);
    for (auto* each : {&rows_, &sources_, &fed_, &starts_}) each->resize(count);
    for (int i = 0; i < count; ++i) {
      rows_[i] = inputs_[i].cache_row;
      sources_[i] = inputs_[i].cache_row / beams_;
      starts_[i] = inputs_[i].step;
      fed_[i] = call.tokens[at(call, inputs_[i].step, inputs_[i].row)];
    }
    grow(hidden_, size_t(count) * dim_);
    grow(values_, size_t(count) * vocabulary_);
    best_.resize(count);
    normalisers_.resize(count);
    if (model.gather) {
      model.gather->prepare(count, gathered_);
    } else {
      scratch_.resize(model.projection->scratch_size(count));
    }
    StackCall& fed = fed_call_;
    fed.rows = count;
    fed.width = fed.token_stride = 1;
    fed.tokens = fed_.data();
    fed.starts = starts_.data();
    fed.row_index = rows_.data();
    fed.source_index = sources_.data();
    fed.ancestors = lines_.data();
    fed.out = hidden_.data();
    pass_.prepare(*model.stack, fed, threads);
    other_rows_.follow(fed);
    others_.prepare(other_rows_.calls(), model.others, fed, threads);
    std::chrono::steady_clock::time_point layers_done;
    parallel(threads, [&](const Team& team) {
      pass_.run(team, fed);
      others_.layers(team);
      team.wait();
      if (team.index == 0) layers_done = std::chrono::steady_clock::now();
      if (model.gather) {
        model.gather->run(team, hidden_.data(), count, values_.data(), gathered_);
      } else {
        model.projection->run(team, hidden_.data(), dim_, count, scratch_.data(),
                              {values_.data(), size_t(vocabulary_), nullptr, Activation::none});
      }
      others_.project(team);
      team.wait();
      for (int input = team.begin(count); input < team.end(count); ++input)
        rank(model, call, input);
    });
    scoring_seconds += seconds_since(layers_done);
  }

  // The best continuations of an input, by fairseq's rules: unknown, limit, prefix or minimum,
  // n-grams. Their totals are log-probabilities of the one token.
  void rank(const Scorer& model, const BeamCall& call, int index) {
    float* values = &values_[size_t(index) * vocabulary_];
    const Input& input = inputs_[index];
    const int64_t only = forced(call, input);
    const float normaliser = normalise(model, call, index, values);
    values[call.rules.suppressed_id] = MINUS_INFINITY;
    values[call.rules.unk] -= call.rules.unk_penalty;
    normalisers_[index] = normaliser;
    if (ends_early(call.rules, input.step) || lacks_phrase(call, input))
      values[call.rules.eos] = MINUS_INFINITY;
    // Clusters may have left the symbol out.
    if (only >= 0 && in_prefix(call.rules, input.step))
      values[only] = forced_score(values[only], normaliser);
    if (call.ngram > 1) block_ngrams(call, input, values);
    std::vector<Continuation>& best = best_[index];
    best.clear();
    if (only >= 0) {
      best.push_back({values[only] - normaliser, only, input.row});
      return;
    }
    find_best(values, 2 * beams_, best);
    if (call.sibling_rate != 0) std::sort(best.begin(), best.end());
    for (Continuation& each : best) {
      each.total -= normaliser;
      each.row = input.row;
    }
  }

  // Cools the scores of an input. What it returns is to be subtracted from them.
  float normalise(const Scorer& model, const BeamCall& call, int index, float* values) {
    if (model.others > 0) {
      others_.log_probabilities(index, call.temperature, values, vocabulary_);
      return 0;
    }
    cool(values, vocabulary_, call.temperature);
    return model.gather ? model.gather->normaliser(index, values, gathered_)
                        : log_sum_exp(values, vocabulary_);
  }

  // Whether a hypothesis may not end yet, because it lacks a phrase. fairseq lets the first step
  // end it, and phrases begin behind a prefix.
  bool lacks_phrase(const BeamCall& call, const Input& input) const {
    if (input.step == 0 || input.step < call.rules.prefix_width) return false;
    return !phrases_[input.cache_row / beams_].finished(int(input.cache_row % beams_));
  }

  // The `count` greatest values, or all that are possible. Those of the chunks with the greatest
  // maxima are enough.
  void find_best(const float* values, int count, std::vector<Continuation>& best) const {
    static thread_local Aligned<float> greatest, sorted;
    const int chunks = (vocabulary_ + CHUNK - 1) / CHUNK;
    greatest.resize(chunks);
    for (int i = 0; i < chunks; ++i)
      greatest[i] = greatest_of(values + i * CHUNK, std::min(CHUNK, vocabulary_ - i * CHUNK));
    float bound = MINUS_INFINITY;
    if (count < chunks) {
      sorted = greatest;
      std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(),
                       std::greater<float>());
      bound = sorted[count - 1];
    }
    for (int i = 0; i < chunks; ++i) {
      if (greatest[i] < bound) continue;
      for (int token = i * CHUNK; token < std::min(vocabulary_, (i + 1) * CHUNK); ++token)
        if (values[token] >= bound && values[token] > MINUS_INFINITY)
          best.push_back({values[token], token, 0});
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
        values[line[first + size - 1]] = MINUS_INFINITY;
  }

  // --- a step ------------------------------------------------------------------------------

  // The candidates of a sentence, the best first, and those of them that become its beams. Its
  // inputs begin at `first`.
  void merge(const BeamCall& call, const Active& active, int first, int beams) {
    if (call.groups > 0)
      merge_groups(call, active, first, beams);
    else if (chooses_phrases(call, active, inputs_[first].step))
      merge_phrases(call, active, first, beams);
    else
      merge_all(call, first, beams);
    next_.clear();
    ranks_.clear();
    idle_.clear();
    for (const bool ended : {false, true})
      for (int rank = 0; rank < int(merged_.size()) && int(next_.size()) < beams_; ++rank) {
        const bool over = ignored(active, rank) || ends(call, merged_[rank]);
        if (over != ended) continue;
        next_.push_back(merged_[rank]);
        ranks_.push_back(rank);
        idle_.push_back(over);
      }
  }

  // A prefix that ends the sentence makes all beams the first one.
  bool ends_in_prefix(const BeamCall& call, const Input& input) const {
    return in_prefix(call.rules, input.step) && forced(call, input) == call.rules.eos;
  }

  // The 2 B best continuations. Each pays for its rank among those of its beam, which is 1 for the
  // best (Li, Monroe and Jurafsky 2016).
  void merge_all(const BeamCall& call, int first, int beams) {
    const Input& input = inputs_[first];
    const float rate = input.step > 0 ? call.sibling_rate : 0;
    merged_.clear();
    for (int beam = 0; beam < beams; ++beam) {
      int rank = 0;
      for (Continuation each : best_[first + beam]) {
        each.total += call.totals[at(call, input.step, each.row)];
        each.total -= rate * float(++rank);
        merged_.push_back(each);
      }
    }
    if (ends_in_prefix(call, input)) merged_.assign(beams, Continuation(merged_[0]));
    const size_t most = std::min(merged_.size(), size_t(2 * beams_));
    std::partial_sort(merged_.begin(), merged_.begin() + most, merged_.end());
    merged_.resize(most);
    // What is missing is impossible; rows of it find nothing.
    merged_.resize(2 * beams_, {MINUS_INFINITY, call.rules.suppressed_id, input.row});
  }

  // Whether phrases of a sentence choose its beams, which begins behind a prefix.
  bool chooses_phrases(const BeamCall& call, const Active& active, int64_t step) const {
    return !phrases_[active.slot].empty() && step >= call.rules.prefix_width;
  }

  // The 2 B continuations that phrases choose among the best of all, the best of each beam, and the
  // tokens of phrases. Where they begin, all beams are the first one.
  void merge_phrases(const BeamCall& call, const Active& active, int first, int beams) {
    PhraseBeams& phrases = phrases_[active.slot];
    const Input& input = inputs_[first];
    const bool begins = input.step == call.rules.prefix_width;
    if (begins) beams = 1;
    merge_all(call, first, beams);
    for (int beam = 0; beam < beams; ++beam) {
      const int64_t row = input.row + beam;
      const auto best = std::min_element(best_[first + beam].begin(), best_[first + beam].end());
      if (!begins && best != best_[first + beam].end())
        add(call, input.step, best->total, best->token, row);
      for (const int64_t token : phrases.next_tokens(beam))
        add(call, input.step, possible(call, first + beam, token), token, row);
    }
    if (!phrases.choose(merged_, input.row, 2 * beams_)) call.doubtful[active.sentence] = 1;
    merged_.resize(2 * beams_, {MINUS_INFINITY, call.rules.suppressed_id, input.row});
  }

  // Adds a continuation of a row, whose log-probability is `value`.
  void add(const BeamCall& call, int64_t step, float value, int64_t token, int64_t row) {
    merged_.push_back({value + call.totals[at(call, step, row)], token, row});
  }

  // The log-probability of any token of an input. At the limit of length all but ends are
  // impossible.
  float possible(const BeamCall& call, int index, int64_t token) const {
    if (inputs_[index].step >= call.rules.max_len) return MINUS_INFINITY;
    return values_[size_t(index) * vocabulary_ + token] - normalisers_[index];
  }

  // The B best continuations, chosen by one group of beams after another.
  void merge_groups(const BeamCall& call, const Active& active, int first, int beams) {
    const Input& input = inputs_[first];
    const bool over = ends_in_prefix(call, input);
    groups_[active.slot].choose(
        {call.group_strength, call.rules.suppressed_id, input.step, input.row}, merged_,
        [&](int beam) -> const std::vector<Continuation>& {
          return best_[first + (over || beams == 1 ? 0 : beam)];
        },
        [&](const Continuation& each) { return call.totals[at(call, input.step, each.row)]; });
  }

  // Whether a candidate of this rank neither ends a hypothesis nor continues one. Where candidates
  // are too few, fairseq fills the beams with ended ones, and notes their ranks.
  bool ignored(const Active& active, int rank) const {
    return rank < beams_ && groups_[active.slot].ignored[rank];
  }

  static bool ends(const BeamCall& call, const Continuation& each) {
    return each.token == call.rules.eos && each.total > MINUS_INFINITY;
  }

  // Ends of sentences count among the B best continuations.
  int count_ends(const BeamCall& call) const {
    return int(std::count_if(merged_.begin(), merged_.begin() + beams_,
                             [&](const Continuation& each) { return ends(call, each); }));
  }

  void finish(const BeamCall& call, const Active& active, int64_t step) const {
    int64_t& count = call.counts[active.sentence];
    for (int rank = 0; rank < beams_ && count < beams_; ++rank)
      if (ends(call, merged_[rank]) && !ignored(active, rank))
        trace(call, merged_[rank], step, size_t(active.sentence) * beams_ + count++);
  }

  // Writes a finished hypothesis: follows the parents of its last row back to the first step.
  void trace(const BeamCall& call, const Continuation& last, int64_t end, size_t index) const {
    const size_t first = index * (call.rules.max_len + 1);
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

  // Makes the chosen continuations the beams of the next step. lines: (beams, room_) the ancestors
  // of the sentence's rows before this one.
  void branch(const BeamCall& call, const Active& active, int64_t step, const int64_t* lines) {
    const size_t slots = step + 1;
    inherited_.resize(beams_ * slots);
    for (int beam = 0; beam < beams_; ++beam) {
      const size_t next = at(call, step + 1, active.sentence * beams_ + beam);
      call.tokens[next] = next_[beam].token;
      call.parents[next] = next_[beam].row;
      call.totals[next] = next_[beam].total;
      const int64_t* line = lines + (next_[beam].row - active.sentence * beams_) * room_;
      std::copy_n(line, slots, &inherited_[beam * slots]);
    }
    groups_[active.slot].ignored = idle_;
    if (chooses_phrases(call, active, step)) phrases_[active.slot].follow(ranks_);
    for (int beam = 0; beam < beams_; ++beam) {
      const int64_t row = active.slot * beams_ + beam;
      std::copy_n(&inherited_[beam * slots], slots, &ancestors_[row * room_]);
      ancestors_[row * room_ + slots] = row;
    }
  }

  // --- drafts ------------------------------------------------------------------------------

  // Lets the drafter search from here, as if its scores were the model's; tells for how many steps.
  // Keys and values that it leaves in the cache are written again by the model.
  int draft(const Scorer& drafter, const BeamCall& call, int threads) {
    const Active& active = active_[0];
    const size_t size = size_t(beams_) * room_;
    const int64_t* lines = ancestors_of(active);
    const int64_t most = std::min(active.step + call.block, call.rules.max_len);
    drafted_lines_.assign(lines, lines + size);
    int64_t ended = call.counts[active.sentence], step = active.step;
    for (; step < most; ++step) {
      inputs_.clear();
      collect(active, step, lines);
      score(drafter, call, threads);
      merge(call, active, 0, beams_);
      ended += count_ends(call);
      if (ended >= beams_) break;
      branch(call, active, step, lines);
      drafted_lines_.insert(drafted_lines_.end(), lines, lines + size);
    }
    return int(step - active.step);
  }

  // Searches a step with the model, and as many drafted ones behind it as are the model's, too.
  void verify(const Scorer& model, const BeamCall& call, int drafted, Watch& watch, int threads) {
    inputs_.clear();
    for (const Active& each : active_) {
      if (drafted == 0) collect(each, each.step, ancestors_of(each));
      for (int ahead = 0; drafted > 0 && ahead <= drafted; ++ahead)
        collect(each, each.step + ahead, &drafted_lines_[size_t(ahead) * beams_ * room_]);
    }
    score(model, call, threads);
    size_t left = 0;
    int first = 0;
    for (Active each : active_) {
      const int beams = beams_at(each.step);
      const bool over = advance(call, each, first, drafted);
      first += beams;
      stopped_ = each.step;
      if (over) {
        free_.push_back(each.slot);
        watch.finished(each.step);
      } else {
        active_[left++] = each;
      }
    }
    active_.resize(left);
  }

  // Takes a sentence as far as the drafted steps are right, and a step further. Tells whether it
  // is done. first: its first input.
  bool advance(const BeamCall& call, Active& active, int first, int drafted) {
    const int64_t* lines = drafted > 0 ? drafted_lines_.data() : ancestors_of(active);
    for (;; --drafted) {
      const int64_t step = active.step++;
      const int beams = beams_at(step);
      merge(call, active, first, beams);
      finish(call, active, step);
      if (call.counts[active.sentence] == beams_ || step == call.rules.max_len) return true;
      if (drafted == 0 || !adopt(call, step + 1, active.sentence)) {
        branch(call, active, step, lines);
        return false;
      }
      first += beams;
      lines += size_t(beams_) * room_;
    }
  }

  // Whether the drafted beams before a step are those that the model chose, in whatever order; if
  // so, gives them the model's totals.
  bool adopt(const BeamCall& call, int64_t step, int64_t sentence) const {
    const size_t first = at(call, step, sentence * beams_);
    static thread_local Aligned<float> totals;
    totals.assign(beams_, MINUS_INFINITY);
    for (const Continuation& each : next_)
      for (int beam = 0; beam < beams_; ++beam)
        if (call.tokens[first + beam] == each.token && call.parents[first + beam] == each.row)
          totals[beam] = each.total;
    for (float total : totals)
      if (!(total > MINUS_INFINITY)) return false;
    std::copy(totals.begin(), totals.end(), call.totals + first);
    return true;
  }
};

class BeamSearch {
 public:
  void run(const Scorer& model, const Scorer& drafter, const Linear& source_in, BeamCall& call,
           int threads) {
    const int ran =
        workers_.run(call.workers, threads, call.watch, [&](BeamWorker& worker, auto&&... own) {
          worker.run(model, drafter, source_in, call, own...);
        });
    for (int i = 0; i < ran; ++i) {
      const BeamWorker& worker = workers_[i];
      call.passes += worker.passes;
      call.drafted_steps += worker.drafted_steps;
      call.plain_steps += worker.plain_steps;
      call.drafted_seconds += worker.drafted_seconds;
      call.plain_seconds += worker.plain_seconds;
      call.scoring_seconds += worker.scoring_seconds / ran;
    }
  }

 private:
  Workers<BeamWorker> workers_;
};

// projection: null where a part of the symbols is scored. drafter: null for none. source_in: makes
// keys and values of the source.
extern "C" void beam_search_run(BeamSearch* search, Stack* stack, const Linear* projection,
                                Stack* drafter, const Linear* drafter_projection,
                                const Linear* source_in, BeamCall* call, int threads) {
  search->run({stack, projection, call->gather, call->other_models},
              {drafter, drafter_projection, nullptr}, *source_in, *call, threads);
}

}  // namespace native
