// A value, or an error that tells the whole chain of what failed.
//
// Set-up code returns Result<T>; each caller that knows more adds it with because(). The outermost words come first:
//   "attach to server: receive segment: wrong magic 0x0"
// Data paths do not use this: they return plain codes and never allocate.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace viaduct {

class [[nodiscard]] Error {
 public:
  // `code` is an errno value: what a C interface would report.
  Error(int code, std::string message) : code_(code), message_(std::move(message)) {}

  // Takes errno as it is now.
  static Error from_errno(std::string what) { return from_code(errno, std::move(what)); }
  static Error from_code(int code, std::string what) {
    what += ": ";
    what += std::strerror(code);
    return {code, std::move(what)};
  }

  Error because(const std::string& outer) const { return {code_, outer + ": " + message_}; }

  int code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  int code_;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by intent
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

  Result because(const std::string& outer) && {
    if (!ok()) return error().because(outer);
    return std::move(*this);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by intent

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

  Result because(const std::string& outer) && {
    if (!ok()) return error_->because(outer);
    return {};
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace viaduct

// VIADUCT_TRY(auto segment, Segment::create(...));  returns the error, or goes on with the value.
#define VIADUCT_TRY(declaration, expression) \
  VIADUCT_TRY_NAMED(declaration, expression, VIADUCT_JOIN(viaduct_result_, __LINE__))
#define VIADUCT_TRY_NAMED(declaration, expression, name) \
  auto name = (expression);                              \
  if (!name.ok()) return name.error();                   \
  declaration = std::move(name).value()
#define VIADUCT_CHECK(expression)                                                                \
  do {                                                                                           \
    if (auto viaduct_status = (expression); !viaduct_status.ok()) return viaduct_status.error(); \
  } while (false)
#define VIADUCT_JOIN(a, b) VIADUCT_JOIN_AGAIN(a, b)
#define VIADUCT_JOIN_AGAIN(a, b) a##b
