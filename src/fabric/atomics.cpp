#include "fabric/atomics.hpp"

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace viaduct::fabric {

namespace {

// use(T{}) with the type that stands for it; false: there is none.
template <class Use>
bool with_type(fi_datatype type, Use use) {
  switch (type) {
    case FI_INT8:
      return use(std::int8_t{}), true;
    case FI_UINT8:
      return use(std::uint8_t{}), true;
    case FI_INT16:
      return use(std::int16_t{}), true;
    case FI_UINT16:
      return use(std::uint16_t{}), true;
    case FI_INT32:
      return use(std::int32_t{}), true;
    case FI_UINT32:
      return use(std::uint32_t{}), true;
    case FI_INT64:
      return use(std::int64_t{}), true;
    case FI_UINT64:
      return use(std::uint64_t{}), true;
    case FI_FLOAT:
      return use(float{}), true;
    case FI_DOUBLE:
      return use(double{}), true;
    case FI_FLOAT_COMPLEX:
      return use(std::complex<float>{}), true;
    case FI_DOUBLE_COMPLEX:
      return use(std::complex<double>{}), true;
    case FI_LONG_DOUBLE:
      return use(static_cast<long double>(0)), true;
    case FI_LONG_DOUBLE_COMPLEX:
      return use(std::complex<long double>{}), true;
    default:
      return false;
  }
}

template <class T>
constexpr bool kOrdered = std::is_arithmetic_v<T>;  // complex numbers are not

template <class T>
bool takes(fi_op op) {
  switch (op) {
    case FI_MIN:
    case FI_MAX:
    case FI_CSWAP_LE:
    case FI_CSWAP_LT:
    case FI_CSWAP_GE:
    case FI_CSWAP_GT:
      return kOrdered<T>;
    case FI_BOR:
    case FI_BAND:
    case FI_BXOR:
    case FI_MSWAP:
      return std::is_integral_v<T>;
    case FI_SUM:
    case FI_PROD:
    case FI_LOR:
    case FI_LAND:
    case FI_LXOR:
    case FI_ATOMIC_READ:
    case FI_ATOMIC_WRITE:
    case FI_CSWAP:
    case FI_CSWAP_NE:
      return true;
    default:
      return false;
  }
}

template <class T>
T as_truth(bool value) {
  return static_cast<T>(value ? 1 : 0);
}

// What the memory holds afterwards. For those that compare: `there` stays where the comparison with `compare` fails.
template <class T>
T result(fi_op op, T there, T operand, T compare) {
  const T none{};
  switch (op) {
    case FI_SUM:
      return static_cast<T>(there + operand);
    case FI_PROD:
      return static_cast<T>(there * operand);
    case FI_LOR:
      return as_truth<T>(there != none || operand != none);
    case FI_LAND:
      return as_truth<T>(there != none && operand != none);
    case FI_LXOR:
      return as_truth<T>((there != none) != (operand != none));
    case FI_ATOMIC_WRITE:
      return operand;
    case FI_CSWAP:
      return compare == there ? operand : there;
    case FI_CSWAP_NE:
      return compare != there ? operand : there;
    default:
      break;
  }
  if constexpr (kOrdered<T>) {
    switch (op) {
      case FI_MIN:
        return operand < there ? operand : there;
      case FI_MAX:
        return operand > there ? operand : there;
      case FI_CSWAP_LE:
        return compare <= there ? operand : there;
      case FI_CSWAP_LT:
        return compare < there ? operand : there;
      case FI_CSWAP_GE:
        return compare >= there ? operand : there;
      case FI_CSWAP_GT:
        return compare > there ? operand : there;
      default:
        break;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case FI_BOR:
        return static_cast<T>(there | operand);
      case FI_BAND:
        return static_cast<T>(there & operand);
      case FI_BXOR:
        return static_cast<T>(there ^ operand);
      case FI_MSWAP:
        return static_cast<T>((operand & compare) | (there & ~compare));
      default:
        break;
    }
  }
  return there;  // FI_ATOMIC_READ
}

bool compares(fi_op op) {
  return op >= FI_CSWAP && op <= FI_MSWAP;
}

}  // namespace

std::size_t size_of(fi_datatype type) {
  std::size_t size = 0;
  (void)with_type(type, [&](auto zero) { size = sizeof zero; });
  return size;
}

std::size_t operands_of(fi_op op) {
  return op == FI_ATOMIC_READ ? 0 : compares(op) ? 2 : 1;
}

bool is_possible(fi_datatype type, fi_op op, RemoteKind kind) {
  bool fits = false;
  if (!with_type(type, [&](auto zero) { fits = takes<decltype(zero)>(op); })) return false;
  switch (kind) {
    case RemoteKind::atomic:
      return fits && !compares(op) && op != FI_ATOMIC_READ;
    case RemoteKind::fetch:
      return fits && !compares(op);
    case RemoteKind::compare:
      return fits && compares(op);
    default:
      return false;
  }
}

void apply(fi_datatype type, fi_op op, std::byte* memory, const std::byte* operand, const std::byte* compare,
           std::size_t count) {
  (void)with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      T there{}, with{}, against{};
      std::memcpy(&there, memory + i * sizeof(T), sizeof(T));
      if (operand != nullptr) std::memcpy(&with, operand + i * sizeof(T), sizeof(T));
      if (compare != nullptr) std::memcpy(&against, compare + i * sizeof(T), sizeof(T));
      const T now = result<T>(op, there, with, against);
      std::memcpy(memory + i * sizeof(T), &now, sizeof(T));
    }
  });
}

}  // namespace viaduct::fabric
