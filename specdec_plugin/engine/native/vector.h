// Vectors as wide as the processor's, by the compiler's vector types.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX2__) || defined(__F16C__)
// GCC 12 takes the undefined vectors in this header for mistakes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

namespace native {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

// The score of a symbol that may not be chosen, and of a slot that may not be seen.
constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

static inline Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The first `count` lanes, and 0 in the others.
static inline Vec load_first(const float* from, int count) {
  Vec v = Vec{};
  std::memcpy(&v, from, sizeof(float) * count);
  return v;
}

static inline Ints load_ints(const uint32_t* from) {
  Ints v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

static inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

// Zero is subtracted: the compiler would compute x + 0, which is not x where x is -0.
static inline Vec splat(float x) { return x - Vec{}; }

// Keeps a vector in its register. Else compilers read it from memory for each use, and the products
// wait for the loads.
template <class V>
static inline void hold([[maybe_unused]] V& vector) {
#if defined(__AVX512F__)
  asm("" : "+v"(vector));
#elif defined(__x86_64__)
  asm("" : "+x"(vector));
#elif defined(__aarch64__)
  asm("" : "+w"(vector));
#endif
}

// a * b + c, rounded once where the processor can. Compilers decide anew for each `a * b + c`: GCC
// 14 rounds products of their own in a loop with a single sum, but not in one with several.
static inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// Whether the processor converts between float32 and float16.
#if defined(__AVX512F__) || defined(__F16C__) || defined(__aarch64__)
#define CONVERTS_FLOAT16
#endif

#ifdef CONVERTS_FLOAT16
// float16 as float32.
static inline Vec from_float16(Halves bits) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps((__m256i)bits);
#elif defined(__F16C__)
  return (Vec)_mm256_cvtph_ps((__m128i)bits);
#else
  return (Vec)vcvt_f32_f16((float16x4_t)bits);
#endif
}

// The nearest float16.
static inline Halves to_float16(Vec v) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__)
  return (Halves)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#else
  return (Halves)vcvt_f16_f32((float32x4_t)v);
#endif
}
#endif

static inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

static inline Vec smaller(Vec a, Vec b) { return a < b ? a : b; }

static inline float sum(Vec v) {
#ifdef __AVX512F__
  return _mm512_reduce_add_ps((__m512)v);
#else
  float parts[LANES], total = 0;
  store(parts, v);
  for (float part : parts) total += part;
  return total;
#endif
}

// The sums of four vectors, side by side. It takes less than four sums one by one.
static inline void store_sums(float* to, const Vec (&v)[4]) {
#ifdef __AVX512F__
  // Lane by lane of 128 bits: halves of a and b, then quarters of a, b, c and d.
  const auto pairs = [](Vec a, Vec b) {
    return (__m512)((Vec)_mm512_unpacklo_ps((__m512)a, (__m512)b) +
                    (Vec)_mm512_unpackhi_ps((__m512)a, (__m512)b));
  };
  const __m512d ab = (__m512d)pairs(v[0], v[1]), cd = (__m512d)pairs(v[2], v[3]);
  const Vec quarters = (Vec)_mm512_unpacklo_pd(ab, cd) + (Vec)_mm512_unpackhi_pd(ab, cd);
  const __m256 halves = _mm512_castps512_ps256((__m512)quarters) +
                        (__m256)_mm512_extractf64x4_pd((__m512d)quarters, 1);
  _mm_storeu_ps(to, _mm256_castps256_ps128(halves) + _mm256_extractf128_ps(halves, 1));
#else
  for (int i = 0; i < 4; ++i) to[i] = sum(v[i]);
#endif
}

static inline int32_t sum(Ints v) {
#ifdef __AVX512F__
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int32_t total = 0;
  for (int lane = 0; lane < LANES; ++lane) total += v[lane];
  return total;
#endif
}

static inline float greatest(Vec v) {
#ifdef __AVX512F__
  return _mm512_reduce_max_ps((__m512)v);
#else
  float parts[LANES], most = MINUS_INFINITY;
  store(parts, v);
  for (float part : parts) most = part > most ? part : most;
  return most;
#endif
}

// e^x for x <= 88, to about one unit in the last place; 0 below -87, where it would be subnormal.
// x = n ln 2 + r; e^r by the Taylor series, |r| <= 0.35; 2^n by the bits of the exponent.
static inline Vec exponential(Vec x) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const Ints in_range = x > splat(-87.0f);
  Vec shifted = x * splat(1.44269504f) + splat(shift);
  Vec n = shifted - splat(shift);
  Vec r = x - n * splat(0.693359375f) + n * splat(2.12194440e-4f);
  Vec series = splat(1.0f / 5040);
  series = series * r + splat(1.0f / 720);
  series = series * r + splat(1.0f / 120);
  series = series * r + splat(1.0f / 24);
  series = series * r + splat(1.0f / 6);
  series = series * r + splat(0.5f);
  series = series * r + splat(1.0f);
  series = series * r + splat(1.0f);
  // Far below the range this wraps around, and counts for nothing.
  const Bits exponent = (Bits)shifted - (Bits)splat(shift);
  return (Vec)(((Bits)series + (exponent << 23)) & (Bits)in_range);
}

// x / (1 + e^-x)
static inline Vec silu(Vec x) {
  const Vec one = splat(1.0f), inverse = exponential(smaller(x, -x));
  return x * (x > Vec{} ? one : inverse) / (one + inverse);
}

// x Φ(x), Φ the normal distribution's: Φ(-√2 t) = erfc(t) / 2 for t >= 0, and erfc(t) = e^-R(t). R
// is a polynomial (least error of Φ for t <= 5.2: 8e-9; it rises everywhere). To about two units in
// the last place of x.
static inline Vec gelu(Vec x) {
  const Vec t = smaller(larger(x, -x) * splat(0.70710678f), splat(10.0f));
  Vec series = splat(3.1440228e-5f);
  series = series * t + splat(-3.0880261e-4f);
  series = series * t + splat(1.0324027e-3f);
  series = series * t + splat(5.3693214e-4f);
  series = series * t + splat(-1.9583959e-2f);
  series = series * t + splat(1.0291962e-1f);
  series = series * t + splat(6.3659775e-1f);
  series = series * t + splat(1.1283803f);
  const Vec half = splat(0.5f) * exponential(-series * t);
  return x * (x > Vec{} ? splat(1.0f) - half : half);
}

// log x for positive x that are not subnormal, to about one unit in the last place. x = 2^n m with
// m between sqrt(1/2) and sqrt(2); log m by a polynomial in m - 1 (Moshier's Cephes library).
static inline Vec logarithm(Vec x) {
  const Ints shifted = (Ints)x - 0x3f3504f3;  // the bits of sqrt(1/2)
  const Ints exponent = shifted >> 23;
  const Vec m = (Vec)((Ints)x - (exponent << 23)) - splat(1.0f);
  const Vec n = __builtin_convertvector(exponent, Vec);
  Vec series = splat(7.0376836292e-2f);
  series = series * m + splat(-1.1514610310e-1f);
  series = series * m + splat(1.1676998740e-1f);
  series = series * m + splat(-1.2420140846e-1f);
  series = series * m + splat(1.4249322787e-1f);
  series = series * m + splat(-1.6668057665e-1f);
  series = series * m + splat(2.0000714765e-1f);
  series = series * m + splat(-2.4999993993e-1f);
  series = series * m + splat(3.3333331174e-1f);
  const Vec square = m * m;
  const Vec rest = series * m * square + n * splat(-2.12194440e-4f) - splat(0.5f) * square;
  return n * splat(0.693359375f) + (m + rest);
}

static inline float dot(const float* a, const float* b, int count) {
  Vec total = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) total += load(a + i) * load(b + i);
  float rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return sum(total) + rest;
}

// sums += factor * values
static inline void add_scaled(float* sums, float factor, const float* values, int count) {
  int i = 0;
  for (; i + LANES <= count; i += LANES)
    store(sums + i, load(sums + i) + splat(factor) * load(values + i));
  for (; i < count; ++i) sums[i] += factor * values[i];
}

static inline float greatest_of(const float* values, int count) {
  Vec most = splat(MINUS_INFINITY);
  int i = 0;
  for (; i + LANES <= count; i += LANES) most = larger(most, load(values + i));
  float found = greatest(most);
  for (; i < count; ++i) found = values[i] > found ? values[i] : found;
  return found;
}

// The first of the greatest of values[0 … count).
static inline int argmax(const float* values, int count) {
  constexpr int AT_ONCE = 4;
  const float greatest = greatest_of(values, count);
  int i = 0;
  for (; i + AT_ONCE * LANES <= count; i += AT_ONCE * LANES) {
    Ints found = Ints{};
    for (int v = 0; v < AT_ONCE; ++v) found |= load(values + i + v * LANES) == splat(greatest);
    if (sum(found) != 0) break;
  }
  for (; i < count; ++i)
    if (values[i] == greatest) return i;
  return 0;  // nothing but NaN
}

static inline int count_above(const float* values, int count, float bound) {
  Ints above = Ints{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) above -= load(values + i) > splat(bound);
  int total = 0;
  for (int lane = 0; lane < LANES; ++lane) total += above[lane];
  for (; i < count; ++i) total += values[i] > bound;
  return total;
}

struct Exponentials {
  float greatest, sum;
};

// The first `count` lanes of a vector, and -inf in the others.
static inline Vec only_first(int count, Vec v) {
  Ints lanes;
  for (int lane = 0; lane < LANES; ++lane) lanes[lane] = lane;
  return lanes < count ? v : splat(MINUS_INFINITY);
}

// Replaces values[0 … count), times a positive factor, by their exponentials relative to the
// greatest. What follows them, up to a multiple of LANES, is overwritten.
static inline Exponentials exponentials(float* values, int count, float factor = 1) {
  Vec most = splat(MINUS_INFINITY);
  for (int i = 0; i < count; i += LANES) {
    Vec v = load(values + i) * splat(factor);
    if (i + LANES > count) v = only_first(count - i, v);
    store(values + i, v);
    most = larger(most, v);
  }
  const float largest = greatest(most);
  Vec total = Vec{};
  for (int i = 0; i < count; i += LANES) {
    const Vec e = exponential(load(values + i) - splat(largest));
    store(values + i, e);
    total += e;
  }
  return {largest, sum(total)};
}

// log Σ exp(values)
static inline float log_sum_exp(const float* values, int count) {
  const float greatest = greatest_of(values, count);
  Vec total = Vec{};
  int i = 0;
  for (; i + LANES <= count; i += LANES) total += exponential(load(values + i) - splat(greatest));
  float rest = 0;
  for (; i < count; ++i) rest += std::exp(values[i] - greatest);
  return greatest + std::log(sum(total) + rest);
}

}  // namespace native
