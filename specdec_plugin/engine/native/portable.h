// Included before all else where a library is compiled for other machines. Newer headers of GCC
// call functions that older systems lack. Here they do without them, so that glibc 2.28 and the
// libstdc++ of GCC 8 suffice (manylinux_2_28).
#pragma once

#include <cstdlib>

#ifdef __GLIBCXX__
// Condition variables then wait by pthread_cond_timedwait, as before GCC 10.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT

#include <bits/functexcept.h>

// From GCC 11 on, containers call it for sizes beyond the memory that has addresses.
namespace std {
__attribute__((visibility("hidden"))) void __throw_bad_array_new_length() { std::abort(); }
}  // namespace std

// From GCC 14 on, a function that is noexcept calls it if an exception would leave the function.
extern "C" void __cxa_call_terminate(void*);
extern "C" void __cxa_call_terminate(void*) { std::abort(); }
#endif
