// Memory for weights, in few large pieces that the system can map by huge pages. A decoding step
// reads all weights once, and with pages of 4 KiB it would wait for the translation of addresses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "engine/native/room.h"

namespace native {

class Pool {
 public:
  // Zeroed memory at a multiple of 64 bytes, to be given back by `release`.
  static void* take(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex());
    size = (size + 63) / 64 * 64;
    if (pieces().empty() || pieces().back().used + size > pieces().back().size) add(size);
    Piece& piece = pieces().back();
    void* taken = piece.memory + piece.used;
    piece.used += size;
    ++piece.alive;
    return taken;
  }

  static void release(void* taken) {
    const std::lock_guard<std::mutex> lock(mutex());
    for (size_t i = 0; i < pieces().size(); ++i) {
      Piece& piece = pieces()[i];
      if (taken < piece.memory || taken >= piece.memory + piece.size) continue;
      if (--piece.alive == 0) {
        std::free(piece.memory);
        pieces().erase(pieces().begin() + i);
      }
      return;
    }
  }

 private:
  struct Piece {
    char* memory;
    size_t size, used, alive;
  };
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }

  static std::vector<Piece>& pieces() {
    static std::vector<Piece> all;
    return all;
  }

  static void add(size_t size) {
    size = (std::max(size, 4 * HUGE_PAGE) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void* memory = std::aligned_alloc(HUGE_PAGE, size);
    if (!memory) throw std::bad_alloc();
    prefer_huge_pages(memory, size);
    std::memset(memory, 0, size);
    pieces().push_back({static_cast<char*>(memory), size, 0, 0});
  }
};

// `count` zeroed numbers in the pool.
template <class Number>
class Pooled {
 public:
  Pooled() : data_(nullptr) {}
  ~Pooled() {
    if (data_) Pool::release(data_);
  }
  Pooled(const Pooled&) = delete;
  Pooled& operator=(const Pooled&) = delete;

  void allocate(size_t count) { data_ = static_cast<Number*>(Pool::take(count * sizeof(Number))); }
  Number& operator[](size_t i) { return data_[i]; }
  const Number& operator[](size_t i) const { return data_[i]; }

 private:
  Number* data_;
};

}  // namespace native
