// The layers of a Transformer encoder or decoder, for the new inputs of each row of a batch.
#pragma once

#include <memory>
#include <optional>

#include "engine/native/attention.h"
#include "engine/native/linear.h"

namespace native {

struct Norm {
  Aligned<float> weight, bias;
  float epsilon;

  void apply(const float* in, float* out) const {
    const int dim = int(weight.size()), even = dim / LANES * LANES;
    Vec totals = Vec{}, squares = Vec{};
    for (int i = 0; i < even; i += LANES) totals += load(in + i);
    float mean = sum(totals), spread = 0;
    for (int i = even; i < dim; ++i) mean += in[i];
    mean /= dim;
    for (int i = 0; i < even; i += LANES) {
      const Vec centred = load(in + i) - splat(mean);
      squares += centred * centred;
    }
    for (int i = even; i < dim; ++i) spread += (in[i] - mean) * (in[i] - mean);
    const float scale = 1.0f / std::sqrt((sum(squares) + spread) / dim + epsilon);
    for (int i = 0; i < dim; ++i) out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
  }

  // in, out: (rows, dim) with `stride` from row to row. Each thread computes its share; the caller
  // waits.
  void apply(const Team& team, const float* in, size_t stride, int rows, float* out) const {
    for (int row = team.begin(rows); row < team.end(rows); ++row)
      apply(in + row * stride, out + row * stride);
  }
};

// The index of a row in the cache.
static inline size_t row_index(const StackCall& call, int row) {
  return call.row_index ? size_t(call.row_index[row]) : size_t(row);
}

// Rows of the cache that share a row of the source.
static inline int beams_of(const StackCall& call) { return std::max(call.beams, 1); }

// Rows of the source.
static inline size_t sources_of(const StackCall& call) {
  return size_t(call.total_rows / beams_of(call));
}

// The row of the source that a row of the batch reads.
static inline size_t source_index(const StackCall& call, int row) {
  return call.source_index ? size_t(call.source_index[row])
                           : row_index(call, row) / size_t(beams_of(call));
}

// The index of a row's first new input among those of all rows.
static inline size_t first_input(const StackCall& call, int row) {
  return call.firsts ? size_t(call.firsts[row]) : size_t(row) * call.width;
}

// New inputs of a row.
static inline int width_of(const StackCall& call, int row) {
  return call.firsts ? int(call.firsts[row + 1] - call.firsts[row]) : call.width;
}

// New inputs of all rows.
static inline int inputs_of(const StackCall& call) { return int(first_input(call, call.rows)); }

// The row that an input belongs to.
static inline int row_of(const StackCall& call, int input) {
  if (!call.firsts) return input / call.width;
  const int64_t* end = call.firsts + call.rows;
  return int(std::upper_bound(call.firsts, end, int64_t(input)) - call.firsts) - 1;
}

// The slots of the cache that a row has taken, which is the position of its first new input.
static inline int start_of(const StackCall& call, int row) {
  return call.cache ? int(call.starts[row]) : 0;
}

// The index of an input among the masks; negative for a token.
static inline int mask_of(const StackCall& call, int row, int i) {
  return call.counts ? i - int(call.counts[row]) : -1;
}

// How many slots an input attends to: without limits, tokens attend to those up to their own, masks
// to the whole row, and inputs without a cache to all.
static inline int visible_slots(const StackCall& call, int row, int i) {
  if (call.limits) return int(call.limits[size_t(row) * call.width + i]);
  if (!call.cache) return width_of(call, row);
  if (mask_of(call, row, i) < 0) return start_of(call, row) + i + 1;
  return start_of(call, row) + std::min(int(call.counts[row]) + call.block, call.width);
}

// How tokens and masks become vectors.
struct Embedding {
  Matrix weight;  // (vocabulary, dim), the caller's
  float scale;
  Aligned<float> masks;  // (…, dim), not scaled
  std::optional<Norm> norm;
};

struct Attention {
  Norm norm;
  std::unique_ptr<Linear> in, out;
};

struct Layer {
  Attention self;
  std::optional<Attention> cross;
  Norm feed_forward_norm;
  std::unique_ptr<Linear> inner, outer;
};

// The weights of a model's layers, which several threads may read at once.
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
  size_t weights = 0;  // of all layers: multiply-adds of an input
  size_t bytes = 0;    // of these weights

  // Of `threads`, those that are worth while for a run of so many inputs. projection: scores what
  // the layers give; null for none.
  int useful_threads(const Linear* projection, int inputs, int threads) const {
    const size_t each = weights + (projection ? projection->weights() : 0);
    const int waits = WAITS * int(layers.size()) + (projection ? 2 : 0);
    return native::useful_threads(inputs * each, waits, threads);
  }

 private:
  static constexpr int WAITS = 8;  // of a layer with cross-attention; see `Pass::run_layer`
};

// A run of new inputs through a stack, with the room that it takes.
class Pass {
 public:
  // To be called before the threads call `run`.
  void prepare(const Stack& stack, const StackCall& call, int threads) {
    stack_ = &stack;
    dim_ = stack.dim;
    stride_ = stride_of(dim_);
    heads_ = stack.heads;
    norm_first_ = stack.norm_first;
    const int inputs = inputs_of(call), slots = call.cache ? call.capacity : call.width;
    size_t wide = 3 * dim_, scratch_size = 0;
    for (const Layer& layer : stack.layers) {
      const size_t inner = stride_of(layer.inner->outputs);
      wide = std::max(wide, inner);
      scratch_size = std::max(scratch_size, layer.outer->scratch_size(inputs, inner));
      scratch_size = std::max(scratch_size, layer.self.in->scratch_size(inputs, stride_));
    }
    grow(hidden_, std::max(inputs, threads * FEW) * stride_);
    grow(normed_, std::max(inputs, threads * FEW) * stride_);
    grow(attended_, inputs * stride_);
    grow(wide_, inputs * wide);
    grow(scratch_, scratch_size);
    score_stride_ = std::max(call.source_length, slots) + 2 * LANES;
    grow(scores_, score_stride_ * threads);
    if (call.counts) grow(wanted_, std::max(call.rows * call.block, threads * FEW) * stride_);
    gathered_size_ = size_t(slots) * (dim_ / heads_);
    grow(gathered_, 2 * gathered_size_ * threads);
  }

  // By all threads; the caller waits before it reads `call.out`.
  void run(const Team& team, const StackCall& call) {
    Flow flow{call.width, inputs_of(call), hidden_.data()};
    embed(team, call, flow);
    if (!alone(flow)) team.wait();
    for (size_t index = 0; index < stack_->layers.size(); ++index) {
      const bool last = index + 1 == stack_->layers.size();
      flow = run_layer(team, call, index, last && call.counts, flow);
    }
    write_out(team, call, flow);
  }

 private:
  const Stack* stack_ = nullptr;
  int dim_ = 0, heads_ = 0;
  size_t stride_ = 0;  // from one vector to the next one, in room of the pass
  bool norm_first_ = false;
  Aligned<float> hidden_, normed_, wide_, attended_, scores_;
  Aligned<float> wanted_;    // what flows on when only masks are wanted
  Aligned<float> gathered_;  // (threads, 2, gathered_size_) keys and values of one head
  Aligned<uint32_t> scratch_;
  size_t score_stride_ = 0, gathered_size_ = 0;

  // Every thread embeds and normalises so few inputs by itself, which takes less time than to wait
  // for others: `hidden` or `normed` is the thread's own then. The sums of products are shared.
  static constexpr int FEW = 4;

  // What flows through the layers: so many vectors of each row, and of all.
  struct Flow {
    int width, inputs;
    float* vectors;  // (inputs, stride), or (threads, FEW, stride)
  };

  // Whether each thread has all vectors by itself.
  bool alone(const Flow& flow) const { return flow.inputs <= FEW && !norm_first_; }

  float* hidden(const Team& team, const Flow& flow) const {
    return flow.vectors + (alone(flow) ? team.index * FEW * stride_ : 0);
  }
  float* normed(const Team& team, const Flow& flow) {
    return &normed_[flow.inputs <= FEW && norm_first_ ? team.index * FEW * stride_ : 0];
  }

  // The vectors of a flow that a thread writes: [begin, end).
  int begin(const Team& team, const Flow& flow) const {
    return alone(flow) ? 0 : team.begin(flow.inputs);
  }
  int end(const Team& team, const Flow& flow) const {
    return alone(flow) ? flow.inputs : team.end(flow.inputs);
  }

  void embed(const Team& team, const StackCall& call, const Flow& flow) {
    const Embedding& embedding = stack_->embedding;
    for (int input = begin(team, flow); input < end(team, flow); ++input) {
      float* out = hidden(team, flow) + input * stride_;
      if (call.vectors) {
        std::memcpy(out, call.vectors + input * size_t(dim_), sizeof(float) * dim_);
        continue;
      }
      const int row = row_of(call, input), i = input - int(first_input(call, row));
      const int mask = mask_of(call, row, i);
      // What follows the masks of a row is not read; any vector will do.
      const bool token = mask < 0 || mask >= call.block;
      if (token) {
        const size_t index = mask < 0 ? i : 0;
        const size_t begin = call.firsts ? call.firsts[row] : row * size_t(call.token_stride);
        const int64_t id =
            call.tokens[begin + (call.from_starts ? start_of(call, row) : 0) + index];
        const float* vector = embedding.weight.row(id, out);
        for (int k = 0; k < dim_; ++k) out[k] = embedding.scale * vector[k];
      } else {
        std::memcpy(out, &embedding.masks[size_t(mask) * dim_], sizeof(float) * dim_);
      }
      if (call.positions) {
        const int position = std::min(start_of(call, row) + i, call.position_limit - 1);
        const float* vector = call.positions + size_t(position) * dim_;
        for (int k = 0; k < dim_; ++k) out[k] += vector[k];
      }
      if (embedding.norm) embedding.norm->apply(out, out);
    }
  }

  // The masks of each row alone. The threads wait before they read them.
  Flow only_masks(const Team& team, const StackCall& call, const Flow& flow) {
    const Flow masks{call.block, call.rows * call.block, wanted_.data()};
    const float* from = hidden(team, flow);
    float* to = hidden(team, masks);
    for (int mask = begin(team, masks); mask < end(team, masks); ++mask) {
      const int row = mask / masks.width;
      const size_t input = size_t(row) * flow.width + call.counts[row] + mask % masks.width;
      std::memcpy(to + mask * stride_, from + input * stride_, sizeof(float) * dim_);
    }
    return masks;
  }

  // Applies the last norm and writes the outputs.
  void write_out(const Team& team, const StackCall& call, const Flow& flow) {
    const float* from = hidden(team, flow);
    for (int output = team.begin(flow.inputs); output < team.end(flow.inputs); ++output) {
      const float* vector = from + output * stride_;
      float* out = call.out + size_t(output) * dim_;
      if (stack_->final_norm) {
        stack_->final_norm->apply(vector, out);
      } else {
        std::memcpy(out, vector, sizeof(float) * dim_);
      }
    }
  }

  // After a sub-layer `hidden` is complete, of few inputs the thread's own, and all threads have
  // waited. They wait between two products that write to the same memory.
  //
  // masks_only: behind self-attention, which reads all inputs, nothing but masks is wanted.
  Flow run_layer(const Team& team, const StackCall& call, size_t index, bool masks_only,
                 Flow flow) {
    const Layer& layer = stack_->layers[index];
    const float* input = normed_input(team, layer.self.norm, flow);
    layer.self.in->run(team, input, stride_, flow.inputs, scratch_.data(),
                       {wide_.data(), size_t(3 * dim_), nullptr, Activation::none});
    team.wait();
    if (call.ancestors) {  // a row may read what another one has just stored
      store_shared(team, call, index);
      team.wait();
    }
    attend_self(team, call, index, masks_only);
    if (masks_only) flow = only_masks(team, call, flow);
    team.wait();
    add_residual(team, *layer.self.out, layer.self.norm, attended_.data(), stride_, flow);
    if (layer.cross) {
      input = normed_input(team, layer.cross->norm, flow);
      layer.cross->in->run(team, input, stride_, flow.inputs, scratch_.data(),
                           {wide_.data(), size_t(dim_), nullptr, Activation::none});
      team.wait();
      attend_cross(team, call, index, flow.width);
      team.wait();
      add_residual(team, *layer.cross->out, layer.cross->norm, attended_.data(), stride_, flow);
    }
    input = normed_input(team, layer.feed_forward_norm, flow);
    const size_t wide = stride_of(layer.inner->outputs);
    layer.inner->run(team, input, stride_, flow.inputs, scratch_.data(),
                     {wide_.data(), wide, nullptr, stack_->activation});
    team.wait();
    add_residual(team, *layer.outer, layer.feed_forward_norm, wide_.data(), wide, flow);
    return flow;
  }

  const float* normed_input(const Team& team, const Norm& norm, const Flow& flow) {
    if (!norm_first_) return hidden(team, flow);
    if (flow.inputs <= FEW) {
      norm.apply(Team(), flow.vectors, stride_, flow.inputs, normed(team, flow));
    } else {
      norm.apply(team, flow.vectors, stride_, flow.inputs, normed_.data());
      team.wait();
    }
    return normed(team, flow);
  }

  // hidden = [norm](hidden + linear(in))
  void add_residual(const Team& team, const Linear& linear, const Norm& norm, const float* in,
                    size_t stride, const Flow& flow) {
    float* out = norm_first_ ? flow.vectors : normed_.data();
    linear.run(team, in, stride, flow.inputs, scratch_.data(),
               {out, stride_, hidden(team, flow), Activation::none});
    team.wait();
    if (norm_first_) return;
    if (flow.inputs <= FEW) {
      norm.apply(Team(), normed_.data(), stride_, flow.inputs, hidden(team, flow));
    } else {
      norm.apply(team, normed_.data(), stride_, flow.inputs, flow.vectors);
      team.wait();
    }
  }

  // With so many queries it pays to gather keys and values: where the cache is not by head, they
  // are kilobytes apart and share few sets of the processor's cache.
  static constexpr int MANY = 4;

  template <class AnySlots>
  static Slots gather(const AnySlots& slots, int count, int head_dim, float* room) {
    for (int i = 0; i < count; ++i)
      std::memcpy(room + size_t(i) * head_dim, slots.at(i), sizeof(float) * head_dim);
    return {room, size_t(head_dim)};
  }

  // wide_ holds queries, keys and values of the new inputs side by side. One thread computes one
  // head of one row: it writes the keys and values into the cache and reads them there.
  // With `masks_only`, tokens are no queries.
  void attend_self(const Team& team, const StackCall& call, size_t index, bool masks_only) {
    const int head_dim = dim_ / heads_, items = call.rows * heads_;
    const size_t one = size_t(call.capacity) * dim_, all = call.total_rows * one;
    for (int item = team.begin(items); item < team.end(items); ++item) {
      const int row = item / heads_, shift = item % heads_ * head_dim;
      const size_t first = first_input(call, row);
      const Queries queries = masks_only ? Queries{row, shift, int(call.counts[row]), call.block,
                                                   size_t(row) * call.block}
                                         : Queries{row, shift, 0, width_of(call, row), first};
      const float* parts = &wide_[first * 3 * dim_ + shift];
      const size_t stride = 3 * dim_;
      if (call.ancestors) {
        const int64_t* rows = call.ancestors + size_t(row) * call.capacity;
        const float* keys = call.cache + 2 * index * all + in_cache(call, shift);
        attend_row(team, call, queries, SharedSlots{keys, slot_stride(call), one, rows},
                   SharedSlots{keys + all, slot_stride(call), one, rows});
      } else if (call.cache) {
        const float* keys = store_row(call, index, row, shift);
        attend_row(team, call, queries, Slots{keys, slot_stride(call)},
                   Slots{keys + all, slot_stride(call)});
      } else {
        attend_row(team, call, queries, Slots{parts + dim_, stride},
                   Slots{parts + 2 * dim_, stride});
      }
    }
  }

  // From a slot of the cache to the next one of the same head.
  size_t slot_stride(const StackCall& call) const {
    return size_t(call.by_head ? dim_ / heads_ : dim_);
  }

  // Where the first slot of a head begins in a row of the cache. shift: where it begins in a
  // vector.
  size_t in_cache(const StackCall& call, int shift) const {
    return call.by_head ? size_t(shift) * call.capacity : size_t(shift);
  }

  // Writes new keys and values where other rows read them.
  void store_shared(const Team& team, const StackCall& call, size_t index) {
    const int items = call.rows * heads_;
    for (int item = team.begin(items); item < team.end(items); ++item)
      store_row(call, index, item / heads_, item % heads_ * (dim_ / heads_));
  }

  // Writes the new keys and values of one head of a row; returns its keys in the cache.
  float* store_row(const StackCall& call, size_t index, int row, int shift) {
    const size_t one = size_t(call.capacity) * dim_, all = call.total_rows * one;
    const size_t size = sizeof(float) * (dim_ / heads_);
    const float* parts = &wide_[size_t(row) * call.width * 3 * dim_ + shift];
    float* first =
        call.cache + 2 * index * all + row_index(call, row) * one + in_cache(call, shift);
    for (int i = 0; i < call.width; ++i, parts += 3 * dim_) {
      float* slot = first + size_t(start_of(call, row) + i) * slot_stride(call);
      std::memcpy(slot, parts + dim_, size);
      std::memcpy(slot + all, parts + 2 * dim_, size);
    }
    return first;
  }

  // Inputs of a row that ask: so many from `first` on. shift: where the head is in a vector.
  // output: the index of the first one's result.
  struct Queries {
    int row, shift, first, count;
    size_t output;
  };

  // The queries of one head of one row, after the row's keys and values are in the cache.
  template <class AnySlots>
  void attend_row(const Team& team, const StackCall& call, const Queries& queries, AnySlots keys,
                  AnySlots values) {
    const int head_dim = dim_ / heads_;
    if (queries.count >= MANY) {
      float* room = &gathered_[2 * team.index * gathered_size_];
      const int slots = start_of(call, queries.row) + width_of(call, queries.row);
      const Slots near_keys = gather(keys, slots, head_dim, room);
      attend_queries(team, call, queries, near_keys,
                     gather(values, slots, head_dim, room + gathered_size_));
    } else {
      attend_queries(team, call, queries, keys, values);
    }
  }

  template <class AnySlots>
  void attend_queries(const Team& team, const StackCall& call, const Queries& queries,
                      AnySlots keys, AnySlots values) {
    const int head_dim = dim_ / heads_, row = queries.row;
    const float factor = 1.0f / std::sqrt(float(head_dim));
    const float* mask = call.self_mask ? call.self_mask + size_t(row) * call.width : nullptr;
    for (int i = 0; i < queries.count; ++i) {
      const size_t input = first_input(call, row) + queries.first + i;
      float* out = &attended_[(queries.output + i) * stride_ + queries.shift];
      attend(&wide_[input * 3 * dim_ + queries.shift], factor, keys, values,
             visible_slots(call, row, queries.first + i), mask, head_dim,
             &scores_[team.index * score_stride_], out);
    }
  }

  // Keys and values of one head of a row of the source.
  struct SourceSlots {
    Slots keys, values;
    int count;
  };

  SourceSlots source_slots(const StackCall& call, size_t index, size_t source, int head) const {
    const size_t head_dim = dim_ / heads_;
    const float* first = call.source_kv;
    if (call.source_places) {
      const size_t slots = call.source_lengths[source], all = slots * dim_;
      first += call.source_places[source] + 2 * index * all + head * slots * head_dim;
      return {{first, head_dim}, {first + all, head_dim}, int(slots)};
    }
    const size_t slots = call.source_length, all = sources_of(call) * slots * dim_;
    first += 2 * index * all + (source * heads_ + head) * slots * head_dim;
    const int count = int(call.source_lengths ? call.source_lengths[source] : slots);
    return {{first, head_dim}, {first + all, head_dim}, count};
  }

  // width: vectors of each row.
  void attend_cross(const Team& team, const StackCall& call, size_t index, int width) {
    const int head_dim = dim_ / heads_;
    const float factor = 1.0f / std::sqrt(float(head_dim));
    float* scores = &scores_[team.index * score_stride_];
    for (int item = team.begin(call.rows * heads_); item < team.end(call.rows * heads_); ++item) {
      const int row = item / heads_, head = item % heads_, shift = head * head_dim;
      const SourceSlots source = source_slots(call, index, source_index(call, row), head);
      for (int i = 0; i < width; ++i) {
        const size_t input = size_t(row) * width + i;
        attend(&wide_[input * dim_ + shift], factor, source.keys, source.values, source.count,
               nullptr, head_dim, scores, &attended_[input * stride_ + shift]);
      }
    }
  }
};

static inline Norm norm_of(const float* weight, const float* bias, int dim, float epsilon) {
  return {{weight, weight + dim}, {bias, bias + dim}, epsilon};
}

// What `stack_run` computes in, for each thread that calls it.
static thread_local Pass stack_pass;

extern "C" {

// weight: (vocabulary, dim), which the caller owns. masks: (count, dim). norm: null for none.
// weight: (vocabulary, dim) in the format `held`, which is exact.
void stack_embedding(Stack* stack, const void* weight, Format held, float scale, const float* masks,
                     int count, const float* norm, const float* norm_bias, float epsilon) {
  Embedding& embedding = stack->embedding;
  embedding.weight = {weight, held, size_t(stack->dim)};
  embedding.scale = scale;
  embedding.masks.assign(masks, masks + size_t(count) * stack->dim);
  if (norm) embedding.norm = norm_of(norm, norm_bias, stack->dim, epsilon);
}

void stack_final_norm(Stack* stack, const float* weight, const float* bias, float epsilon) {
  stack->final_norm = norm_of(weight, bias, stack->dim, epsilon);
}

// The layer owns the linear maps from now on, even if there is no room for the rest. Those of the
// source are null in an encoder. norms: weight and bias of the norms of self-attention,
// cross-attention and feed-forward layers.
void stack_layer(Stack* stack, Linear* self_in, Linear* self_out, Linear* source_in,
                 Linear* source_out, Linear* inner, Linear* outer, const float* const* norms,
                 const float* epsilons) {
  Layer layer;
  const int dim = stack->dim;
  layer.self.in.reset(self_in);
  layer.self.out.reset(self_out);
  layer.inner.reset(inner);
  layer.outer.reset(outer);
  if (source_in) {
    layer.cross.emplace();
    layer.cross->in.reset(source_in);
    layer.cross->out.reset(source_out);
    layer.cross->norm = norm_of(norms[2], norms[3], dim, epsilons[1]);
  }
  layer.self.norm = norm_of(norms[0], norms[1], dim, epsilons[0]);
  layer.feed_forward_norm = norm_of(norms[4], norms[5], dim, epsilons[2]);
  for (const Linear* each : {self_in, self_out, source_in, source_out, inner, outer}) {
    if (!each) continue;
    stack->weights += each->weights();
    stack->bytes += each->bytes();
  }
  stack->layers.push_back(std::move(layer));
}

void stack_run(Stack* stack, const StackCall* call, int threads) {
  Pass& pass = stack_pass;  // the caller's, for all threads
  threads = stack->useful_threads(nullptr, call->rows * call->width, threads);
  pass.prepare(*stack, *call, threads);
  parallel(threads, [&pass, call](const Team& team) { pass.run(team, *call); });
}

// Frees what this thread's runs took, until the next one.
void stack_free_memory() { stack_pass = Pass(); }

}  // extern "C"

}  // namespace native
