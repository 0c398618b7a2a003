// The tokens of drafted blocks, chosen one after another (chain_head.py, `ChainHead`).
#pragma once

#include <memory>

#include "decoding/sampling.h"
#include "engine/native/linear.h"
#include "vocab/best.h"
#include "vocab/candidates.h"

namespace native {

// The states h of a few positions are projected at once, and the symbols with the greatest scores
// are candidates. Of the chained states only the candidates' scores are computed. Each thread has
// candidates of its own, among the symbols that it scored: scores of others are far from its
// processor.
class Chain {
 public:
  // The chain owns the first three maps (A; B beside C; D) from now on, but nothing else.
  // weight: (vocabulary, dim) of `projection`, which packs it; bias: (vocabulary) or null;
  // embedding: (vocabulary, token_dim), multiplied with `scale`.
  Chain(Linear* from_state, Linear* from_before, Linear* out, const Linear* projection,
        const float* weight, const float* bias, const float* embedding, int token_dim, float scale)
      : dim(out->outputs),
        token_dim(token_dim),
        units(out->inputs),
        from_state(from_state),
        from_before(from_before),
        out(out),
        projection(projection),
        weight(weight),
        bias(bias),
        embedding(embedding),
        scale(scale) {}

  // To be called before the threads call `run`.
  void prepare(const ChainCall& call, int threads) {
    const int inputs = call.rows * call.block, vocabulary = projection->outputs;
    grow(states_, size_t(inputs) * units);
    each_alone_ = call.rows == 1 && from_before->weights() + out->weights() <= ALONE;
    grow(inner_, size_t(call.rows) * units * (each_alone_ ? threads : 1));
    grow(outer_, size_t(call.rows) * dim * (each_alone_ ? threads : 1));
    grow(values_, size_t(call.rows) * CHAIN_POSITIONS * vocabulary);
    candidates_.resize(size_t(call.rows) * CHAIN_POSITIONS * threads);
    chunks_ = std::max(1, Candidates::CHUNKS / threads);
    grow(maxima_, size_t(call.rows) * CHAIN_POSITIONS * chunks_ * threads);
    scratch_.resize(std::max(
        from_state->scratch_size(inputs),
        std::max(from_before->scratch_size(call.rows), projection->scratch_size(CHAIN_POSITIONS))));
    parts_.resize(2 * size_t(call.rows) * threads);
    links_.resize(threads);
    for (Links& links : links_) {
      links.before.assign(size_t(call.rows) * (token_dim + units), 0.0f);
      links.state.resize(size_t(call.rows) * dim);
      links.last.assign(call.last, call.last + call.rows);
      links.lengths.assign(call.rows, call.block);
      links.confidence.assign(call.rows, 1.0f);
    }
  }

  // By all threads; the caller waits before it reads the results.
  void run(const Team& team, const ChainCall& call) {
    from_state->run(team, call.hidden, dim, call.rows * call.block, scratch_.data(),
                    {states_.data(), size_t(units), nullptr, Activation::none});
    team.wait();
    Links& links = links_[team.index];
    int unfinished = call.rows;
    for (int position = 0; position < call.block && unfinished > 0; ++position) {
      if (position % CHAIN_POSITIONS == 0) find_candidates(team, call, position);
      if (each_alone_) {
        link(Team(), call, position, links, team.index);
      } else {
        link(team, call, position, links, 0);
      }
      unfinished -= choose(team, call, position, links);
    }
    if (team.index == 0) std::copy(links.lengths.begin(), links.lengths.end(), call.lengths);
  }

 private:
  static constexpr int BEST = 32;  // see `Candidates::find`
  // Weights of a step that each thread takes for itself sooner than it waits for the others.
  static constexpr size_t ALONE = 1 << 20;

  const int dim, token_dim, units;
  const std::unique_ptr<Linear> from_state, from_before, out;
  const Linear* const projection;
  const float *const weight, *const bias, *const embedding;
  const float scale;
  bool each_alone_ = false;  // each thread computes the states by itself
  int chunks_ = 0;           // of each thread's symbols
  std::vector<Best> parts_;  // (2, rows, threads) of positions in turns
  Aligned<float> states_, inner_, outer_, values_;
  Aligned<float> maxima_;               // (rows, CHAIN_POSITIONS, threads, chunks)
  std::vector<Candidates> candidates_;  // (rows, CHAIN_POSITIONS, threads)
  Aligned<uint32_t> scratch_;

  // What a thread knows of each row. All threads compute the same, which takes less time than to
  // wait for one of them.
  struct Links {
    Aligned<float> before;  // (rows, token_dim + units) e and u
    Aligned<float> state;   // (rows, dim) z
    std::vector<int64_t> last, lengths;
    Aligned<float> confidence;
  };
  std::vector<Links> links_;  // (threads)

  // Finds the candidates of CHAIN_POSITIONS positions from `first` on.
  void find_candidates(const Team& team, const ChainCall& call, int first) {
    const int vocabulary = projection->outputs,
              positions = std::min(CHAIN_POSITIONS, call.block - first);
    const int begin = projection->begin(team), end = projection->end(team);
    if (first > 0) team.wait();  // others may still read the candidates before
    if (Candidates::all(vocabulary)) {
      for (int i = 0; i < call.rows * CHAIN_POSITIONS; ++i)
        own(team, i).take_all(begin, end, call.suppressed_id);
      return;
    }
    for (int row = 0; row < call.rows; ++row) {
      const float* states = call.hidden + (size_t(row) * call.block + first) * dim;
      const size_t slot = slot_of(row, first);
      if (row > 0) team.wait();  // others may still read the inputs in the weights' format
      projection->run(team, states, dim, positions, scratch_.data(),
                      {&values_[slot * vocabulary], size_t(vocabulary), nullptr, Activation::none});
      for (size_t i = slot; i < slot + positions; ++i)
        Candidates::chunk_maxima(&values_[i * vocabulary], begin, end, chunks_,
                                 maxima_of(i, team.size) + team.index * chunks_);
    }
    team.wait();
    for (int row = 0; row < call.rows; ++row)
      for (int position = 0; position < positions; ++position) {
        const size_t slot = slot_of(row, position);
        const float* maxima = maxima_of(slot, team.size);
        const float bound = Candidates::bound_of(maxima, team.size * chunks_, BEST);
        own(team, slot)
            .take(&values_[slot * vocabulary], begin, end, chunks_, maxima + team.index * chunks_,
                  bound, call.suppressed_id);
      }
  }

  // Where the candidates of a position are.
  static size_t slot_of(int row, int position) {
    return size_t(row) * CHAIN_POSITIONS + position % CHAIN_POSITIONS;
  }

  // The maxima of all threads' chunks.
  float* maxima_of(size_t slot, int threads) { return &maxima_[slot * threads * chunks_]; }

  Candidates& own(const Team& team, size_t slot) {
    return candidates_[slot * team.size + team.index];
  }

  // state = h + D relu(A h + [B C] [e ; u]); the new u goes to the second half of `before`.
  // place: of what this team writes among the threads' results.
  void link(const Team& team, const ChainCall& call, int position, Links& links, int place) {
    const size_t width = token_dim + units;
    float* inner = &inner_[size_t(place) * units];
    float* outer = &outer_[size_t(place) * dim];
    for (int row = 0; row < call.rows; ++row)
      for (int i = 0; i < token_dim; ++i)
        links.before[row * width + i] = scale * embedding[links.last[row] * token_dim + i];
    from_before->run(team, links.before.data(), width, call.rows, scratch_.data(),
                     {inner, size_t(units), nullptr, Activation::none});
    team.wait();
    for (int row = 0; row < call.rows; ++row)
      for (int i = 0; i < units; ++i) {
        const size_t input = size_t(row) * call.block + position;
        const float sum = inner[row * size_t(units) + i] + states_[input * units + i];
        links.before[row * width + token_dim + i] = sum > 0 ? sum : 0;
      }
    out->run(team, links.before.data() + token_dim, width, call.rows, scratch_.data(),
             {outer, size_t(dim), nullptr, Activation::none});
    team.wait();
    for (int row = 0; row < call.rows; ++row)
      for (int i = 0; i < dim; ++i)
        links.state[row * size_t(dim) + i] =
            outer[row * size_t(dim) + i] +
            call.hidden[(size_t(row) * call.block + position) * dim + i];
  }

  // The best candidate of every row, of which each thread scores its own. Returns how many rows end
  // here.
  int choose(const Team& team, const ChainCall& call, int position, Links& links) {
    // Others may still read what was found at the position before, but no more than that.
    Best* const parts = &parts_[size_t(position % 2) * call.rows * team.size];
    for (int row = 0; row < call.rows; ++row) {
      Candidates& candidates = own(team, slot_of(row, position));
      const int count = candidates.count;
      const float* state = &links.state[row * size_t(dim)];
      float* scores = candidates.scores;
      for (int i = 0; i < count; ++i) {
        const int symbol = candidates.symbols[i];
        scores[i] = dot(state, weight + size_t(symbol) * dim, dim) + (bias ? bias[symbol] : 0.0f);
      }
      Best& part = parts[row * size_t(team.size) + team.index];
      part = Best();
      if (count == 0) continue;
      if (draws(call.sampling)) cool(scores, count, call.sampling.temperature);
      if (call.confidence > 0) part.log_sum = log_sum_exp(scores, count);
      const int best = argmax(scores, count);
      part.symbol = candidates.symbols[best];
      part.score = scores[best];
    }
    team.wait();
    int ended = 0;
    for (int row = 0; row < call.rows; ++row)
      ended += decide(team, call, row, position, parts + row * size_t(team.size), links);
    return ended;
  }

  // What is drawn among the candidates of one row, which all threads have found.
  Best drawn(const ChainCall& call, int row, int position, int threads) const {
    static thread_local std::vector<int> symbols;
    static thread_local Aligned<float> scores;
    symbols.clear();
    scores.clear();
    const Candidates* each = &candidates_[slot_of(row, position) * threads];
    for (const Candidates* end = each + threads; each < end; ++each) {
      symbols.insert(symbols.end(), each->symbols, each->symbols + each->count);
      scores.insert(scores.end(), each->scores, each->scores + each->count);
    }
    const int count = int(scores.size());
    const Draw draw(call.sampling, row, position);
    const float normaliser = call.sampling.top_p > 0 ? log_sum_exp(scores.data(), count) : 0;
    const int found = draw.from(scores.data(), count, normaliser, symbols.data());
    Best best;
    best.symbol = symbols[found];
    best.score = scores[found];
    return best;
  }

  // Combines what the threads found for one row. Returns whether the row ends here.
  bool decide(const Team& team, const ChainCall& call, int row, int position, const Best* parts,
              Links& links) const {
    const Best best =
        draws(call.sampling) ? drawn(call, row, position, team.size) : best_of(parts, team.size);
    links.last[row] = best.symbol;
    if (team.index == 0) call.tokens[row * size_t(call.block) + position] = best.symbol;
    if (call.confidence <= 0 || links.lengths[row] < call.block) return false;
    links.confidence[row] /= inverse_probability(parts, team.size, best);
    if (links.confidence[row] >= call.confidence) return false;
    links.lengths[row] = position;
    return true;
  }
};

extern "C" void chain_run(Chain* chain, const ChainCall* call, int threads) {
  chain->prepare(*call, threads);
  parallel(threads, [&](const Team& team) { chain->run(team, *call); });
}

}  // namespace native
