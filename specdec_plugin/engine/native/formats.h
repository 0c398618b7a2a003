// Formats of packed weights, and one step of a product with each: the inputs of some rows times the
// weights of one panel. A word of 4 bytes holds one float32, two numbers of 16 bits, four int8 or
// eight int4.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/native/vector.h"
#include "interface.h"

namespace native {

constexpr int numbers_per_word(Format format) {
  constexpr int COUNTS[] = {1, 2, 4, 8, 2, 2};
  return COUNTS[int(format)];
}

// Whether a product has inputs and sums of float32, and each weight exactly.
constexpr bool is_exact(Format format) {
  return format == Format::float32 || format == Format::kept_float16 ||
         format == Format::kept_bfloat16;
}

// Inputs that one step of a product takes.
constexpr int inputs_per_step(Format format) {
  return is_exact(format) ? 1 : numbers_per_word(format);
}

constexpr bool is_integer(Format format) {
  return format == Format::int8 || format == Format::int4;
}

// A panel is what one thread computes at once: PANEL outputs for up to TILE rows, all sums in
// registers, every weight read once. Panels follow each other in memory as they are read. With
// AVX-512, float32 and its instructions for other formats, 31 of 32 registers are in use: 28 sums,
// the weights and an input.
constexpr int VECTORS = 2;
constexpr int PANEL = VECTORS * LANES;
constexpr int TILE = LANES == 16 ? 14 : 6;

// Other weights pass through the caches between two calls, so these come from memory. With several
// rows a step is too long for the processor to prefetch by itself. step: words of its weights.
static inline void prefetch(const uint32_t* weights, int step = PANEL) {
  constexpr int WORDS = 64 * PANEL, LINE = 16;
  for (int i = 0; i < step; i += LINE) __builtin_prefetch(weights + WORDS + i);
}

// How an exact format keeps a number, and a step's numbers: `place` is that of an output among the
// panel's, and `read` makes those of a vector float32.
struct InFloat32 {
  using Number = float;
  using Numbers = Vec;
  static Vec widened(Vec v) { return v; }
  static Vec narrowed(Vec v) { return v; }
  static int place(int output) { return output; }
  static Vec read(const uint32_t* words, int vector) {
    Vec weights;
    std::memcpy(&weights, words + vector * LANES, sizeof weights);
    return weights;
  }
};

#ifdef CONVERTS_FLOAT16
// A checkpoint of a training in float16 has weights that float16 holds. To read them from memory
// takes half of the time.
struct InFloat16 {
  using Number = uint16_t;
  using Numbers = Halves;
  static Vec widened(Halves bits) { return from_float16(bits); }
  static Halves narrowed(Vec v) { return to_float16(v); }
  static int place(int output) { return output; }
  static Vec read(const uint32_t* words, int vector) {
    Halves bits;
    std::memcpy(&bits, words + vector * LANES / 2, sizeof bits);
    return widened(bits);
  }
};
#endif

// The same of bfloat16, which is the upper half of float32. A word holds a number of each of the
// two vectors, so that one instruction widens a vector.
struct InBfloat16 {
  static_assert(VECTORS == 2);
  using Number = uint16_t;
  using Numbers = Halves;
  static Vec widened(Halves bits) { return (Vec)(__builtin_convertvector(bits, Bits) << 16); }
  static Halves narrowed(Vec v) { return __builtin_convertvector((Bits)v >> 16, Halves); }
  static int place(int output) { return output % LANES * 2 + output / LANES; }
  static Vec read(const uint32_t* words, int vector) {
    Bits both;
    std::memcpy(&both, words, sizeof both);
    return (Vec)(vector == 0 ? both << 16 : both & 0xffff0000u);
  }
};

// A product of float32 with weights that `Kept` keeps.
template <class Kept>
struct Exact {
  using Number = float;
  using Total = Vec;
  static constexpr int WORDS = 1;  // of inputs for each step
  static constexpr int STEP = PANEL * int(sizeof(typename Kept::Number)) / 4;  // words of weights

  template <int ROWS>
  static void add(const float* in, size_t stride, const uint32_t* words,
                  Vec (&sums)[ROWS][VECTORS]) {
    prefetch(words, STEP);
    Vec weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      weight[v] = Kept::read(words, v);
      hold(weight[v]);
    }
    for (int row = 0; row < ROWS; ++row) {
      const Vec value = splat(in[row * stride]);
      for (int v = 0; v < VECTORS; ++v) sums[row][v] += value * weight[v];
    }
  }
};

// Calls `use` with the way in which an exact format keeps weights. Other formats keep none exactly.
template <class Use>
void with_kept(Format format, const Use& use) {
  if (format == Format::float32) use(InFloat32());
#ifdef CONVERTS_FLOAT16
  if (format == Format::kept_float16) use(InFloat16());
#endif
  if (format == Format::kept_bfloat16) use(InBfloat16());
}

// Calls `use` for each vector of `count` numbers, with the first and how many there are. That is a
// constant but for the last ones, because compilers make calls of copies of another size.
template <class Use>
void by_vector(int count, const Use& use) {
  int i = 0;
  for (; i + LANES <= count; i += LANES) use(i, std::integral_constant<int, LANES>());
  if (i < count) use(i, count - i);
}

// Whether `Kept` holds each of some numbers exactly.
template <class Kept>
bool holds(const float* numbers, int count) {
  Bits lost = Bits{};
  by_vector(count, [&](int i, auto some) {
    const Vec v = load_first(numbers + i, some);
    lost |= (Bits)v ^ (Bits)Kept::widened(Kept::narrowed(v));
  });
  for (int lane = 0; lane < LANES; ++lane)
    if (lost[lane]) return false;
  return true;
}

template <class Kept>
void narrow(const float* numbers, int count, typename Kept::Number* kept) {
  by_vector(count, [&](int i, auto some) {
    const typename Kept::Numbers narrowed = Kept::narrowed(load_first(numbers + i, some));
    std::memcpy(kept + i, &narrowed, sizeof(typename Kept::Number) * some);
  });
}

// The reverse, for numbers in their order.
template <class Kept>
void widen(const typename Kept::Number* kept, int count, float* numbers) {
  by_vector(count, [&](int i, auto some) {
    typename Kept::Numbers lanes{};
    std::memcpy(&lanes, kept + i, sizeof(typename Kept::Number) * some);
    const Vec widened = Kept::widened(lanes);
    std::memcpy(numbers + i, &widened, sizeof(float) * some);
  });
}

// (rows, size) numbers of an exact format, each row in its order.
struct Matrix {
  const void* numbers;
  Format format;
  size_t size;

  // A row in float32, perhaps in the memory that is given.
  const float* row(size_t index, float* memory) const {
    if (format == Format::float32) return static_cast<const float*>(numbers) + index * size;
    with_kept(format, [&](auto kept) {
      using Kept = decltype(kept);
      const auto* begin = static_cast<const typename Kept::Number*>(numbers);
      widen<Kept>(begin + index * size, int(size), memory);
    });
    return memory;
  }
};

struct Bfloat16 {
  using Number = uint32_t;
  using Total = Vec;
  static constexpr int WORDS = 1;
  static constexpr int STEP = PANEL;

  static uint32_t narrowed(float x) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  }
  static float widened(uint32_t bits) {  // the lowest 16 of them
    float x;
    bits <<= 16;
    std::memcpy(&x, &bits, 4);
    return x;
  }

  static void pack(const float* row, int count, uint32_t* words) {
    for (int i = 0; i < count / 2; ++i)
      words[i] = narrowed(row[2 * i]) | narrowed(row[2 * i + 1]) << 16;
    if (count % 2) words[count / 2] = narrowed(row[count - 1]);
  }

  template <int ROWS>
  static void add(const uint32_t* in, size_t stride, const uint32_t* words,
                  Vec (&sums)[ROWS][VECTORS]) {
    prefetch(words);
#ifdef __AVX512BF16__
    __m512bh weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      weight[v] = (__m512bh)_mm512_loadu_si512(words + v * LANES);
      hold(weight[v]);
    }
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

static inline float largest_magnitude(const float* row, int count) {
  Vec most = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) most = larger(most, larger(load(row + i), -load(row + i)));
  float found = greatest(most);
  for (; i < count; ++i) found = std::max(found, std::fabs(row[i]));
  return found;
}

// What a number is multiplied with to find its level; 0 where all numbers are nearly zero.
inline float levels_of(float step) {
  const float levels = 1 / step;
  return std::isfinite(levels) ? levels : 0;
}

// How an input vector is rounded.
struct Rounding {
  float step;   // between two levels
  int32_t sum;  // of the levels of its numbers
};

// AVX2 adds two products to 16 bits. Those of bytes up to 255 do not fit. So of 8-bit weights it
// multiplies magnitudes up to 127, and the inputs take the weights' signs. Those of 4 bits fit.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define SIGNED_LEVELS
#endif

// Weights are rounded to 255 levels a row, or to 16 of 4 bits, and stored around a zero point.
// Inputs are rounded to 255 levels.
template <int BITS>
struct Integers {
  using Number = uint32_t;
  using Total = Ints;
  static constexpr int STEP = PANEL;
  static constexpr int WORDS = 8 / BITS, ZERO = 1 << (BITS - 1);
  static constexpr int MOST = ZERO - 1, LEAST = BITS == 8 ? -MOST : -ZERO;
#ifdef SIGNED_LEVELS
  static constexpr int ADDED = BITS == 8 ? 0 : ZERO;  // to each weight that is multiplied
#else
  static constexpr int ADDED = ZERO;
#endif

  // Returns the step between two levels. It may be negative.
  static float pack_weight(const float* row, int count, uint32_t* words) {
    const float step = step_of(row, count), levels = levels_of(step);
    std::memset(words, 0, sizeof(uint32_t) * ((count + 4 * WORDS - 1) / (4 * WORDS)));
    for (int i = 0; i < count; ++i) {
      const int level = ZERO + level_of(row[i] * levels);
      words[i / (4 * WORDS)] |= uint32_t(level) << (i % 4 * 8 + i / 4 % WORDS * BITS);
    }
    return step;
  }

  static Rounding pack_input(const float* row, int count, uint32_t* words) {
    const float step = largest_magnitude(row, count) / 127, levels = levels_of(step);
    auto* bytes = reinterpret_cast<int8_t*>(words);
    int32_t zero, sum = 0;
    std::memcpy(&zero, &SHIFT, 4);
    Ints sums = Ints{};
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
      const Ints bits = (Ints)(load(row + i) * splat(levels) + splat(SHIFT));
      sums += bits - zero;
      const Bytes narrow = __builtin_convertvector(bits, Bytes);
      std::memcpy(bytes + i, &narrow, LANES);
    }
    for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
    for (; i < count; ++i) {
      const int level = int(std::nearbyint(row[i] * levels));
      bytes[i] = int8_t(level);
      sum += level;
    }
    for (int end = (count + 4 * WORDS - 1) / (4 * WORDS) * 4 * WORDS; i < end; ++i) bytes[i] = 0;
    return {step, sum};
  }

  template <int ROWS>
  static void add(const uint32_t* in, size_t stride, const uint32_t* words,
                  Ints (&sums)[ROWS][VECTORS]) {
    prefetch(words);
    Ints weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) std::memcpy(&weight[v], words + v * LANES, sizeof(Ints));
    for (int word = 0; word < WORDS; ++word) {
      Ints part[VECTORS];
      for (int v = 0; v < VECTORS; ++v) {
        part[v] = WORDS == 1 ? weight[v] : (weight[v] >> (word * BITS)) & 0x0f0f0f0f;
        if (ROWS > 1) hold(part[v]);
      }
      for (int row = 0; row < ROWS; ++row) {
        const Ints value = Ints{} + int32_t(in[row * stride + word]);
        for (int v = 0; v < VECTORS; ++v) add_products(sums[row][v], part[v], value);
      }
    }
  }

  // Subtracts what the zero point of the weights added.
  static Vec value(Ints total, int32_t input_sum) {
    return __builtin_convertvector(total - ADDED * input_sum, Vec);
  }
  static float value(int32_t total, int32_t input_sum) { return float(total - ADDED * input_sum); }

  // sum += the products of each lane's four weights with four signed bytes.
  static inline __attribute__((always_inline)) void add_products(Ints& sum, Ints weights,
                                                                 Ints values) {
#if defined(__AVX512VNNI__)
    sum = (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)values);
#elif defined(SIGNED_LEVELS)
    __m256i levels = (__m256i)weights, inputs = (__m256i)values;
    if constexpr (BITS == 8) {
      levels = _mm256_xor_si256(levels, _mm256_set1_epi8(char(ZERO)));
      inputs = _mm256_sign_epi8(inputs, levels);
      levels = _mm256_abs_epi8(levels);
    }
    const __m256i pairs = _mm256_maddubs_epi16(levels, inputs);
    sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    for (int i = 0; i < 4; ++i)
      sum += ((weights >> 8 * i) & 255) * ((values << (24 - 8 * i)) >> 24);
#endif
  }

 private:
  // Adding 1.5 * 2^23 rounds to a whole number, which the lowest bits then hold.
  static constexpr float SHIFT = 12582912.0f;

  static int level_of(float x) { return std::max(LEAST, std::min(MOST, int(std::nearbyint(x)))); }

  // With few levels it is better to clip the greatest weights: of nine steps, the one with the
  // least squared error. There is a level more on one side of zero, which the greatest weight
  // takes.
  static float step_of(const float* row, int count) {
    const float largest = largest_magnitude(row, count);
    if (BITS == 8 || largest == 0) return largest / MOST;
    const bool positive = std::find(row, row + count, largest) != row + count;
    const float widest = (positive ? largest : -largest) / LEAST;
    float best = widest, least = std::numeric_limits<float>::infinity();
    for (int cut = 20; cut >= 12; --cut) {
      const float step = widest * float(cut) / 20, error = lost(row, count, step);
      if (error < least) best = step, least = error;
    }
    return best;
  }

  // The squared error of weights that are rounded to levels of this step.
  static float lost(const float* row, int count, float step) {
    const Vec shift = splat(SHIFT);
    Vec total = Vec{};
    by_vector(count, [&](int i, auto some) {
      const Vec exact = load_first(row + i, some);
      const Vec level = (exact * splat(1 / step) + shift) - shift;
      const Vec wrong = exact - splat(step) * smaller(splat(MOST), larger(splat(LEAST), level));
      total += wrong * wrong;
    });
    return sum(total);
  }
};

}  // namespace native
