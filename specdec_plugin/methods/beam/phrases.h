// Phrases that each hypothesis has to contain (Post and Vilar 2018; Hu et al. 2019), as in
// fairseq's `LexicallyConstrainedBeamSearch`. The reference is `PhraseSearch` in
// fairseq_compat/phrase_search.py.
//
// Hypotheses that contain the same number of the phrases' tokens are a bank, and the banks take
// turns. fairseq's states tell what a hypothesis contains: a node of a trie of the phrases, or with
// ordered phrases the number of their tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "methods/beam/groups.h"

namespace native {

// What a hypothesis contains.
struct PhraseState {
  int node = 0;  // of the trie; of ordered phrases, how many tokens
  int bank = 0;  // how many of the phrases' tokens
  // By node of the trie: how often the hypothesis went through it, and ended a phrase there.
  std::vector<int> generated, completed;
};

// The phrases of a sentence.
class Phrases {
 public:
  // packed: their number, and of each the tokens and a 0, as by fairseq's `pack_constraints`.
  void read(const int64_t* packed, bool ordered) {
    ordered_ = ordered;
    nodes_.assign(1, Node{0});
    sequence_.clear();
    ends_.clear();
    const int64_t* token = packed + 1;
    for (int64_t phrase = 0; phrase < packed[0]; ++phrase, ++token) {
      int node = 0;
      for (; *token != 0; ++token) {
        sequence_.push_back(*token);
        ends_.push_back(token[1] == 0);
        if (!ordered) node = child_or_new(node, *token);
      }
      if (ordered) continue;
      ++nodes_[node].terminal;
      for (int above = node;; above = nodes_[above].parent) {
        ++nodes_[above].phrases;
        if (above == 0) break;
      }
    }
    std::vector<int64_t> different = sequence_;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    // fairseq counts banks from here.
    most_ = int(ordered ? sequence_.size() : different.size());
  }

  bool empty() const { return sequence_.empty(); }
  int most() const { return most_; }

  PhraseState begin() const {
    PhraseState state;
    state.generated.resize(ordered_ ? 0 : nodes_.size());
    state.completed = state.generated;
    return state;
  }

  // Whether it contains all phrases.
  bool finished(const PhraseState& state) const {
    if (ordered_) return state.node == int(sequence_.size());
    int sum = completes(state, state.node);
    for (const int each : state.completed) sum += each;
    return sum == nodes_[0].phrases;
  }

  // Tokens that bring a hypothesis further.
  void next_tokens(const PhraseState& state, std::vector<int64_t>& found) const {
    found.clear();
    if (ordered_) {
      if (state.node > 1) found.push_back(sequence_[0]);
      if (!finished(state)) found.push_back(sequence_[state.node]);
      return;
    }
    for (const auto& each : nodes_[0].children) found.push_back(each.first);
    if (state.node == 0) return;
    for (const auto& each : nodes_[state.node].children) found.push_back(each.first);
  }

  // The bank of a hypothesis with another token.
  int bank_with(const PhraseState& state, int64_t token) const {
    return ordered_ ? in_order(state.node, token) : step_in_trie(state, token).bank;
  }

  // What a hypothesis contains with another token.
  PhraseState advance(const PhraseState& state, int64_t token) const {
    PhraseState next = state;
    if (ordered_) {
      next.node = next.bank = in_order(state.node, token);
      return next;
    }
    const Step step = step_in_trie(state, token);
    next.node = step.node;
    next.bank = step.bank;
    if (step.node != 0) ++next.generated[step.node];
    if (step.goes_on) return next;
    for (int node = state.node; node != step.completed; node = nodes_[node].parent)
      --next.generated[node];
    if (step.completed != 0) ++next.completed[step.completed];
    return next;
  }

 private:
  struct Node {
    int parent;
    int terminal = 0;                      // phrases that end here
    int phrases = 0;                       // that go through it, or end here
    std::map<int64_t, int> children = {};  // by token
  };

  // To a node with another token. completed: the node of a phrase that ends before it; 0: none
  // does.
  struct Step {
    int node, bank, completed;
    bool goes_on;
  };

  bool ordered_ = false;
  int most_ = 0;
  std::vector<Node> nodes_;        // the first one is the root
  std::vector<int64_t> sequence_;  // all tokens
  std::vector<char> ends_;         // which of them end a phrase

  int child(int node, int64_t token) const {
    const auto found = nodes_[node].children.find(token);
    return found == nodes_[node].children.end() ? -1 : found->second;
  }

  int child_or_new(int node, int64_t token) {
    const int found = child(node, token);
    if (found >= 0) return found;
    nodes_[node].children[token] = int(nodes_.size());
    nodes_.push_back(Node{node});
    return int(nodes_.size()) - 1;
  }

  bool completes(const PhraseState& state, int node) const {
    return state.completed[node] < nodes_[node].terminal;
  }

  bool open(const PhraseState& state, int node) const {
    return node >= 0 && state.generated[node] < nodes_[node].phrases;
  }

  // How many tokens of ordered phrases a hypothesis with `at` of them contains with another token.
  int in_order(int at, int64_t token) const {
    if (at == int(sequence_.size())) return at;
    if (sequence_[at] == token) return at + 1;
    if (at == 0 || ends_[at - 1]) return at;  // anything may stand between phrases
    return token == sequence_[0] ? 1 : 0;
  }

  Step step_in_trie(const PhraseState& state, int64_t token) const {
    const int below = child(state.node, token);
    if (open(state, below)) return {below, state.bank + 1, 0, true};
    const int first = child(0, token);
    Step step{open(state, first) ? first : 0, state.bank, 0, false};
    if (step.node != 0) ++step.bank;
    // A part of the phrase that is left may be a phrase itself.
    step.completed = state.node;
    for (; step.completed != 0 && !completes(state, step.completed); --step.bank)
      step.completed = nodes_[step.completed].parent;
    return step;
  }
};

// What the beams of a sentence contain.
class PhraseBeams {
 public:
  // packed: see Phrases::read. prefix: so many tokens with which all hypotheses begin.
  void begin(const int64_t* packed, bool ordered, int beams, const int64_t* prefix, int width) {
    phrases_.read(packed, ordered);
    PhraseState begun = phrases_.begin();
    for (int i = 0; i < width && !empty(); ++i) begun = phrases_.advance(begun, prefix[i]);
    states_.assign(beams, begun);
  }

  // Without phrases: anything may follow.
  void clear(int beams) {
    const int64_t none = 0;
    begin(&none, true, beams, nullptr, 0);
  }

  bool empty() const { return phrases_.empty(); }
  bool finished(int beam) const { return empty() || phrases_.finished(states_[beam]); }

  const std::vector<int64_t>& next_tokens(int beam) {
    phrases_.next_tokens(states_[beam], tokens_);
    return tokens_;
  }

  // Leaves so many of the candidates, of the banks in turn, those that contain most first. Tells
  // whether fairseq chooses the same among them whatever order equal numbers are sorted in:
  // impossible candidates are equal, and so are turns of banks that totals of more than 100 mix.
  // row: of the first beam.
  bool choose(std::vector<Continuation>& found, int64_t row, int count) {
    missing_.clear();
    for (const Continuation& each : found) {
      const PhraseState& state = states_[each.row - row];
      missing_.push_back(phrases_.most() - phrases_.bank_with(state, each.token));
    }
    bool certain = order_by_banks(found);
    certain &= take_turns(count);
    chosen_.clear();
    kept_.clear();
    for (const int rank : order_) {
      if (int(kept_.size()) == count) break;
      const Continuation& each = found[rank];
      kept_.push_back(each);
      chosen_.push_back(phrases_.advance(states_[each.row - row], each.token));
    }
    found = kept_;
    return certain;
  }

  // The candidates of these ranks are the beams now. Those behind the last one are impossible.
  void follow(const std::vector<int>& ranks) {
    for (size_t beam = 0; beam < ranks.size(); ++beam)
      if (ranks[beam] < int(chosen_.size())) states_[beam] = chosen_[ranks[beam]];
  }

 private:
  static constexpr float MISSING = -100;  // what fairseq adds for each token that is missing

  Phrases phrases_;
  std::vector<PhraseState> states_;  // by beam
  std::vector<int64_t> tokens_;
  std::vector<PhraseState> chosen_;  // of the candidates that are left
  std::vector<int> missing_;         // tokens, by candidate
  std::vector<int> order_, sorted_;
  std::vector<int64_t> turns_;
  std::vector<float> keys_;
  std::vector<Continuation> kept_;

  // By bank, and then by total. One number has both, as in fairseq, where totals of more than 100
  // mix banks. Those that were found twice follow each other, and one is left.
  bool order_by_banks(const std::vector<Continuation>& found) {
    const int count = int(found.size());
    keys_.resize(count);
    order_.resize(count);
    for (int rank = 0; rank < count; ++rank) {
      keys_[rank] = float(missing_[rank]) * MISSING + found[rank].total;
      order_[rank] = rank;
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int one, int other) { return keys_[one] > keys_[other]; });
    const auto same = [&](int one, int other) {
      return found[one].row == found[other].row && found[one].token == found[other].token;
    };
    order_.erase(std::unique(order_.begin(), order_.end(), same), order_.end());
    for (size_t place = 1; place < order_.size(); ++place)
      if (keys_[order_[place]] == keys_[order_[place - 1]]) return false;
    return keys_[order_.back()] > MINUS_INFINITY;
  }

  // The best of each bank, then the second of each, and so on. Tells whether the turns of those
  // that are left differ from all others.
  bool take_turns(int left) {
    const int count = int(order_.size());
    turns_.resize(count);
    sorted_.resize(count);
    int64_t turn = -1;
    int current = count > 0 ? missing_[order_[0]] : 0;
    for (int place = 0; place < count; ++place) {
      const int bank = missing_[order_[place]];
      turn = bank == current ? turn + 1 : 0;
      current = bank;
      turns_[place] = current + turn * (count + 1);
      sorted_[place] = place;
    }
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [&](int one, int other) { return turns_[one] < turns_[other]; });
    bool different = true;
    for (int place = 1; place < std::min(count, left + 1); ++place)
      different &= turns_[sorted_[place]] != turns_[sorted_[place - 1]];
    for (int& place : sorted_) place = order_[place];
    order_.swap(sorted_);
    return different;
  }
};

}  // namespace native
