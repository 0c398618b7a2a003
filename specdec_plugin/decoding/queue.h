// Greedy decoding of many sentences, or draws: when a row has ended, a waiting sentence takes its
// place. The reference is `DecodingLoop` in loop.py.
#pragma once

#include <atomic>
#include <utility>

#include "decoding/verify.h"
#include "decoding/workers.h"
#include "engine/native/row_cache.h"
#include "engine/native/source_rows.h"

namespace native {

// The rows that one thread or team decodes. Rows that have ended leave: the last one moves up.
class QueueWorker {
 public:
  // Decodes sentences as long as any waits. next: the index in `call.order` of the next one. index:
  // of this worker.
  void run(const Stack& stack, const Linear* projection, const Linear& source_in,
           const QueueCall& call, std::atomic<int>& next, Watch& watch, int index, int threads) {
    start(call);
    sources_.begin(source_in, call.source, call.rows);
    others_.begin(call.verify.others, call.verify.other_models, call.rows, call.rows);
    others_.follow(verify_.stack);
    verify_.others = others_.calls();
    while (!watch.stopped(index) && admit(call, next, threads)) {
      const int64_t longest = *std::max_element(lengths_.begin(), lengths_.begin() + count());
      cache_.fit(verify_.stack, stack, call.rows, int(longest) + 1, room_);
      others_.fit(int(longest) + 1, room_);
      verification_.run(stack, projection, verify_, threads);
      scoring_seconds += verify_.scoring_seconds;
      rescored += verify_.rescored;
      certain += verify_.certain;
      certified += verify_.certified;
      release(call, watch);
    }
  }

  // Of a run.
  double scoring_seconds = 0;
  int64_t certified = 0, rescored = 0, certain = 0;

 private:
  Verification verification_;
  VerifyCall verify_;
  RowCache cache_;
  SourceRows sources_;
  OtherRows others_;
  std::vector<int64_t> sentences_, slots_, keys_;  // (rows)
  std::vector<int64_t> tokens_, lengths_;          // (rows, room_), (rows)
  Aligned<float> scores_;                          // (rows, room_)
  std::vector<int64_t> results_;                   // (5, rows)
  std::vector<int64_t> prefixes_;                  // (rows, prefix_width)
  int room_;

  int& count() { return verify_.rows.count; }
  int64_t* prefix(int row) { return prefixes_.data() + size_t(row) * verify_.rules.prefix_width; }

  void start(const QueueCall& call) {
    verification_.begin();
    scoring_seconds = 0;
    certified = rescored = certain = 0;
    verify_ = call.verify;
    room_ = int(verify_.rules.max_len) + 2;
    for (auto* each : {&sentences_, &slots_, &keys_, &lengths_}) each->resize(call.rows);
    for (int row = 0; row < call.rows; ++row) slots_[row] = row;
    tokens_.resize(size_t(call.rows) * room_);
    scores_.resize(size_t(call.rows) * room_);
    results_.resize(size_t(call.rows) * 5);
    verify_.rows.count = 0;
    verify_.rows.capacity = room_;
    verify_.rows.tokens = tokens_.data();
    verify_.rows.scores = scores_.data();
    verify_.rows.lengths = lengths_.data();
    prefixes_.resize(size_t(call.rows) * verify_.rules.prefix_width);
    verify_.rules.prefix = prefixes_.data();
    if (call.keys) verify_.rows.sampling.keys = keys_.data();
    verify_.rows.sampling.lengths = lengths_.data();
    verify_.stack.row_index = slots_.data();
    verify_.stack.source_index = slots_.data();
    int64_t* results = results_.data();
    for (int64_t** each :
         {&verify_.drafted, &verify_.kept, &verify_.added, &verify_.lengths, &verify_.ended})
      *each = std::exchange(results, results + call.rows);
  }

  // Lets waiting sentences take free rows; tells whether there are any rows.
  bool admit(const QueueCall& call, std::atomic<int>& next, int threads) {
    while (count() < call.rows) {
      const int index = next.fetch_add(1);
      if (index >= call.sentences) break;
      const int row = count()++;
      sentences_[row] = call.order[index];
      sources_.add(sentences_[row], slots_[row]);
      others_.add(sentences_[row], slots_[row]);
      if (call.keys) keys_[row] = call.keys[sentences_[row]];
      const int width = verify_.rules.prefix_width;
      std::copy_n(call.verify.rules.prefix + sentences_[row] * width, width, prefix(row));
      lengths_[row] = 0;
      tokens_[size_t(row) * room_] = call.bos;
    }
    sources_.load(threads);
    sources_.describe(verify_.stack);
    others_.load(threads);
    return count() > 0;
  }

  // Writes out the rows that have ended. Rows behind the one that is looked at have not.
  void release(const QueueCall& call, Watch& watch) {
    for (int row = count() - 1; row >= 0; --row) {
      if (!verify_.ended[row]) continue;
      const size_t from = size_t(row) * room_, to = size_t(sentences_[row]) * (room_ - 1);
      call.lengths[sentences_[row]] = lengths_[row];
      watch.finished(lengths_[row]);
      std::copy_n(&tokens_[from + 1], lengths_[row], call.tokens + to);
      std::copy_n(&scores_[from], lengths_[row], call.scores + to);
      move(--count(), row);
    }
  }

  void move(int from, int to) {
    std::swap(slots_[from], slots_[to]);
    if (from == to) return;
    sentences_[to] = sentences_[from];
    keys_[to] = keys_[from];
    std::copy_n(prefix(from), verify_.rules.prefix_width, prefix(to));
    lengths_[to] = lengths_[from];
    std::copy_n(&tokens_[size_t(from) * room_], lengths_[from] + 1, &tokens_[size_t(to) * room_]);
    std::copy_n(&scores_[size_t(from) * room_], lengths_[from], &scores_[size_t(to) * room_]);
  }
};

class Queue {
 public:
  void run(const Stack& stack, const Linear* projection, const Linear& source_in, QueueCall& call,
           int threads) {
    const int ran =
        workers_.run(call.workers, threads, call.watch, [&](QueueWorker& worker, auto&&... own) {
          worker.run(stack, projection, source_in, call, own...);
        });
    for (int i = 0; i < ran; ++i) {
      const QueueWorker& worker = workers_[i];
      call.verify.scoring_seconds += worker.scoring_seconds / ran;
      call.verify.certified += worker.certified;
      call.verify.rescored += worker.rescored;
      call.verify.certain += worker.certain;
    }
  }

 private:
  Workers<QueueWorker> workers_;
};

// Bytes of weights that stay in a processor's cache, as measured on an AMD EPYC with 32 MB of it:
// decoders of 19 to 30 MB were faster with few rows, and those of 41 to 100 MB with more.
constexpr size_t CACHED = size_t(32) << 20;
// Rows that have to share each weight that comes from memory, as measured on a Xeon (Cascade Lake):
// 28 took 1.05 to 1.2 times as long.
constexpr int SHARING = 56;

// Rows that a worker decodes at once. beams: rows of each sentence. Products read the weights once
// for each TILE of rows. As long as the weights stay in the cache, more rows would only drive keys
// and values out of it. Beams get two tiles: two sentences of five leave 4 of 14 rows of one empty.
extern "C" int queue_rows(const Stack* stack, const Linear* projection, int beams) {
  if (stack->bytes + (projection ? projection->bytes() : 0) <= CACHED)
    return beams > 1 ? 2 * TILE : TILE;
  return (SHARING + TILE - 1) / TILE * TILE;
}

// source_in: makes keys and values of the source.
extern "C" void queue_run(Queue* queue, const Stack* stack, const Linear* projection,
                          const Linear* source_in, QueueCall* call, int threads) {
  queue->run(*stack, projection, *source_in, *call, threads);
}

}  // namespace native
