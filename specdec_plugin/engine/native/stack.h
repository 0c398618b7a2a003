// The layers of a Transformer encoder or decoder, for the new inputs of each row of a batch.
#pragma once

#include <memory>
#include <optional>

#include "engine/native/attention.h"
#include "engine/native/linear.h"

namespace native {

struct Norm {
  std::vector<float> weight, bias;
  float epsilon;

  void apply(const float* in, float* out) const {
    const int dim = int(weight.size()), even = dim / LANES * LANES;
    Vec totals = Vec{}, squares = Vec{};
    for (int i = 0; i < even; i += LANES) totals += load(in + i);
    float mean = sum(totals), spread = 0;
    for (int i = even; i < dim; ++i) mean += in[i];
    mean /= dim;
    for (int i = 0; i < even; i += LANES) {
      const Vec apart = load(in + i) - splat(mean);
      squares += apart * apart;
    }
    for (int i = even; i < dim; ++i) spread += (in[i] - mean) * (in[i] - mean);
    const float scale = 1.0f / std::sqrt((sum(squares) + spread) / dim + epsilon);
    for (int i = 0; i < dim; ++i) out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
  }

  // rows of (dim), each thread its share; the caller waits.
  void apply(const Team& team, const float* in, int rows, float* out) const {
    const size_t dim = weight.size();
    for (int row = team.begin(rows); row < team.end(rows); ++row)
      apply(in + row * dim, out + row * dim);
  }
};

// The index of a row in the cache and the source.
static inline size_t row_index(const StackCall& call, int row) {
  return call.row_index ? size_t(call.row_index[row]) : size_t(row);
}

// Slots of the cache that a row has taken: the position of its first new input.
static inline int start_of(const StackCall& call, int row) {
  return call.cache ? int(call.starts[row]) : 0;
}

// Which mask an input is; negative for a token.
static inline int mask_of(const StackCall& call, int row, int i) {
  return call.counts ? i - int(call.counts[row]) : -1;
}

// How many slots an input attends to: those up to its own, of a mask the whole block; without a
// cache all.
static inline int visible_slots(const StackCall& call, int row, int i) {
  if (call.limits) return int(call.limits[size_t(row) * call.width + i]);
  if (!call.cache) return call.width;
  if (mask_of(call, row, i) < 0) return start_of(call, row) + i + 1;
  return start_of(call, row) + std::min(int(call.counts[row]) + call.block, call.width);
}

// How tokens and masks become vectors.
struct Embedding {
  const float* weight = nullptr;  // (vocabulary, dim), the caller's
  float scale;
  std::vector<float> masks;  // (…, dim), not scaled
  std::optional<Norm> norm;
};

struct Attention {
  Norm norm;
  std::unique_ptr<Linear> in, out;
};

struct Layer {
  Attention own;
  std::optional<Attention> source;
  Norm last_norm;
  std::unique_ptr<Linear> inner, outer;
};

class Stack {
 public:
  Stack(int dim, int heads, bool norm_first, Activation activation)
      : dim(dim), heads(heads), norm_first(norm_first), activation(activation) {}

  const int dim, heads;
  const bool norm_first;
  const Activation activation;
  Embedding embedding;
  std::optional<Norm> final_norm;
  std::vector<Layer> layers;

  // Makes room for a call, before its threads start.
  void prepare(const StackCall& call, int threads) {
    const int inputs = call.rows * call.width, slots = call.cache ? call.capacity : call.width;
    size_t wide = 3 * dim, narrow_room = 0;
    for (const Layer& layer : layers) {
      wide = std::max(wide, apart(layer.inner->outputs));
      narrow_room = std::max(narrow_room, layer.outer->room(inputs));
      narrow_room = std::max(narrow_room, layer.own.in->room(inputs));
    }
    grow(hidden_, size_t(std::max(inputs, threads * FEW)) * dim);
    grow(normed_, size_t(std::max(inputs, threads * FEW)) * dim);
    grow(found_, size_t(inputs) * dim);
    grow(wide_, inputs * wide);
    grow(narrow_inputs_, narrow_room);
    score_room_ = std::max(call.source_length, slots) + 2 * LANES;
    grow(scores_, score_room_ * threads);
    near_room_ = size_t(slots) * (dim / heads);
    grow(near_, 2 * near_room_ * threads);
  }

  // By all threads; the caller waits before it reads `call.out`.
  void run(const Team& team, const StackCall& call) {
    embed(team, call);
    team.wait();
    for (size_t index = 0; index < layers.size(); ++index) run_layer(team, call, index);
    emit(team, call);
  }

 private:
  std::vector<float> hidden_, normed_, wide_, found_, scores_;
  std::vector<float> near_;  // (threads, 2, near_room_) keys and values of one head of one row
  std::vector<uint32_t> narrow_inputs_;
  size_t score_room_ = 0, near_room_ = 0;

  // So few inputs are embedded and normalised by every thread for itself, sooner than they could
  // wait for each other: then these are the thread's own. What products add up to is everyone's.
  static constexpr int FEW = 4;

  float* hidden(const Team& team, int inputs) {
    return &hidden_[inputs <= FEW && !norm_first ? size_t(team.index) * FEW * dim : 0];
  }
  float* normed(const Team& team, int inputs) {
    return &normed_[inputs <= FEW && norm_first ? size_t(team.index) * FEW * dim : 0];
  }

  template <class Buffer>
  static void grow(Buffer& buffer, size_t size) {
    if (buffer.size() < size) buffer.resize(size + size / 2);
  }

  void embed(const Team& team, const StackCall& call) {
    const int inputs = call.rows * call.width;
    const bool few = inputs <= FEW && !norm_first;
    const int begin = few ? 0 : team.begin(inputs), end = few ? inputs : team.end(inputs);
    for (int input = begin; input < end; ++input) {
      float* out = hidden(team, inputs) + input * size_t(dim);
      if (call.vectors) {
        std::memcpy(out, call.vectors + input * size_t(dim), 4 * dim);
        continue;
      }
      const int row = input / call.width, i = input % call.width, mask = mask_of(call, row, i);
      // Beyond its masks a row has nothing to say; any vector will do.
      const bool token = mask < 0 || mask >= call.block;
      if (token) {
        const size_t place = mask < 0 ? i : 0;
        const int64_t id = call.tokens[row * size_t(call.token_stride) +
                                       (call.from_starts ? start_of(call, row) : 0) + place];
        const float* vector = embedding.weight + id * dim;
        for (int k = 0; k < dim; ++k) out[k] = embedding.scale * vector[k];
      } else {
        std::memcpy(out, &embedding.masks[size_t(mask) * dim], 4 * dim);
      }
      if (call.positions) {
        const int place = std::min(start_of(call, row) + i, call.position_limit - 1);
        const float* vector = call.positions + size_t(place) * dim;
        for (int k = 0; k < dim; ++k) out[k] += vector[k];
      }
      if (embedding.norm) embedding.norm->apply(out, out);
    }
  }

  // The last norm, and out.
  void emit(const Team& team, const StackCall& call) {
    const int width = call.counts ? call.block : call.width, outputs = call.rows * width;
    for (int output = team.begin(outputs); output < team.end(outputs); ++output) {
      const int row = output / width;
      const size_t input =
          size_t(row) * call.width + (call.counts ? call.counts[row] : 0) + output % width;
      const float* from = hidden(team, call.rows * call.width) + input * dim;
      if (final_norm) {
        final_norm->apply(from, call.out + size_t(output) * dim);
      } else {
        std::memcpy(call.out + size_t(output) * dim, from, 4 * dim);
      }
    }
  }

  // From one row of that many numbers to the next: not a whole number of pages, or the rows of a
  // tile would fall on the same few places of the cache.
  static size_t apart(int count) { return size_t(count) + LANES; }

  // Sub-layers end with `hidden_` complete and everyone having waited; of few inputs, with the
  // thread's own complete. Between two products that write to one place everyone waits.
  void run_layer(const Team& team, const StackCall& call, size_t index) {
    const int inputs = call.rows * call.width;
    const Layer& layer = layers[index];
    const float* before = enter(team, layer.own.norm, inputs);
    layer.own.in->run(team, before, dim, inputs, narrow_inputs_.data(),
                      {wide_.data(), size_t(3 * dim), nullptr, Activation::none});
    team.wait();
    attend_own(team, call, index);
    team.wait();
    leave(team, *layer.own.out, layer.own.norm, found_.data(), dim, inputs);
    if (layer.source) {
      before = enter(team, layer.source->norm, inputs);
      layer.source->in->run(team, before, dim, inputs, narrow_inputs_.data(),
                            {wide_.data(), size_t(dim), nullptr, Activation::none});
      team.wait();
      attend_source(team, call, index);
      team.wait();
      leave(team, *layer.source->out, layer.source->norm, found_.data(), dim, inputs);
    }
    before = enter(team, layer.last_norm, inputs);
    const size_t wide = apart(layer.inner->outputs);
    layer.inner->run(team, before, dim, inputs, narrow_inputs_.data(),
                     {wide_.data(), wide, nullptr, activation});
    team.wait();
    leave(team, *layer.outer, layer.last_norm, wide_.data(), wide, inputs);
  }

  const float* enter(const Team& team, const Norm& norm, int inputs) {
    if (!norm_first) return hidden(team, inputs);
    if (inputs <= FEW) {
      norm.apply(Team(), hidden_.data(), inputs, normed(team, inputs));
    } else {
      norm.apply(team, hidden_.data(), inputs, normed_.data());
      team.wait();
    }
    return normed(team, inputs);
  }

  // hidden = [norm](hidden + linear(in))
  void leave(const Team& team, const Linear& linear, const Norm& norm, const float* in,
             size_t stride, int inputs) {
    float* out = norm_first ? hidden_.data() : normed_.data();
    linear.run(team, in, stride, inputs, narrow_inputs_.data(),
               {out, size_t(dim), hidden(team, inputs), Activation::none});
    team.wait();
    if (norm_first) return;
    if (inputs <= FEW) {
      norm.apply(Team(), normed_.data(), inputs, hidden(team, inputs));
    } else {
      norm.apply(team, normed_.data(), inputs, hidden_.data());
      team.wait();
    }
  }

  // So many queries pay for putting keys and values side by side: as they lie, a few kilobytes
  // apart, they share a few places of the cache.
  static constexpr int MANY = 4;

  static Slots gathered(const Slots& slots, int count, int head_dim, float* room) {
    for (int i = 0; i < count; ++i)
      std::memcpy(room + size_t(i) * head_dim, slots.at(i), sizeof(float) * head_dim);
    return {room, size_t(head_dim)};
  }

  // wide_ holds queries, keys and values of the new inputs side by side. Those of one head of
  // one row are one thread's: it puts the keys and values into the cache and reads them there.
  void attend_own(const Team& team, const StackCall& call, size_t index) {
    const int head_dim = dim / heads, width = call.width;
    const float factor = 1.0f / std::sqrt(float(head_dim));
    float* scores = &scores_[team.index * score_room_];
    for (int item = team.begin(call.rows * heads); item < team.end(call.rows * heads); ++item) {
      const int row = item / heads, shift = item % heads * head_dim;
      const int start = start_of(call, row);
      const float* parts = &wide_[size_t(row) * width * 3 * dim + shift];
      Slots keys = {parts + dim, size_t(3 * dim)}, values = {parts + 2 * dim, size_t(3 * dim)};
      if (call.cache) {
        const size_t one = size_t(call.capacity) * dim, plane = call.total_rows * one;
        float* place = call.cache + 2 * index * plane + row_index(call, row) * one + shift;
        for (int i = 0; i < width; ++i) {
          float* slot = place + size_t(start + i) * dim;
          std::memcpy(slot, keys.first + i * keys.stride, 4 * head_dim);
          std::memcpy(slot + plane, values.first + i * values.stride, 4 * head_dim);
        }
        keys = {place, size_t(dim)};
        values = {place + plane, size_t(dim)};
      }
      if (width >= MANY) {
        float* near = &near_[2 * team.index * near_room_];
        const int slots = call.cache ? start + width : width;
        keys = gathered(keys, slots, head_dim, near);
        values = gathered(values, slots, head_dim, near + near_room_);
      }
      const float* mask = call.self_mask ? call.self_mask + size_t(row) * width : nullptr;
      for (int i = 0; i < width; ++i) {
        const int input = row * width + i;
        attend(parts + size_t(i) * 3 * dim, factor, keys, values, visible_slots(call, row, i), mask, head_dim, scores,
               &found_[size_t(input) * dim + shift]);
      }
    }
  }

  void attend_source(const Team& team, const StackCall& call, size_t index) {
    const int head_dim = dim / heads, width = call.width, length = call.source_length;
    const float factor = 1.0f / std::sqrt(float(head_dim));
    const size_t plane = size_t(call.total_rows) * length * dim;
    float* scores = &scores_[team.index * score_room_];
    for (int item = team.begin(call.rows * heads); item < team.end(call.rows * heads); ++item) {
      const int row = item / heads, head = item % heads, shift = head * head_dim;
      const size_t place = row_index(call, row);
      const float* first =
          call.source_kv + 2 * index * plane + (place * heads + head) * length * head_dim;
      const Slots keys = {first, size_t(head_dim)}, values = {first + plane, size_t(head_dim)};
      const float* mask = call.source_mask ? call.source_mask + place * length : nullptr;
      for (int i = 0; i < width; ++i) {
        const size_t input = size_t(row) * width + i;
        attend(&wide_[input * dim + shift], factor, keys, values, length, mask, head_dim, scores,
               &found_[input * dim + shift]);
      }
    }
  }
};

static inline Norm norm_of(const float* weight, const float* bias, int dim, float epsilon) {
  return {{weight, weight + dim}, {bias, bias + dim}, epsilon};
}

extern "C" {

// weight: (vocabulary, dim), which stays the caller's. masks: (count, dim). norm: null for none.
void stack_embedding(Stack* stack, const float* weight, float scale, const float* masks, int count,
                     const float* norm, const float* norm_bias, float epsilon) {
  Embedding& embedding = stack->embedding;
  embedding.weight = weight;
  embedding.scale = scale;
  embedding.masks.assign(masks, masks + size_t(count) * stack->dim);
  if (norm) embedding.norm = norm_of(norm, norm_bias, stack->dim, epsilon);
}

void stack_final_norm(Stack* stack, const float* weight, const float* bias, float epsilon) {
  stack->final_norm = norm_of(weight, bias, stack->dim, epsilon);
}

// The linear maps belong to the layer from now on; those of the source are null in an encoder.
// norms: weight and bias of each of three norms (of self-attention, cross-attention, the last).
void stack_layer(Stack* stack, Linear* self_in, Linear* self_out, Linear* source_in,
                 Linear* source_out, Linear* inner, Linear* outer, const float* const* norms,
                 const float* epsilons) {
  Layer layer;
  const int dim = stack->dim;
  layer.own.norm = norm_of(norms[0], norms[1], dim, epsilons[0]);
  layer.own.in.reset(self_in);
  layer.own.out.reset(self_out);
  if (source_in) {
    layer.source.emplace();
    layer.source->norm = norm_of(norms[2], norms[3], dim, epsilons[1]);
    layer.source->in.reset(source_in);
    layer.source->out.reset(source_out);
  }
  layer.last_norm = norm_of(norms[4], norms[5], dim, epsilons[2]);
  layer.inner.reset(inner);
  layer.outer.reset(outer);
  stack->layers.push_back(std::move(layer));
}

void stack_run(Stack* stack, const StackCall* call, int threads) {
  stack->prepare(*call, threads);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  stack->run(Team(barrier), *call);
}

}  // extern "C"

}  // namespace native
