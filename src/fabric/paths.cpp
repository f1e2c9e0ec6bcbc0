// Which path leads to each peer, for people: a line on standard error for each pair, by the side with the smaller rank.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/config.hpp"
#include "fabric/address.hpp"
#include "fabric/endpoint.hpp"

namespace viaduct::fabric {

namespace {

bool wanted() {
  static const bool on = Config::process().flag("VIADUCT_FABRIC_PATHS");
  return on;
}

// As the launcher says: Open MPI's, the others', Slurm's. -1: none did.
int own_rank() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* const text = std::getenv(name); text != nullptr) return std::atoi(text);
  return -1;
}

}  // namespace

void Endpoint::tell_rank(mx::Partner* partner) {
  if (!wanted() || partner == below_->self()) return;
  say(partner, RemoteWord::rank, with_head(Rank{own_rank()}));
}

void Endpoint::hear_rank(mx::Partner* partner, std::span<const std::byte> bytes) {
  const auto theirs = take_head<Rank>(bytes);
  const int mine = own_rank();
  if (!theirs || !wanted() || mine > theirs->rank) return;
  const std::string way = below_->is_local(partner) ? "shared memory"
                                                    : "the network, " + text_of(address_of(below_->name())) + " to " +
                                                          text_of(address_of(below_->name_of(partner)));
  const std::string line =
      mine < 0 ? "viaduct: " + text_of(address_of(below_->name_of(partner))) + ": " + way + "\n"
               : "viaduct: ranks " + std::to_string(mine) + " and " + std::to_string(theirs->rank) + ": " + way + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace viaduct::fabric
