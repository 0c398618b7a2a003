// Cross-attention keys and values of the sentences that a worker decodes.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/native/linear.h"
#include "engine/native/room.h"

namespace native {

// They are computed when a sentence is begun, and its row is another one's later. So a batch of any
// size takes room for few sentences, which stays near the processor.
class SourceRows {
 public:
  // Before a batch. linear: makes keys and values. call: the sources of its sentences, without a
  // result. rows: sentences at once. It is best to begin the longest ones first.
  void begin(const Linear& linear, const SourceKvCall& call, int rows) {
    linear_ = &linear;
    call_ = &call;
    std::vector<int64_t> lengths(call.rows);
    for (int row = 0; row < call.rows; ++row) lengths[row] = length_of(row);
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    longest_ = lengths.empty() ? 0 : lengths[0];
    lengths.resize(std::min(rows, call.rows));
    used_ = 0;
    const size_t size = std::accumulate(lengths.begin(), lengths.end(), size_t(0)) * linear.outputs;
    if (size > size_) {
      size_ = 0;
      store_ = Scratch<float>();  // is freed before more is asked for
      store_ = Scratch<float>(size);
      size_ = size;
    }
    forget_added();
    lengths_.assign(rows, 0);
    room_.assign(rows, 0);
    places_.assign(rows, 0);
  }

  // Gives a row to a sentence, which `load` reads.
  void add(int64_t sentence, int64_t row) {
    const int64_t length = length_of(sentence);
    if (length > room_[row]) make_room(length, row);
    lengths_[row] = length;
    added_begins_.push_back(sentence * call_->stride + call_->begins[sentence]);
    added_starts_.push_back(added_starts_.back() + length);
    added_places_.push_back(places_[row]);
  }

  // Computes what belongs to the sentences that were added: some of them together, which reads the
  // weights once.
  void load(int threads) {
    SourceKvCall some = *call_;
    some.rows = int(added_places_.size());
    some.stride = 0;
    some.begins = added_begins_.data();
    some.starts = added_starts_.data();
    some.places = added_places_.data();
    some.out = store_.get();
    for (int begin = 0, end; begin < some.rows; begin = end) {
      end = begin + 1;
      while (end < some.rows && added_starts_[end + 1] - added_starts_[begin] <= TOGETHER) ++end;
      source_kv_.prepare({linear_, &some}, begin, end, threads);
      parallel(threads, [&](const Team& team) { source_kv_.run(team); });
    }
    forget_added();
  }

  // Lets `call` read all rows. It holds until the next one is added.
  void describe(StackCall& call) const {
    call.source_kv = store_.get();
    call.source_places = places_.data();
    call.source_length = int(longest_);
    call.source_lengths = lengths_.data();
  }

 private:
  static constexpr int TOGETHER = 64;  // symbols, which are enough to share the weights

  const Linear* linear_ = nullptr;
  const SourceKvCall* call_ = nullptr;
  SourceKv source_kv_;
  Scratch<float> store_;        // by row: (layers, 2, heads, length, head dim)
  size_t size_ = 0, used_ = 0;  // floats of it
  int64_t longest_ = 0;
  std::vector<int64_t> lengths_, room_;  // (rows) symbols that each has, and that it has room for
  std::vector<int64_t> places_;          // (rows) the float at which each begins
  // Of sentences that were added, as in SourceKvCall.
  std::vector<int64_t> added_begins_, added_starts_, added_places_;

  void forget_added() {
    added_begins_.clear();
    added_starts_.assign(1, 0);
    added_places_.clear();
  }

  int64_t length_of(int64_t sentence) const {
    return call_->starts[sentence + 1] - call_->starts[sentence];
  }

  // The first sentence of a row is its longest one where these begin first. So rows need as much as
  // their own longest sentence, and not each as much as the batch's.
  void make_room(int64_t length, int64_t row) {
    const size_t needed = used_ + size_t(length) * linear_->outputs;
    if (needed > size_) {
      Scratch<float> store(2 * needed);
      std::copy_n(store_.get(), used_, store.get());
      store_ = std::move(store);
      size_ = 2 * needed;
    }
    places_[row] = int64_t(used_);
    room_[row] = length;
    used_ = needed;
  }
};

}  // namespace native
