// Room for what is computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
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

// Room at a multiple of 64 bytes: elsewhere each load of 512 bits may need two lines of the cache,
// by the luck of an allocation. Large room has pages of its own, so that it leaves no hole in the
// heap when it is freed.
class Room {
 public:
  static void* take(size_t size) {
    size = (size + 63) / 64 * 64;
    void* memory = nullptr;
#ifdef __linux__
    if (size >= LARGE) {
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      prefer_huge_pages(memory, size);
      return memory;
    }
#endif
    memory = std::aligned_alloc(64, size);
    if (!memory) throw std::bad_alloc();
    return memory;
  }

  // size: as it was asked for.
  static void release(void* memory, [[maybe_unused]] size_t size) {
#ifdef __linux__
    size = (size + 63) / 64 * 64;
    if (size >= LARGE) {
      munmap(memory, size);
      return;
    }
#endif
    std::free(memory);
  }

 private:
  static constexpr size_t LARGE = size_t(1) << 20;
};

template <class Number>
struct AlignedAllocator {
  using value_type = Number;
  AlignedAllocator() = default;
  template <class Other>
  AlignedAllocator(const AlignedAllocator<Other>&) {}

  Number* allocate(size_t count) {
    return static_cast<Number*>(Room::take(count * sizeof(Number)));
  }
  void deallocate(Number* memory, size_t count) { Room::release(memory, count * sizeof(Number)); }

  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
  friend bool operator!=(const AlignedAllocator&, const AlignedAllocator&) { return false; }
};
template <class Number>
using Aligned = std::vector<Number, AlignedAllocator<Number>>;

// Makes room for `size` numbers. What was in it is lost where it grows. A vector that were resized
// in each call would write zeros whenever a call with more numbers follows one with fewer.
template <class Number>
void grow(Aligned<Number>& buffer, size_t size) {
  constexpr size_t SPARE = size_t(1) << 18;  // so that it need not grow again soon
  if (buffer.size() < size) buffer = Aligned<Number>(size + std::min(size / 2, SPARE));
}

// Room for `count` numbers: heads of whole vectors lie in as few lines of the cache as they can.
// Nothing is written to it.
template <class Number>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t count)
      : memory_(static_cast<Number*>(Room::take(count * sizeof(Number))), {count}) {}

  Number* get() const { return memory_.get(); }

 private:
  struct Free {
    size_t count = 0;
    void operator()(Number* memory) const { Room::release(memory, count * sizeof(Number)); }
  };
  std::unique_ptr<Number, Free> memory_;
};

}  // namespace native
