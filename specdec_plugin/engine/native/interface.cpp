// The functions that Python calls (specdec_plugin/engine/native/__init__.py), with plain C types.

#include "methods/input_guided/source_copy.h"
#include "vocab/gather.h"
#include "methods/jacobi/ngram_lookup.h"
#include "methods/block_nat/block_draft.h"
#include "methods/blockwise/heads.h"
#include "methods/self_draft/self_draft.h"
#include "decoding/verify.h"
#include "engine/native/probabilities.h"

using namespace native;

namespace {

Norm norm_of(const float* weight, const float* bias, int dim, float epsilon) {
  return {{weight, weight + dim}, {bias, bias + dim}, epsilon};
}

}  // namespace

extern "C" {

int native_lanes() { return LANES; }

Linear* linear_new(const float* weight, const float* bias, int outputs, int inputs, int format) {
  return new Linear(weight, bias, outputs, inputs, static_cast<Format>(format));
}

void linear_free(Linear* linear) { delete linear; }

// in: (rows, inputs); out: (rows, outputs)
void linear_run(const Linear* linear, const float* in, int rows, float* out, int threads) {
  std::vector<uint32_t> narrow(linear->room(rows));
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  linear->run(Team(barrier), in, linear->inputs, rows, narrow.data(),
              {out, size_t(linear->outputs), nullptr, Activation::none});
}

// in: (rows, length, inputs). The outputs are `planes` vectors of `heads` parts each; out, by plane
// and part: (planes, rows, heads, length, outputs / planes / heads).
void planes_run(const Linear* linear, const float* in, int rows, int length, int planes, int heads,
                float* out, int threads) {
  const int inputs = length * rows, count = planes * heads, size = linear->outputs / count;
  static thread_local std::vector<float> values;
  static thread_local std::vector<uint32_t> narrow;
  values.resize(size_t(inputs) * linear->outputs);
  narrow.resize(linear->room(inputs));
  float* flat = values.data();  // the caller's, also in other threads
  uint32_t* scratch = narrow.data();
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  {
    const Team team(barrier);
    linear->run(team, in, linear->inputs, inputs, scratch,
                {flat, size_t(linear->outputs), nullptr, Activation::none});
    team.wait();
    for (int part = team.begin(count); part < team.end(count); ++part)
      for (int input = 0; input < inputs; ++input) {
        const int plane = part / heads, head = part % heads, row = input / length;
        const size_t place = (size_t(plane) * rows + row) * heads + head;
        std::memcpy(out + (place * length + input % length) * size,
                    flat + (size_t(input) * count + part) * size, sizeof(float) * size);
      }
  }
}

// As `linear_run`, and the log of the sum of exponentials of each row of `out`: (rows). Afterwards the
// output `never` is ruled out, unless it is negative.
void scores_run(const Linear* linear, const float* in, int rows, int never, float* out,
                float* normalisers, int threads) {
  std::vector<uint32_t> narrow(linear->room(rows));
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  {
    const Team team(barrier);
    const size_t outputs = linear->outputs;
    linear->run(team, in, linear->inputs, rows, narrow.data(),
                {out, outputs, nullptr, Activation::none});
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      normalisers[row] = log_sum_exp(out + row * outputs, linear->outputs);
      if (never >= 0) out[row * outputs + never] = -std::numeric_limits<float>::infinity();
    }
  }
}

// scores: (rows, count) bfloat16, replaced; targets: (rows); see `Probabilities`. wrong: (rows)
// log Σ exp(z) - z_target; totals: (rows) log Σ exp(z).
void probabilities_run(uint16_t* scores, int rows, int count, const int64_t* targets, float added,
                       float* wrong, float* totals, int threads) {
#pragma omp parallel num_threads(threads)
  {
    Probabilities row_of(count);
#pragma omp for
    for (int row = 0; row < rows; ++row) {
      uint16_t* own = scores + size_t(row) * count;
      const float wanted = widened(own[targets[row]]);
      totals[row] = row_of.replace(own, int(targets[row]), added);
      wrong[row] = totals[row] - wanted;
    }
  }
}

// The offsets and the tokens stay the caller's; see `Gather`.
Gather* gather_new(const float* weight, const float* bias, int vocabulary, int width,
                   const float* centroids, const float* norms, int clusters, const int64_t* offsets,
                   const int32_t* tokens) {
  return new Gather(weight, bias, vocabulary, width, centroids, norms, clusters, offsets, tokens);
}

void gather_free(Gather* gather) { delete gather; }

// As `scores_run`.
void gather_run(Gather* gather, const float* in, int rows, int never, float* out,
                float* normalisers, int threads) {
  gather->prepare(rows);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  {
    const Team team(barrier);
    gather->run(team, in, rows, out);
    team.wait();
    for (int row = team.begin(rows); row < team.end(rows); ++row) {
      float* scores = out + size_t(row) * gather->vocabulary();
      normalisers[row] = gather->normaliser(row, scores);
      if (never >= 0) scores[never] = -std::numeric_limits<float>::infinity();
    }
  }
}

// As `gather_new`.
Shortlist* shortlist_new(const float* weight, const float* bias, int vocabulary, int width,
                         const float* centroids, const float* norms, int clusters,
                         const int64_t* offsets, const int32_t* tokens) {
  return new Shortlist(weight, bias, vocabulary, width, centroids, norms, clusters, offsets, tokens);
}

void shortlist_free(Shortlist* shortlist) { delete shortlist; }

// The first three maps belong to the chain from now on; the rest does not.
Chain* chain_new(Linear* from_state, Linear* from_before, Linear* out, const Linear* projection,
                 const float* symbols, const float* bias, const float* embedding, int token_dim,
                 float scale) {
  auto* chain = new Chain();
  chain->dim = out->outputs;
  chain->token_dim = token_dim;
  chain->units = out->inputs;
  chain->from_state.reset(from_state);
  chain->from_before.reset(from_before);
  chain->out.reset(out);
  chain->projection = projection;
  chain->symbols = symbols;
  chain->bias = bias;
  chain->embedding = embedding;
  chain->scale = scale;
  return chain;
}

void chain_free(Chain* chain) { delete chain; }

void chain_run(Chain* chain, const Links* links, int threads) {
  chain->prepare(*links, threads);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  chain->run(Team(barrier), *links);
}

Heads* heads_new(int dim, int joint, int readers) {
  return new Heads(dim, joint != 0, readers);
}

void heads_free(Heads* heads) { delete heads; }

// The linear maps belong to the heads from now on.
void heads_query(Heads* heads, Linear* query) { heads->query.emplace_back(query); }

void heads_inner(Heads* heads, Linear* inner) { heads->inner.emplace_back(inner); }

void heads_outer(Heads* heads, Linear* outer) { heads->outer.emplace_back(outer); }

void heads_run(Heads* heads, const Linear* projection, const Foresight* foresight, int threads) {
  heads->run(*projection, *foresight, threads);
}

Stack* stack_new(int dim, int heads, int norm_first, int activation) {
  auto* stack = new Stack();
  stack->dim = dim;
  stack->heads = heads;
  stack->norm_first = norm_first != 0;
  stack->activation = static_cast<Activation>(activation);
  return stack;
}

void stack_free(Stack* stack) { delete stack; }

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
// norms: weight and bias of each of three norms (own, source, last).
void stack_layer(Stack* stack, Linear* own_in, Linear* own_out, Linear* source_in,
                 Linear* source_out, Linear* inner, Linear* outer, const float* const* norms,
                 const float* epsilons) {
  Layer layer;
  const int dim = stack->dim;
  layer.own.norm = norm_of(norms[0], norms[1], dim, epsilons[0]);
  layer.own.in.reset(own_in);
  layer.own.out.reset(own_out);
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

void stack_run(Stack* stack, const Call* call, int threads) {
  stack->prepare(*call, threads);
  Barrier barrier(threads);
#pragma omp parallel num_threads(threads)
  stack->run(Team(barrier), *call);
}

Proposer* proposer_new() { return new Proposer(); }

void proposer_free(Proposer* proposer) { delete proposer; }

void proposer_run(Proposer* proposer, Stack* stack, Chain* chain, const Proposal* proposal,
                  int threads) {
  proposer->run(*stack, *chain, *proposal, threads);
}

Speaker* speaker_new() { return new Speaker(); }

void speaker_free(Speaker* speaker) { delete speaker; }

void speaker_run(Speaker* speaker, Stack* stack, const Linear* projection,
                 const Monologue* monologue, int threads) {
  speaker->run(*stack, projection, *monologue, threads);
}

Verification* verification_new() { return new Verification(); }

void verification_free(Verification* verification) { delete verification; }

void verification_run(Verification* verification, Stack* stack, const Linear* projection,
                      Round* round, int threads) {
  verification->run(*stack, projection, *round, threads);
}

Guesser* guesser_new() { return new Guesser(); }

void guesser_free(Guesser* guesser) { delete guesser; }

void guesser_guess(Guesser* guesser, const Guessing* guessing) { guesser->guess(*guessing); }

void guesser_learn(Guesser* guesser, const Guessing* guessing) { guesser->learn(*guessing); }

void copies_run(const Copying* copying) { copy(*copying); }

}  // extern "C"
