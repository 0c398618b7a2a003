// Linear maps of few rows, with weights that are packed once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/native/formats.h"
#include "engine/native/pool.h"
#include "engine/native/room.h"
#include "engine/native/team.h"

namespace native {

// Where a product is written.
struct Target {
  float* out;  // (rows, stride)
  size_t stride;
  const float* residual;  // added, laid out like `out`; or null
  Activation activation;
};

// The distance of rows of `count` numbers that a product reads. It is a vector more, because rows
// of whole pages would share few sets of the nearest cache.
static inline size_t stride_of(size_t count) { return count + LANES; }

class Linear {
 public:
  // weight: (outputs, inputs); bias: (outputs) or null. format: float32 becomes one that keeps the
  // same numbers in less memory, if there is one. threads: that pack.
  Linear(const Matrix& weight, const float* bias, int outputs, Format format, int threads)
      : Linear(outputs, int(weight.size), kept(weight, outputs, format, threads)) {
    if (bias) std::copy(bias, bias + outputs, bias_.begin());
    pack_all(threads, [&](int output, float* row) { return weight.row(output, row); });
  }

  // The same. held: the format of `weight`, which is exact.
  Linear(const void* weight, Format held, const float* bias, int outputs, int inputs, Format format,
         int threads)
      : Linear(Matrix{weight, held, size_t(inputs)}, bias, outputs, format, threads) {}

  // The weights of another one, which are not integers.
  Linear(const Linear& exact, Format format, int threads)
      : Linear(exact.outputs, exact.inputs, format) {
    bias_ = exact.bias_;
    pack_all(threads, [&](int output, float* row) {
      exact.unpack(output, row);
      return row;
    });
  }

  // What `save` wrote to a file, of which the weights are mapped; `packed` tells whether it is
  // that.
  Linear(int file, int outputs, int inputs, Format format) : Linear(outputs, inputs, format) {
    if (lseek(file, 0, SEEK_END) != off_t(file_size())) return;
    void* mapped = mmap(nullptr, file_size(), PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) return;
    packed_ = static_cast<const uint32_t*>(mapped_ = mapped);
    const float* numbers = reinterpret_cast<const float*>(packed_ + words());
    std::copy_n(numbers, bias_.size(), bias_.begin());
    std::copy_n(numbers + bias_.size(), scales_.size(), scales_.begin());
  }

  ~Linear() {
    if (mapped_) munmap(mapped_, file_size());
  }
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  bool packed() const { return packed_ != nullptr; }

  // Writes everything to an empty file; tells whether it could.
  bool save(int file) const {
    return write_all(file, packed_, words() * sizeof(uint32_t)) &&
           write_all(file, bias_.data(), bias_.size() * sizeof(float)) &&
           write_all(file, scales_.data(), scales_.size() * sizeof(float)) &&
           write_all(file, &format, sizeof(Format));
  }

  // The format of what `save` wrote; `otherwise` if it cannot be read.
  static Format format_of(int file, Format otherwise) {
    const off_t size = lseek(file, 0, SEEK_END);
    Format found = otherwise;
    const bool read = size > off_t(sizeof found) &&
                      pread(file, &found, sizeof found, size - off_t(sizeof found)) == sizeof found;
    return read && is_exact(otherwise) && is_exact(found) ? found : otherwise;
  }

  // Words of scratch that `run` needs.
  size_t scratch_size(int rows, size_t stride) const {
    if (is_exact(format)) return crowded(rows, stride) ? rows * stride_of(inputs) : 0;
    return size_t(rows) * (stride_of(input_words()) + 2);
  }
  size_t scratch_size(int rows) const { return scratch_size(rows, inputs); }

  // in: (rows, inputs) with `stride` from row to row. scratch: scratch_size(rows, stride) words,
  // for inputs in the weights' format, or farther apart. The caller waits before it reads the
  // target.
  void run(const Team& team, const float* in, size_t stride, int rows, uint32_t* scratch,
           const Target& target) const {
    if (is_exact(format)) {
      if (crowded(rows, stride)) {
        in = spaced(team, in, rows, reinterpret_cast<float*>(scratch));
        stride = stride_of(inputs);
      }
      with_kept(format, [&](auto kept) {
        multiply<Exact<decltype(kept)>>(team, in, stride, rows, nullptr, target);
      });
      return;
    }
    // Every thread packs a single row by itself, which takes less time than to wait for another.
    static thread_local Aligned<uint32_t> own;
    if (rows == 1) {
      if (own.size() < scratch_size(1)) own.resize(scratch_size(1));
      scratch = own.data();
    }
    const size_t words = stride_of(input_words());
    auto* roundings = reinterpret_cast<Rounding*>(scratch + rows * words);
    const int begin = rows == 1 ? 0 : team.begin(rows), end = rows == 1 ? 1 : team.end(rows);
    for (int row = begin; row < end; ++row) {
      const float* from = in + row * stride;
      uint32_t* to = scratch + row * words;
      if (format == Format::bfloat16) Bfloat16::pack(from, inputs, to);
      if (format == Format::int8) roundings[row] = Integers<8>::pack_input(from, inputs, to);
      if (format == Format::int4) roundings[row] = Integers<4>::pack_input(from, inputs, to);
    }
    if (rows > 1) team.wait();
    if (format == Format::bfloat16) multiply<Bfloat16>(team, scratch, words, rows, nullptr, target);
    if (format == Format::int8)
      multiply<Integers<8>>(team, scratch, words, rows, roundings, target);
    if (format == Format::int4)
      multiply<Integers<4>>(team, scratch, words, rows, roundings, target);
  }

  // row: (inputs) result, the weights of an output. They are not integers.
  void unpack(int output, float* row) const {
    with_kept(format, [&](auto kept) { unpack_exactly<decltype(kept)>(output, row); });
    if (format != Format::bfloat16) return;
    const uint32_t* words = packed_ + size_t(output / PANEL) * steps * PANEL + output % PANEL;
    for (int i = 0; i < inputs; ++i) {
      const uint32_t both = words[size_t(i / 2) * PANEL], bits = i % 2 ? both >> 16 : both;
      row[i] = Bfloat16::widened(bits);
    }
  }

  float bias(int output) const { return bias_[output]; }

  // The outputs that a thread computes in `run`: [begin, end).
  int begin(const Team& team) const { return std::min(outputs, team.begin(panels) * PANEL); }
  int end(const Team& team) const { return std::min(outputs, team.end(panels) * PANEL); }

  size_t weights() const { return size_t(outputs) * inputs; }
  size_t bytes() const { return weights() * sizeof(uint32_t) / numbers_per_word(format); }

  const int outputs, inputs;
  const Format format;

 private:
  const int panels, steps;
  Aligned<float> bias_, scales_;
  Pooled<uint32_t> words_;            // (panels, steps, words of a step), unless they are mapped
  const uint32_t* packed_ = nullptr;  // the same, or those that are mapped
  void* mapped_ = nullptr;

  Linear(int outputs, int inputs, Format format)
      : outputs(outputs),
        inputs(inputs),
        format(format),
        panels((outputs + PANEL - 1) / PANEL),
        steps((inputs + inputs_per_step(format) - 1) / inputs_per_step(format)),
        bias_(size_t(panels) * PANEL, 0.0f),
        scales_(is_integer(format) ? bias_.size() : 0, 0.0f) {}

  // The format in which weights are kept.
  static Format kept(const Matrix& weight, int outputs, Format format, int threads) {
    if (format != Format::float32) return format;
    if (weight.format == Format::kept_float16) return weight.format;
    bool held = false;
    for (const Format each : {Format::kept_float16, Format::kept_bfloat16}) {
      with_kept(each,
                [&](auto kept) { held = all_held<decltype(kept)>(weight, outputs, threads); });
      if (held) return each;
    }
    return format;
  }

  template <class Kept>
  static bool all_held(const Matrix& weight, int outputs, int threads) {
    std::atomic<bool> held{true};
    Thrown thrown;
    parallel(threads, [&](const Team& team) {
      thrown.keep([&] {
        Aligned<float> row(weight.size);
        for (int output = team.begin(outputs); output < team.end(outputs) && held; ++output)
          if (!holds<Kept>(weight.row(output, row.data()), int(weight.size))) held = false;
      });
    });
    thrown.rethrow();
    return held;
  }

  size_t words() const {
    return bias_.size() * steps * inputs_per_step(format) / numbers_per_word(format);
  }

  size_t file_size() const {
    return words() * sizeof(uint32_t) + (bias_.size() + scales_.size()) * sizeof(float) +
           sizeof(Format);
  }

  static bool write_all(int file, const void* from, size_t size) {
    const char* begin = static_cast<const char*>(from);
    while (size > 0) {
      const ssize_t written = write(file, begin, size);
      if (written <= 0) return false;
      begin += written;
      size -= written;
    }
    return true;
  }

  size_t input_words() const { return size_t(steps) * (format == Format::int4 ? 2 : 1); }

  // weights: where those of an output are, perhaps in a row that it is given.
  template <class Weights>
  void pack_all(int threads, const Weights& weights) {
    words_.allocate(words());
    packed_ = &words_[0];
    Thrown thrown;
    parallel(threads, [&](const Team& team) { thrown.keep([&] { pack_share(team, weights); }); });
    thrown.rethrow();
  }

  template <class Weights>
  void pack_share(const Team& team, const Weights& weights) {
    Aligned<float> row(inputs);
    Aligned<uint32_t> rows((size_t(steps) + LANES) * PANEL);
    for (int panel = team.begin(panels); panel < team.end(panels); ++panel)
      pack_panel([&](int output) { return weights(output, row.data()); }, panel, rows);
  }

  // rows: (PANEL, steps + LANES) scratch. Rows a power of two apart would share few sets of the
  // processor's cache.
  template <class Weights>
  void pack_panel(const Weights& weights, int panel, Aligned<uint32_t>& rows) {
    const int first = panel * PANEL, count = std::min(PANEL, outputs - first);
    const size_t stride = size_t(steps) + LANES;
    for (int i = 0; i < count; ++i) pack(weights(first + i), first + i, &rows[i * stride]);
    const auto plainly = [](int output) { return output; };
    if (!is_exact(format)) interleave(rows.data(), stride, first, count, plainly);
    with_kept(format, [&](auto kept) {
      using Number = typename decltype(kept)::Number;
      const size_t apart = stride * sizeof(uint32_t) / sizeof(Number);
      const auto* numbers = reinterpret_cast<const Number*>(rows.data());
      interleave(numbers, apart, first, count, decltype(kept)::place);
    });
  }

  // rows: (count, stride) what each output needs for each step. place: of an output in a step.
  template <class Number, class Place>
  void interleave(const Number* rows, size_t stride, int first, int count, const Place& place) {
    Number* numbers = reinterpret_cast<Number*>(&words_[0]) + size_t(first) * steps;
    for (int step = 0; step < steps; ++step, numbers += PANEL)
      for (int i = 0; i < count; ++i) numbers[place(i)] = rows[i * stride + step];
  }

  void pack(const float* weight, int output, uint32_t* row) {
    with_kept(format, [&](auto kept) {
      using Kept = decltype(kept);
      narrow<Kept>(weight, inputs, reinterpret_cast<typename Kept::Number*>(row));
    });
    if (format == Format::bfloat16) Bfloat16::pack(weight, inputs, row);
    if (format == Format::int8) scales_[output] = Integers<8>::pack_weight(weight, inputs, row);
    if (format == Format::int4) scales_[output] = Integers<4>::pack_weight(weight, inputs, row);
  }

  // Whether the rows of a tile share few sets of the nearest cache, because they follow each other
  // without a gap. A set has 8 ways in most processors. On a Xeon (Cascade Lake), products with
  // rows of 4 KiB took 1.1 to 1.4 times as long. Beside many outputs, to copy the rows takes
  // little.
  bool crowded(int rows, size_t stride) const {
    constexpr int WAYS = 8, APART = 512, PANELS = 16;
    return std::min(rows, TILE) > WAYS && stride == size_t(inputs) && inputs % APART == 0 &&
           panels >= PANELS;
  }

  // Copies such rows to where they are farther apart. The threads have waited when it returns.
  const float* spaced(const Team& team, const float* in, int rows, float* out) const {
    for (int row = team.begin(rows); row < team.end(rows); ++row)
      std::copy_n(in + size_t(row) * inputs, inputs, out + row * stride_of(inputs));
    team.wait();
    return out;
  }

  template <class Kept>
  void unpack_exactly(int output, float* row) const {
    const auto* numbers = reinterpret_cast<const typename Kept::Number*>(packed_) +
                          size_t(output / PANEL) * steps * PANEL + Kept::place(output % PANEL);
    for (int first = 0; first < inputs; first += LANES) {
      const int some = std::min(LANES, inputs - first);
      typename Kept::Number lanes[LANES] = {};
      for (int i = 0; i < some; ++i) lanes[i] = numbers[size_t(first + i) * PANEL];
      typename Kept::Numbers kept;
      std::memcpy(&kept, lanes, sizeof kept);
      const Vec widened = Kept::widened(kept);
      std::memcpy(row + first, &widened, sizeof(float) * some);
    }
  }

  template <class F>
  void multiply(const Team& team, const typename F::Number* in, size_t stride, int rows,
                const Rounding* roundings, const Target& target) const {
    const int tiles = (rows + TILE - 1) / TILE;
    const int height = tiles ? (rows + tiles - 1) / tiles : 0;
    for (int panel = team.begin(panels); panel < team.end(panels); ++panel)
      for (int first = 0; first < rows; first += height)
        by_height<F, TILE>(std::min(height, rows - first), in + first * stride, stride, first,
                           panel, roundings, target);
  }

  // Makes the number of rows of a tile a constant, so that its sums are registers.
  template <class F, int ROWS>
  void by_height(int rows, const typename F::Number* in, size_t stride, int first, int panel,
                 const Rounding* roundings, const Target& target) const {
    if (rows == ROWS) {
      tile<F, ROWS>(in, stride, first, panel, roundings, target);
    } else if constexpr (ROWS > 1) {
      by_height<F, ROWS - 1>(rows, in, stride, first, panel, roundings, target);
    }
  }

  // With few rows several sums a lane keep the processor busy; one would wait for the sum before.
  template <class F, int ROWS>
  void tile(const typename F::Number* in, size_t stride, int first, int panel,
            const Rounding* roundings, const Target& target) const {
    constexpr int CHAINS = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
    typename F::Total sums[CHAINS][ROWS][VECTORS] = {};
    const uint32_t* weights = packed_ + size_t(panel) * steps * F::STEP;
    int step = 0;
    for (; step + CHAINS <= steps; step += CHAINS)
      for (int chain = 0; chain < CHAINS; ++chain, weights += F::STEP)
        F::template add<ROWS>(in + (step + chain) * F::WORDS, stride, weights, sums[chain]);
    for (; step < steps; ++step, weights += F::STEP)
      F::template add<ROWS>(in + step * F::WORDS, stride, weights, sums[0]);
    for (int row = 0; row < ROWS; ++row) {
      for (int chain = 1; chain < CHAINS; ++chain)
        for (int v = 0; v < VECTORS; ++v) sums[0][row][v] += sums[chain][row][v];
      Vec found[VECTORS];
      for (int v = 0; v < VECTORS; ++v) {
        const size_t output = size_t(panel) * PANEL + v * LANES;
        found[v] = load(&bias_[output]);
        if constexpr (std::is_same<typename F::Total, Ints>::value) {
          const Rounding& rounding = roundings[first + row];
          found[v] += F::value(sums[0][row][v], rounding.sum) * load(&scales_[output]) *
                      splat(rounding.step);
        } else {
          found[v] += sums[0][row][v];
        }
      }
      finish(found, first + row, panel, target);
    }
  }

  void finish(Vec (&sums)[VECTORS], int row, int panel, const Target& target) const {
    const size_t first = row * target.stride + size_t(panel) * PANEL;
    const int width = std::min(PANEL, outputs - panel * PANEL);
    if (target.activation == Activation::relu) {
      for (Vec& each : sums) each = larger(each, Vec{});
    } else if (target.activation != Activation::none) {
      Panel copy;  // Whatever a call takes by its address would leave the registers.
      std::copy_n(sums, VECTORS, copy.vectors);
      activate(copy, target.activation);
      std::copy_n(copy.vectors, VECTORS, sums);
    }
    if (width == PANEL) {
      for (int v = 0; v < VECTORS; ++v) {
        if (target.residual) sums[v] += load(target.residual + first + v * LANES);
        store(target.out + first + v * LANES, sums[v]);
      }
      return;
    }
    float values[PANEL];
    for (int v = 0; v < VECTORS; ++v) store(values + v * LANES, sums[v]);
    for (int i = 0; i < width; ++i)
      target.out[first + i] = values[i] + (target.residual ? target.residual[first + i] : 0.0f);
  }

  struct Panel {
    Vec vectors[VECTORS];
  };

  // Not inline: products with other activations are faster without its instructions among theirs.
  [[gnu::noinline]] static void activate(Panel& panel, Activation activation) {
    for (Vec& each : panel.vectors) each = activation == Activation::gelu ? gelu(each) : silu(each);
  }
};

// Keys and values of some rows of the source.
class SourceKv {
 public:
  static constexpr int INPUTS = 256;  // at once, so that products stay in the nearer caches

  void prepare(const std::pair<const Linear*, const SourceKvCall*>& both, int begin, int end, int) {
    std::tie(linear_, call_) = both;
    begin_ = begin;
    end_ = end;
    inputs_ = int(call_->starts[end] - call_->starts[begin]);
    stride_ = stride_of(linear_->inputs);
    symbols_.resize(inputs_ * stride_);
    values_.resize(size_t(inputs_) * linear_->outputs);
    words_.resize(linear_->scratch_size(inputs_, stride_));
  }

  void run(const Team& team) {
    const SourceKvCall& call = *call_;
    const int parts = call.count * call.heads, size = linear_->outputs / parts;
    const int dim = linear_->inputs, rows = end_ - begin_;
    const int64_t* starts = call.starts;
    for (int row = begin_ + team.begin(rows); row < begin_ + team.end(rows); ++row) {
      const float* symbols = call.inputs + (size_t(row) * call.stride + call.begins[row]) * dim;
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i, symbols += dim)
        std::copy_n(symbols, dim, &symbols_[(i - starts[begin_]) * stride_]);
    }
    team.wait();
    linear_->run(team, symbols_.data(), stride_, inputs_, words_.data(),
                 {values_.data(), size_t(linear_->outputs), nullptr, Activation::none});
    team.wait();
    for (int part = team.begin(parts); part < team.end(parts); ++part) {
      const int64_t vector = part / call.heads, head = part % call.heads;
      for (int row = begin_; row < end_; ++row) {
        const int64_t length = starts[row + 1] - starts[row];
        const int64_t together = (vector * starts[call.rows] + starts[row]) * call.heads;
        float* out = call.out + (call.places ? call.places[row] + part * length * size
                                             : (together + head * length) * size);
        const float* in = &values_[((starts[row] - starts[begin_]) * parts + part) * size];
        for (int i = 0; i < length; ++i)
          std::memcpy(out + i * size, in + size_t(i) * parts * size, sizeof(float) * size);
      }
    }
  }

 private:
  const Linear* linear_;
  const SourceKvCall* call_;
  int begin_, end_, inputs_;
  size_t stride_;  // of the symbols
  Aligned<float> symbols_, values_;
  Aligned<uint32_t> words_;
};

extern "C" {

// A linear map whose packed weights are in an open file; null if they are not.
Linear* linear_open(int file, int outputs, int inputs, Format format) {
  format = Linear::format_of(file, format);
  auto linear = std::make_unique<Linear>(file, outputs, inputs, format);
  return linear->packed() ? linear.release() : nullptr;
}

// The weights of another one, which are not integers, in another format.
Linear* linear_rounded(const Linear* exact, Format format, int threads) {
  return new Linear(*exact, format, threads);
}

// Whether a Matrix may have this format.
int linear_reads(Format format) {
  bool found = false;
  with_kept(format, [&](auto) { found = true; });
  return found;
}

// Bits that each weight takes.
int linear_bits(const Linear* linear) { return 32 / numbers_per_word(linear->format); }

// Writes packed weights to an empty file; 0 where that failed.
int linear_save(const Linear* linear, int file) { return linear->save(file); }

// in: (rows, inputs); out: (rows, outputs)
void linear_run(const Linear* linear, const float* in, int rows, float* out, int threads) {
  Aligned<uint32_t> scratch(linear->scratch_size(rows));
  parallel(threads, [&](const Team& team) {
    linear->run(team, in, linear->inputs, rows, scratch.data(),
                {out, size_t(linear->outputs), nullptr, Activation::none});
  });
}

// As `linear_run`. normalisers: (rows) log Σ exp of each row of `out`. Afterwards the score of
// `suppressed_id` is -inf, unless `suppressed_id` is negative.
void linear_scores(const Linear* linear, const float* in, int rows, int suppressed_id, float* out,
                   float* normalisers, int threads) {
  Aligned<uint32_t> scratch(linear->scratch_size(rows));
  parallel(threads, [&](const Team& team) {
    const size_t outputs = linear->outputs;
    linear->run(team, in, linear->inputs, rows, scratch.data(),
                {out, outputs, nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      normalisers[row] = log_sum_exp(out + row * outputs, linear->outputs);
      if (suppressed_id >= 0) out[row * outputs + suppressed_id] = MINUS_INFINITY;
    }
  });
}

// A bit for each of native.INSTRUCTIONS that these kernels use.
int linear_instructions() {
  int found = 0;
#ifdef __AVX2__
  found |= 1;
#endif
#ifdef __AVX512F__
  found |= 2;
#endif
#ifdef __AVX512VNNI__
  found |= 4;
#endif
#ifdef __AVX512BF16__
  found |= 8;
#endif
#ifdef __ARM_NEON
  found |= 16;
#endif
  return found;
}

// See SourceKvCall.
void linear_source_kv(const Linear* linear, const SourceKvCall* call, int threads) {
  const std::pair<const Linear*, const SourceKvCall*> both(linear, call);
  const int total = int(call->starts[call->rows]);
  prefer_huge_pages(call->out, sizeof(float) * size_t(total) * linear->outputs);
  in_parts<SourceKv>(both, call->rows, SourceKv::INPUTS * call->rows / std::max(1, total), threads);
}

}  // extern "C"

}  // namespace native
