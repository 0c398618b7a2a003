// The other models of an ensemble, and a language model beside them. The reference on PyTorch's
// operators is `Verifier.scores` in verifier.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "decoding/sampling.h"
#include "engine/native/row_cache.h"
#include "engine/native/source_rows.h"
#include "engine/native/stack.h"

namespace native {

// Their caches and sources, for the sentences that a worker decodes.
class OtherRows {
 public:
  // Before a batch. calls: (count) the models. rows: of the cache. sentences: at once.
  void begin(const ModelCall* calls, int count, int rows, int sentences) {
    calls_.assign(calls, calls + count);
    rows_ = rows;
    if (int(caches_.size()) < count) caches_.resize(count);
    if (int(sources_.size()) < count) sources_.resize(count);
    each([&](ModelCall& call, RowCache&, SourceRows& sources) {
      if (call.source_in) sources.begin(*call.source_in, call.source, sentences);
    });
  }

  // Gives a slot to a sentence, whose source `load` reads.
  void add(int64_t sentence, int64_t slot) {
    each([&](ModelCall& call, RowCache&, SourceRows& sources) {
      if (call.source_in) sources.add(sentence, slot);
    });
  }

  void load(int threads) {
    each([&](ModelCall& call, RowCache&, SourceRows& sources) {
      if (!call.source_in) return;
      sources.load(threads);
      sources.describe(call.stack);
    });
  }

  // Makes room for `slots` slots in each row. most: slots that the batch may need.
  void fit(int slots, int most) {
    each([&](ModelCall& call, RowCache& cache, SourceRows&) {
      cache.fit(call.stack, *call.layers, rows_, slots, most);
    });
  }

  // Takes the rows that the first model is about to decode.
  void follow(const StackCall& first) {
    for (ModelCall& call : calls_) {
      call.stack.row_index = first.row_index;
      call.stack.source_index = first.source_index;
    }
  }

  const ModelCall* calls() const { return calls_.data(); }

 private:
  std::vector<ModelCall> calls_;
  std::deque<RowCache> caches_;
  std::deque<SourceRows> sources_;
  int rows_ = 0;

  template <class Use>
  void each(const Use& use) {
    for (size_t i = 0; i < calls_.size(); ++i) use(calls_[i], caches_[i], sources_[i]);
  }
};

// Scores by all models.
class OtherModels {
 public:
  // To be called before the threads call `layers`. calls: (count) the models. first: what the first
  // model is fed.
  void prepare(const ModelCall* calls, int count, const StackCall& first, int threads) {
    count_ = count;
    if (int(others_.size()) < count) others_.resize(count);
    inputs_ = inputs_of(first);
    for (int i = 0; i < count; ++i) prepare(others_[i], calls[i], first, threads);
  }

  // By all threads; the caller waits before they call `project`.
  void layers(const Team& team) {
    for (int i = 0; i < count_; ++i) others_[i].pass.run(team, others_[i].fed);
  }

  // By all threads; the caller waits before it calls `log_probabilities`.
  void project(const Team& team) {
    for (int i = 0; i < count_; ++i) {
      Other& other = others_[i];
      const Linear& projection = *other.call.projection;
      projection.run(team, other.hidden.data(), projection.inputs, inputs_, other.scratch.data(),
                     {other.values.data(), size_t(projection.outputs), nullptr, Activation::none});
    }
  }

  // Replaces the first model's scores of one input, (vocabulary), by the logarithms of the models'
  // mean probabilities, to which a language model adds its own (Gulcehre et al. 2015).
  void log_probabilities(int input, float temperature, float* scores, int vocabulary) {
    static thread_local std::vector<Scores> averaged, added;
    averaged.clear();
    added.clear();
    cool(scores, vocabulary, temperature);
    averaged.push_back({scores, log_sum_exp(scores, vocabulary), 1.0f});
    for (int i = 0; i < count_; ++i) {
      const ModelCall& call = others_[i].call;
      float* own = &others_[i].values[size_t(input) * vocabulary];
      if (!call.fused) cool(own, vocabulary, temperature);
      (call.fused ? added : averaged).push_back({own, log_sum_exp(own, vocabulary), call.weight});
    }
    for (int first = 0; first < vocabulary; first += LANES) {
      const int lanes = std::min(LANES, vocabulary - first);
      Vec found = log_of_mean(averaged, first, lanes);
      for (const Scores& each : added) found += splat(each.weight) * each.at(first, lanes);
      std::memcpy(scores + first, &found, sizeof(float) * lanes);
    }
  }

 private:
  // One model with the room that it takes.
  struct Other {
    ModelCall call;
    StackCall fed;
    Pass pass;
    std::vector<int64_t> ancestors;  // (rows, capacity of its own cache)
    Aligned<float> hidden, values;
    Aligned<uint32_t> scratch;
  };

  // One model's scores of an input.
  struct Scores {
    const float* values;
    float normaliser, weight;

    // Log-probabilities of the first of LANES symbols.
    Vec at(int first, int lanes) const {
      const Vec scores = lanes == LANES ? load(values + first) : load_first(values + first, lanes);
      return scores - splat(normaliser);
    }
  };

  std::deque<Other> others_;
  int count_ = 0, inputs_ = 0;

  void prepare(Other& other, const ModelCall& call, const StackCall& first, int threads) const {
    other.call = call;
    StackCall& fed = other.fed = call.stack;
    fed.rows = first.rows;
    fed.width = first.width;
    fed.tokens = first.tokens;
    fed.token_stride = first.token_stride;
    fed.starts = first.starts;
    if (first.ancestors) follow_ancestors(other, first);
    grow(other.hidden, size_t(inputs_) * call.layers->dim);
    grow(other.values, size_t(inputs_) * call.projection->outputs);
    other.scratch.resize(call.projection->scratch_size(inputs_));
    fed.out = other.hidden.data();
    other.pass.prepare(*call.layers, fed, threads);
  }

  // Caches of other shapes may have other capacities.
  static void follow_ancestors(Other& other, const StackCall& first) {
    const size_t capacity = other.fed.capacity;
    other.ancestors.resize(first.rows * capacity);
    for (int row = 0; row < first.rows; ++row)
      std::copy_n(first.ancestors + size_t(row) * first.capacity, first.starts[row] + 1,
                  &other.ancestors[row * capacity]);
    other.fed.ancestors = other.ancestors.data();
  }

  // log (Σ p / models)
  static Vec log_of_mean(const std::vector<Scores>& models, int first, int lanes) {
    if (models.size() == 1) return models[0].at(first, lanes);
    Vec most = splat(MINUS_INFINITY), total = Vec{};
    for (const Scores& each : models) most = larger(most, each.at(first, lanes));
    for (const Scores& each : models) total += exponential(each.at(first, lanes) - most);
    return most + logarithm(total) - splat(std::log(float(models.size())));
  }
};

}  // namespace native
