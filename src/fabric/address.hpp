// How an endpoint of `mx` is named to programs of libfabric: a sockaddr_in with the address of its host's interface,
// and its number there plus one as the port. So a port of 0 means any.
#pragma once

#include <netinet/in.h>
#include <viaduct/mx.hpp>

#include <optional>
#include <string>

namespace viaduct::fabric {

inline constexpr const char* kFamily = "fabric";  // endpoints of libfabric meet those of libfabric

std::optional<mx::Name> name_of(const sockaddr_in& address);
sockaddr_in address_of(const mx::Name& name);
std::string text_of(const sockaddr_in& address);  // "192.0.2.1:3"

// By the host's own resolver. Null pointers stand for "any".
std::optional<sockaddr_in> resolve(const char* node, const char* service);

}  // namespace viaduct::fabric
