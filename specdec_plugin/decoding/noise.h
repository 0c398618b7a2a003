// Gumbel noise that depends on seed, sentence, sample, position and symbol alone. The reference on
// PyTorch's operators is noise.py.
#pragma once

#include "engine/native/vector.h"
#include "interface.h"

namespace native {

typedef uint32_t Naturals __attribute__((vector_size(4 * LANES)));

// A permutation of numbers of 32 bits.
static inline Naturals mix_naturals(Naturals x) {
  x = (x ^ (x >> 16)) * uint32_t(NOISE_LOW_A);
  x = (x ^ (x >> 15)) * uint32_t(NOISE_LOW_B);
  return x ^ (x >> 16);
}

// The finaliser of SplitMix64.
static inline uint64_t mix_key(uint64_t x) {
  x = (x ^ (x >> 30)) * uint64_t(NOISE_MIX_A);
  x = (x ^ (x >> 27)) * uint64_t(NOISE_MIX_B);
  return x ^ (x >> 31);
}

// The noise of one position of one row.
class Noise {
 public:
  // row_key: of seed, sentence and sample.
  Noise(int64_t row_key, int64_t position) {
    const uint64_t key = mix_key(uint64_t(row_key) * uint64_t(NOISE_GOLDEN) + uint64_t(position));
    low_ = uint32_t(key);
    high_ = uint32_t(key >> 32);
  }

  // A number between 0 and 1 for each symbol.
  Vec uniform(Naturals symbols) const {
    const Naturals bits =
        mix_naturals(mix_naturals(symbols * uint32_t(NOISE_SPREAD) + low_) ^ high_);
    const Vec number = (__builtin_convertvector(bits, Vec) + splat(0.5f)) * splat(0x1p-32f);
    return smaller(number, splat(0x1.fffffep-1f));
  }

  // -log(-log(1 - uniform)). The inner one is Kahan's form, exact for small numbers too.
  static Vec gumbel(Vec uniform) {
    const Vec rest = splat(1.0f) - uniform, lost = splat(1.0f) - rest;
    const Vec exponential = lost > splat(0) ? -logarithm(rest) * (uniform / lost) : uniform;
    return -logarithm(exponential);
  }

 private:
  uint32_t low_, high_;
};

// first, first + 1, …
static inline Naturals symbols_from(int first) {
  Naturals symbols = Naturals{};
  for (int lane = 0; lane < LANES; ++lane) symbols[lane] = uint32_t(first + lane);
  return symbols;
}

}  // namespace native
