// How weights are stored, and one step of a product with each kind: inputs of some rows times the
// weights of one panel. Words of 4 bytes hold one float32, two bfloat16 or four int8.
#pragma once

#include <algorithm>
#include <type_traits>

#include "vector.h"

namespace native {

enum class Format { float32, bfloat16, int8 };

constexpr int packed(Format format) {
  return format == Format::float32 ? 1 : format == Format::bfloat16 ? 2 : 4;
}

// A panel is what one thread computes at once: PANEL outputs for up to TILE rows, all sums in
// registers, every weight read once. Panels follow each other in memory as they are read.
constexpr int VECTORS = 2;
constexpr int PANEL = VECTORS * LANES;
constexpr int TILE = LANES == 16 ? 12 : 6;

// Between two calls other weights pass through the caches, so these come from far away, and with
// several rows a step is too long for the processor to look ahead by itself.
static inline void fetch_ahead(const uint32_t* weights) {
  constexpr int STEPS = 64, LINE = 16;
  for (int i = 0; i < PANEL; i += LINE) __builtin_prefetch(weights + STEPS * PANEL + i);
}

struct Float32 {
  using Number = float;
  using Total = Vec;

  template <int ROWS>
  static void add(const float* in, size_t stride, const uint32_t* words,
                  Vec (&sums)[ROWS][VECTORS]) {
    fetch_ahead(words);
    Vec weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) std::memcpy(&weight[v], words + v * LANES, sizeof(Vec));
    for (int row = 0; row < ROWS; ++row) {
      const Vec value = splat(in[row * stride]);
      for (int v = 0; v < VECTORS; ++v) sums[row][v] += value * weight[v];
    }
  }
};

struct Bfloat16 {
  using Number = uint32_t;
  using Total = Vec;

  static uint32_t narrowed(float x) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  }

  static void pack(const float* row, int count, uint32_t* words) {
    for (int i = 0; i < count / 2; ++i)
      words[i] = narrowed(row[2 * i]) | narrowed(row[2 * i + 1]) << 16;
    if (count % 2) words[count / 2] = narrowed(row[count - 1]);
  }

  template <int ROWS>
  static void add(const uint32_t* in, size_t stride, const uint32_t* words,
                  Vec (&sums)[ROWS][VECTORS]) {
    fetch_ahead(words);
#ifdef __AVX512BF16__
    __m512bh weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v)
      weight[v] = (__m512bh)_mm512_loadu_si512(words + v * LANES);
    for (int row = 0; row < ROWS; ++row) {
      const __m512bh value = (__m512bh)_mm512_set1_epi32(int(in[row * stride]));
      for (int v = 0; v < VECTORS; ++v)
        sums[row][v] = (Vec)_mm512_dpbf16_ps((__m512)sums[row][v], value, weight[v]);
    }
#else
    Vec low[VECTORS], high[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      Ints both;
      std::memcpy(&both, words + v * LANES, sizeof both);
      low[v] = (Vec)(both << 16);
      high[v] = (Vec)(both & int32_t(0xffff0000));
    }
    for (int row = 0; row < ROWS; ++row) {
      const uint32_t bits[2] = {in[row * stride] << 16, in[row * stride] & 0xffff0000u};
      float values[2];
      std::memcpy(values, bits, sizeof values);
      for (int v = 0; v < VECTORS; ++v)
        sums[row][v] += splat(values[0]) * low[v] + splat(values[1]) * high[v];
    }
#endif
  }
};

// Weights are rounded to 255 levels a row, inputs to 255 levels a row around a zero point of 128.
struct Int8 {
  using Number = uint32_t;
  using Total = Ints;

  static float largest_of(const float* row, int count) {
    Vec most = Vec{};
    int i = 0;
    for (; i + LANES <= count; i += LANES) most = larger(most, larger(load(row + i), -load(row + i)));
    float found = largest(most);
    for (; i < count; ++i) found = std::max(found, std::fabs(row[i]));
    return found;
  }

  // Gives the step between two levels; `shift` is what the zero point of the inputs adds.
  static float pack_weight(const float* row, int count, uint32_t* words, int32_t& shift) {
    const float step = largest_of(row, count) / 127, levels = step > 0 ? 1 / step : 0;
    std::memset(words, 0, sizeof(uint32_t) * ((count + 3) / 4));
    shift = 0;
    for (int i = 0; i < count; ++i) {
      const int level = int(std::nearbyint(row[i] * levels));
      shift += 128 * level;
      words[i / 4] |= uint32_t(uint8_t(int8_t(level))) << i % 4 * 8;
    }
    return step;
  }

  static float pack_input(const float* row, int count, uint32_t* words) {
    const float step = largest_of(row, count) / 127, levels = step > 0 ? 1 / step : 0;
    auto* bytes = reinterpret_cast<uint8_t*>(words);
    // Adding 1.5 * 2^23 rounds to a whole number, which the lowest bits then hold.
    const float shift = 12582912.0f;
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
      const Ints bits = (Ints)(load(row + i) * splat(levels) + splat(shift)) + 128;
      const Bytes narrow = __builtin_convertvector(bits, Bytes);
      std::memcpy(bytes + i, &narrow, LANES);
    }
    for (; i < count; ++i) {
      const float shifted = row[i] * levels + shift;
      uint32_t bits;
      std::memcpy(&bits, &shifted, 4);
      bytes[i] = uint8_t(bits + 128);
    }
    for (int i = count; i % 4; ++i) bytes[i] = 128;
    return step;
  }

  template <int ROWS>
  static void add(const uint32_t* in, size_t stride, const uint32_t* words,
                  Ints (&sums)[ROWS][VECTORS]) {
    fetch_ahead(words);
    Ints weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) std::memcpy(&weight[v], words + v * LANES, sizeof(Ints));
    for (int row = 0; row < ROWS; ++row) {
      const uint32_t value = in[row * stride];
      for (int v = 0; v < VECTORS; ++v) {
#ifdef __AVX512VNNI__
        sums[row][v] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[row][v],
                                                 _mm512_set1_epi32(int(value)), (__m512i)weight[v]);
#else
        for (int i = 0; i < 4; ++i)
          sums[row][v] += ((weight[v] << (24 - 8 * i)) >> 24) * int(value >> 8 * i & 255);
#endif
      }
    }
  }

  static Vec value(Ints total, const int32_t* shifts) {
    Ints shift;
    std::memcpy(&shift, shifts, sizeof shift);
    return __builtin_convertvector(total - shift, Vec);
  }
};

}  // namespace native
