// The softmax of scores in bfloat16, for training. It computes row by row within the cache, where
// PyTorch's passes through memory several times.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/native/formats.h"
#include "engine/native/vector.h"
#include "interface.h"

namespace native {

typedef uint16_t Words __attribute__((vector_size(2 * LANES)));

// The upper half of a float32 is a bfloat16. See `Bfloat16` for single numbers.
static inline Vec widened(const uint16_t* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return (Vec)(__builtin_convertvector(words, Ints) << 16);
}

// Rounds to the nearest, halves to even. For finite numbers only.
static inline void narrow(uint16_t* to, Vec values) {
  const Ints bits = (Ints)values;
  const Words words = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, Words);
  std::memcpy(to, &words, sizeof words);
}

class Probabilities {
 public:
  explicit Probabilities(int count)
      : count_(count), whole_(count / LANES * LANES), values_(count + LANES) {}

  // Replaces the scores z of `count` symbols by softmax(z), with `added` more at `target`. Returns
  // log Σ exp(z).
  float replace(uint16_t* scores, int target, float added) {
    float* values = values_.data();
    for (int i = 0; i < whole_; i += LANES) store(values + i, widened(scores + i));
    for (int i = whole_; i < count_; ++i) values[i] = Bfloat16::widened(scores[i]);
    const Exponentials found = exponentials(values, count_);
    const Vec share = splat(1 / found.sum);
    for (int i = 0; i < count_; i += LANES) store(values + i, load(values + i) * share);
    values[target] += added;
    for (int i = 0; i < whole_; i += LANES) narrow(scores + i, load(values + i));
    if (whole_ < count_) {
      uint16_t last[LANES];
      narrow(last, load(values + whole_));
      std::copy(last, last + count_ - whole_, scores + whole_);
    }
    return found.greatest + std::log(found.sum);
  }

 private:
  const int count_, whole_;
  Aligned<float> values_;
};

// scores: (rows, count) bfloat16, replaced; targets: (rows); see `Probabilities`. wrong: (rows)
// log Σ exp(z) - z_target; totals: (rows) log Σ exp(z).
extern "C" void probabilities_run(uint16_t* scores, int rows, int count, const int64_t* targets,
                                  float added, float* wrong, float* totals, int threads) {
  parallel(threads, [&](const Team& team) {
    Probabilities row_of(count);
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      uint16_t* own = scores + size_t(row) * count;
      const float wanted = Bfloat16::widened(own[targets[row]]);
      totals[row] = row_of.replace(own, int(targets[row]), added);
      wrong[row] = totals[row] - wanted;
    }
  });
}

}  // namespace native
