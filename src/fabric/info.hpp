// What the provider offers, and what of it a program asked for.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>

namespace viaduct::fabric {

inline constexpr const char* kProvider = "viaduct";
inline constexpr std::uint32_t kProviderVersion = FI_VERSION(0, 1);
inline constexpr std::uint32_t kApiVersion = FI_VERSION(1, 17);

inline constexpr std::size_t kMostPieces = 32;
inline constexpr std::size_t kInjectSize = 4096;
inline constexpr std::size_t kMostUnderWay = 16384;  // operations of an endpoint; then -FI_EAGAIN
inline constexpr std::size_t kMostMessage = std::size_t{1} << 32;
inline constexpr std::uint64_t kOrder = FI_ORDER_SAS;

// fi_getinfo(): -FI_ENODATA where the hints want what is not here.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info);

}  // namespace viaduct::fabric
