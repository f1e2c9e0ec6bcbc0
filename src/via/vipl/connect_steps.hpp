// Steps by which a VI becomes connected, and is no more. Each takes the locks it needs: leadership, then the VI's.
#pragma once

#include "via/vipl/connect.hpp"
#include "via/vipl/progress.hpp"

namespace viaduct::vipl {

// Under the VI's lock.
Description describe(const Vi& vi, const WireAddress& local, const WireAddress& remote);
via::Terms terms_of(Vi& vi);

bool become_pending(Vi& vi);  // false: it is not idle
bool is_pending(Vi& vi);
VIP_RETURN give_up(Vi& vi, VIP_RETURN why);  // idle again; says why
// Both ends have the channel: the VI is connected, and attended to if somebody may sleep for it.
VIP_RETURN finish(Progress& progress, Vi& vi, via::Handshake& handshake, const Description& theirs);
// Asks whoever waits at mine.remote, and connects.
VIP_RETURN request(Progress& progress, Vi& vi, const Description& mine, const via::Terms& terms, Deadline deadline);
VIP_RETURN disconnect(Progress& progress, Vi& vi);

}  // namespace viaduct::vipl
