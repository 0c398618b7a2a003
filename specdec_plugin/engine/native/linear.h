// Products with fixed weights for few rows, the weights packed once.
#pragma once

#include <algorithm>
#include <vector>

#include "team.h"
#include "vector.h"

namespace native {

// A panel is what one thread computes at once: PANEL outputs for up to TILE rows, all sums in
// registers, every weight read once. Panels follow each other in memory as they are read.
constexpr int VECTORS = 2;
constexpr int PANEL = VECTORS * LANES;
constexpr int TILE = LANES == 16 ? 12 : 6;

enum class Activation { none, relu, gelu };

static inline uint32_t bfloat16(float x) {  // to nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// Where a product goes.
struct Target {
  float* out;             // (rows, stride)
  size_t stride;
  const float* residual;  // added, laid out like `out`; or null
  Activation activation;
};

template <int ROWS>
struct Sums {
  Vec at[ROWS][VECTORS];
};

class Linear {
 public:
  // weight: (outputs, inputs); bias: (outputs) or null. half: keep the weights in bfloat16.
  Linear(const float* weight, const float* bias, int outputs, int inputs, bool half)
      : outputs(outputs), inputs(inputs), half(half), panels((outputs + PANEL - 1) / PANEL) {
    bias_.assign(static_cast<size_t>(panels) * PANEL, 0.0f);
    if (bias) std::copy(bias, bias + outputs, bias_.begin());
    const size_t size = static_cast<size_t>(panels) * steps() * PANEL;
    if (half) {
      pairs_.assign(size, 0);
    } else {
      weights_.assign(size, 0.0f);
    }
    for (int output = 0; output < outputs; ++output) {
      const size_t first = static_cast<size_t>(output / PANEL) * steps() * PANEL + output % PANEL;
      const float* row = weight + static_cast<size_t>(output) * inputs;
      for (int step = 0; step < steps(); ++step) {
        if (half) {
          const uint32_t low = bfloat16(row[2 * step]);
          const uint32_t high = 2 * step + 1 < inputs ? bfloat16(row[2 * step + 1]) : 0;
          pairs_[first + static_cast<size_t>(step) * PANEL] = low | high << 16;
        } else {
          weights_[first + static_cast<size_t>(step) * PANEL] = row[step];
        }
      }
    }
  }

  // Numbers of 4 bytes that narrow inputs of so many rows take; see `run`.
  size_t room(int rows) const { return half ? static_cast<size_t>(rows) * steps() : 0; }

  // in: (rows, inputs) with `stride` from row to row. narrow: room(rows) numbers of scratch.
  // The caller waits before it reads the target.
  void run(const Team& team, const float* in, size_t stride, int rows, uint32_t* narrow,
           const Target& target) const {
    if (half) {
      for (int row = team.begin(rows); row < team.end(rows); ++row)
        to_pairs(in + row * stride, narrow + static_cast<size_t>(row) * steps());
      team.wait();
    }
    const int tiles = (rows + TILE - 1) / TILE;
    const int height = (rows + tiles - 1) / tiles;
    for (int panel = team.begin(panels); panel < team.end(panels); ++panel)
      for (int first = 0; first < rows; first += height) {
        const int count = std::min(height, rows - first);
        if (half) {
          by_height<TILE>(count, narrow + static_cast<size_t>(first) * steps(), steps(), first,
                          panel, target);
        } else {
          by_height<TILE>(count, in + first * stride, stride, first, panel, target);
        }
      }
  }

  const int outputs, inputs;
  const bool half;

 private:
  const int panels;
  std::vector<float> weights_, bias_;
  std::vector<uint32_t> pairs_;

  int steps() const { return half ? (inputs + 1) / 2 : inputs; }

  void to_pairs(const float* row, uint32_t* pairs) const {
    for (int step = 0; step < inputs / 2; ++step)
      pairs[step] = bfloat16(row[2 * step]) | bfloat16(row[2 * step + 1]) << 16;
    if (inputs % 2) pairs[inputs / 2] = bfloat16(row[inputs - 1]);
  }

  // The number of rows of a tile as a constant, so that its sums are registers.
  template <int ROWS, class Input>
  void by_height(int rows, const Input* in, size_t stride, int first, int panel,
                 const Target& target) const {
    if (rows == ROWS) {
      tile<ROWS>(in, stride, first, panel, target);
    } else if constexpr (ROWS > 1) {
      by_height<ROWS - 1>(rows, in, stride, first, panel, target);
    }
  }

  template <int ROWS, class Input>
  void tile(const Input* in, size_t stride, int first, int panel, const Target& target) const {
    Sums<ROWS> sums;
    const float* bias = &bias_[static_cast<size_t>(panel) * PANEL];
    for (int row = 0; row < ROWS; ++row)
      for (int v = 0; v < VECTORS; ++v) sums.at[row][v] = load(bias + v * LANES);
    const size_t start = static_cast<size_t>(panel) * steps() * PANEL;
    if constexpr (std::is_same<Input, float>::value) {
      multiply(in, stride, &weights_[start], sums);
    } else {
      multiply(in, stride, &pairs_[start], sums);
    }
    for (int row = 0; row < ROWS; ++row) finish(sums.at[row], first + row, panel, target);
  }

  // One row alone would wait for each sum before the next; four sums a lane keep it busy.
  template <int ROWS>
  void multiply(const float* in, size_t stride, const float* weights, Sums<ROWS>& sums) const {
    constexpr int CHAINS = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
    Sums<ROWS> chains[CHAINS] = {};
    chains[0] = sums;
    int step = 0;
    for (; step + CHAINS <= inputs; step += CHAINS)
      for (int chain = 0; chain < CHAINS; ++chain, weights += PANEL)
        add_step(in + step + chain, stride, weights, chains[chain]);
    for (; step < inputs; ++step, weights += PANEL) add_step(in + step, stride, weights, chains[0]);
    join(chains, sums);
  }

  template <int ROWS>
  static void add_step(const float* in, size_t stride, const float* weights, Sums<ROWS>& sums) {
    Vec weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) weight[v] = load(weights + v * LANES);
    for (int row = 0; row < ROWS; ++row) {
      const Vec value = splat(in[row * stride]);
      for (int v = 0; v < VECTORS; ++v) sums.at[row][v] += value * weight[v];
    }
  }

  template <int ROWS>
  void multiply(const uint32_t* in, size_t stride, const uint32_t* pairs, Sums<ROWS>& sums) const {
    constexpr int CHAINS = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
    Sums<ROWS> chains[CHAINS] = {};
    chains[0] = sums;
    int step = 0;
    for (; step + CHAINS <= steps(); step += CHAINS)
      for (int chain = 0; chain < CHAINS; ++chain, pairs += PANEL)
        add_pairs(in + step + chain, stride, pairs, chains[chain]);
    for (; step < steps(); ++step, pairs += PANEL) add_pairs(in + step, stride, pairs, chains[0]);
    join(chains, sums);
  }

  template <int ROWS>
  static void add_pairs(const uint32_t* in, size_t stride, const uint32_t* pairs, Sums<ROWS>& sums) {
#ifdef __AVX512BF16__
    __m512bh weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v)
      weight[v] = (__m512bh)_mm512_loadu_si512(pairs + v * LANES);
    for (int row = 0; row < ROWS; ++row) {
      const __m512bh value = (__m512bh)_mm512_set1_epi32(static_cast<int>(in[row * stride]));
      for (int v = 0; v < VECTORS; ++v)
        sums.at[row][v] = (Vec)_mm512_dpbf16_ps((__m512)sums.at[row][v], value, weight[v]);
    }
#else
    Vec low[VECTORS], high[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      Ints both;
      std::memcpy(&both, pairs + v * LANES, sizeof both);
      low[v] = (Vec)(both << 16);
      high[v] = (Vec)(both & static_cast<int32_t>(0xffff0000));
    }
    for (int row = 0; row < ROWS; ++row) {
      const Vec first = splat(widened(in[row * stride] << 16));
      const Vec second = splat(widened(in[row * stride] & 0xffff0000u));
      for (int v = 0; v < VECTORS; ++v)
        sums.at[row][v] += first * low[v] + second * high[v];
    }
#endif
  }

  static float widened(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }

  template <int ROWS, int CHAINS>
  static void join(const Sums<ROWS> (&chains)[CHAINS], Sums<ROWS>& sums) {
    for (int row = 0; row < ROWS; ++row)
      for (int v = 0; v < VECTORS; ++v) {
        Vec total = chains[0].at[row][v];
        for (int chain = 1; chain < CHAINS; ++chain) total += chains[chain].at[row][v];
        sums.at[row][v] = total;
      }
  }

  void finish(Vec (&sums)[VECTORS], int row, int panel, const Target& target) const {
    const size_t place = row * target.stride + static_cast<size_t>(panel) * PANEL;
    const int width = std::min(PANEL, outputs - panel * PANEL);
    if (target.activation == Activation::relu)
      for (Vec& each : sums) each = larger(each, Vec{});
    if (width == PANEL && target.activation != Activation::gelu) {
      for (int v = 0; v < VECTORS; ++v) {
        if (target.residual) sums[v] += load(target.residual + place + v * LANES);
        store(target.out + place + v * LANES, sums[v]);
      }
      return;
    }
    float values[PANEL];
    for (int v = 0; v < VECTORS; ++v) store(values + v * LANES, sums[v]);
    for (int i = 0; i < width; ++i) {
      if (target.activation == Activation::gelu)
        values[i] *= 0.5f * (1.0f + std::erf(values[i] * 0.70710678f));
      target.out[place + i] = values[i] + (target.residual ? target.residual[place + i] : 0.0f);
    }
  }
};

}  // namespace native
