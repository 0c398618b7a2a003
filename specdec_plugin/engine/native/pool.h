// Memory for weights, in few large pieces that the system can map by huge pages. A decoding step
// reads all weights once, and with pages of 4 KiB it would wait for the translation of addresses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace native {

constexpr size_t HUGE_PAGE = size_t(2) << 20;

// Asks the system to map what lies in [memory, memory + size) by huge pages, before it is touched.
static inline void prefer_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t size) {
#ifdef __linux__
  const size_t begin = (reinterpret_cast<size_t>(memory) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE,
               end = (reinterpret_cast<size_t>(memory) + size) / HUGE_PAGE * HUGE_PAGE;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

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

// Room for `count` numbers at a multiple of 64 bytes: heads of whole vectors lie in as few lines of
// the cache as they can. Nothing is written to it.
template <class Number>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t count) {
    const size_t size = (count * sizeof(Number) + 63) / 64 * 64;
    memory_.reset(static_cast<Number*>(std::aligned_alloc(64, size)));
    if (!memory_) throw std::bad_alloc();
    prefer_huge_pages(memory_.get(), size);
  }

  Number* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(Number* memory) const { std::free(memory); }
  };
  std::unique_ptr<Number, Free> memory_;
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
